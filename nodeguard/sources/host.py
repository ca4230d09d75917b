"""Source `host`: machine model, kernel release, uptime, and the NVIDIA driver as the kernel reports it."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.model.target import NODE
from nodeguard.sources.machine import Machine
from nodeguard.sources.readings import ObservationDraft, parse_line, parse_number
from nodeguard.sources.source import source

_DMI = "/sys/class/dmi/id"
_KERNEL = "/proc/sys/kernel/osrelease"
_UPTIME = "/proc/uptime"
_DRIVER = "/proc/driver/nvidia/version"
_MODULE = "/sys/module/nvidia"


@source
class HostSource:
    """Reads DMI, /proc and the nvidia module's state; one observation, of the node."""

    name = "host"
    interval = 60.0
    deadline = 5.0
    paths: tuple[str, ...] = (_DMI, _KERNEL, _UPTIME, _DRIVER, f"{_MODULE}/initstate")
    signals = signals_by_name(
        Signal("host.product_name", "state", "DMI product name"),
        Signal("host.sys_vendor", "state", "DMI system vendor"),
        Signal(
            "host.chassis_asset_tag", "state", "DMI chassis asset tag; clouds mark their machines with it"
        ),
        Signal("host.kernel", "state", "kernel release"),
        Signal("host.uptime", "gauge", "time since boot", "seconds"),
        Signal("driver.loaded", "state", "whether the NVIDIA kernel driver is loaded"),
        Signal("driver.version", "state", "version of the NVIDIA kernel driver"),
        Signal("driver.module_state", "state", "state of the nvidia module: live, coming or going"),
    )

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        draft = ObservationDraft(machine, self.name, NODE)
        for field in ("product_name", "sys_vendor", "chassis_asset_tag"):
            draft.read(f"host.{field}", f"{_DMI}/{field}", parse_line)
        draft.read("host.kernel", _KERNEL, parse_line)
        draft.read("host.uptime", _UPTIME, lambda text: parse_number(text.partition(" ")[0]))
        draft.read("driver.module_state", f"{_MODULE}/initstate", _module_state)
        version = draft.read_text(_DRIVER, "driver.version", "driver.loaded")
        if version is not None:
            draft.parse("driver.version", _DRIVER, version, driver_version)
        if version is not None or draft.list_names(_MODULE, "driver.loaded") is not None:
            draft.signals["driver.loaded"] = True
        elif "driver.loaded" not in draft.unread:
            draft.signals["driver.loaded"] = False
        yield draft.build()


def driver_version(text: str) -> str:
    """Return the version from /proc/driver/nvidia/version. Its first line depends on the kernel module.

    Proprietary: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu …`; open: `NVRM version:
    NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build …`. Raises ValueError.
    """
    for part in text.partition("\n")[0].split():
        if "." in part and part.replace(".", "").isdecimal():
            return part
    raise ValueError(text)


def _module_state(text: str) -> str:
    if text not in {"live", "coming", "going"}:
        raise ValueError(text)
    return text
