"""Source `memory`: size and availability of memory, memory pressure, and ECC errors of each DIMM."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from nodeguard.model.observation import Component, Observation
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.model.target import NODE
from nodeguard.sources import max_rates
from nodeguard.sources.machine import Machine
from nodeguard.sources.readings import (
    ObservationDraft,
    failure_reason,
    parse_count,
    parse_counter,
    parse_number,
    read_text,
)
from nodeguard.sources.source import source

_MEMINFO = "/proc/meminfo"
_PRESSURE = "/proc/pressure/memory"
_EDAC = "/sys/devices/system/edac/mc"


@source
class MemorySource:
    """Reads /proc/meminfo, pressure stall information and EDAC, of the node and of each DIMM."""

    name = "memory"
    interval = 30.0
    deadline = 5.0
    paths: tuple[str, ...] = (_MEMINFO, _PRESSURE, _EDAC)
    signals = signals_by_name(
        Signal("memory.total", "gauge", "memory that the kernel can use", "bytes"),
        Signal(
            "memory.available_ratio", "gauge", "share of it that new work can use without swapping", "ratio"
        ),
        Signal(
            "memory.hardware_corrupted", "gauge", "defective memory that the kernel no longer uses", "bytes"
        ),
        Signal(
            "memory.pressure.some",
            "gauge",
            "share of the last minute that some task waited for memory",
            "ratio",
        ),
        Signal(
            "memory.pressure.full", "gauge", "share of the last minute that all tasks waited for it", "ratio"
        ),
        Signal("dimm.corrected", "counter", "memory errors that ECC corrected", max_rate=max_rates.CORRECTED),
        Signal(
            "dimm.uncorrected",
            "counter",
            "memory errors that ECC could not correct",
            max_rate=max_rates.UNCORRECTED,
        ),
    )

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        node = ObservationDraft(machine, self.name, NODE)
        _meminfo(node)
        _pressure(node)
        controllers = node.list_names(_EDAC, "dimm.corrected", "dimm.uncorrected") or ()
        yield node.build()
        for controller in controllers:
            if controller.removeprefix("mc").isdecimal():
                yield from self._controller(machine, controller)

    def _controller(self, machine: Machine, controller: str) -> Iterator[Observation]:
        """Yield the DIMMs (or ranks) of one EDAC controller, then the controller itself.

        The controller has the errors of no known DIMM; all errors, if it does not count by DIMM. Source:
        Linux Documentation/driver-api/edac.rst.
        """
        whole = ObservationDraft(machine, self.name, f"dimm/{controller}")
        has_dimms = False
        for name in whole.list_names(f"{_EDAC}/{controller}", "dimm.corrected", "dimm.uncorrected") or ():
            if name[:4] not in {"dimm", "rank"} or not name[4:].isdecimal():
                continue
            draft = ObservationDraft(machine, self.name, f"dimm/{controller}/{name}")
            path = f"{_EDAC}/{controller}/{name}"
            draft.read("dimm.corrected", f"{path}/dimm_ce_count", parse_counter)
            draft.read("dimm.uncorrected", f"{path}/dimm_ue_count", parse_counter)
            if draft.signals or draft.unread:
                has_dimms = True
                label = draft.read_text(f"{path}/dimm_label")
                yield draft.build(Component(id=label) if label else None)
        if not whole.unread:
            counts = "noinfo_count" if has_dimms else "count"
            whole.read("dimm.corrected", f"{_EDAC}/{controller}/ce_{counts}", parse_counter)
            whole.read("dimm.uncorrected", f"{_EDAC}/{controller}/ue_{counts}", parse_counter)
        if whole.signals or whole.unread:
            yield whole.build()


def _meminfo(draft: ObservationDraft) -> None:
    text = draft.read_text(_MEMINFO, "memory.total", "memory.available_ratio", "memory.hardware_corrupted")
    if text is None:
        return
    lines = {name: size.strip() for name, _, size in (line.partition(":") for line in text.splitlines())}
    total = draft.parse("memory.total", _MEMINFO, lines.get("MemTotal", text), _bytes)
    if "HardwareCorrupted" in lines:
        draft.parse("memory.hardware_corrupted", _MEMINFO, lines["HardwareCorrupted"], _bytes)
    if "MemAvailable" in lines:
        if total:
            draft.parse(
                "memory.available_ratio", _MEMINFO, lines["MemAvailable"], lambda text: _bytes(text) / total
            )
        else:
            draft.mark_unread("the total is unknown", "memory.available_ratio")


def _pressure(draft: ObservationDraft) -> None:
    answer = read_text(draft.machine, _PRESSURE)
    if isinstance(answer, OSError):
        # The file exists and cannot be read if pressure stall information was disabled at boot.
        if answer.errno != errno.EOPNOTSUPP:
            draft.mark_unread(failure_reason(answer), "memory.pressure.some", "memory.pressure.full")
        return
    for line in (answer or "").splitlines():
        kind = "full" if line.startswith("full") else "some"
        draft.parse(f"memory.pressure.{kind}", _PRESSURE, line, _minute)


def _bytes(text: str) -> int:
    """Return `263856784 kB` in bytes."""
    size, unit = text.split()
    if unit != "kB":
        raise ValueError(text)
    return parse_count(size) * 1024


def _minute(line: str) -> float:
    """Return avg60 of `some avg10=0.00 avg60=1.50 avg300=0.40 total=12345` as a ratio."""
    averages = dict(part.split("=") for part in line.split()[1:])
    return parse_number(averages.get("avg60", "")) / 100
