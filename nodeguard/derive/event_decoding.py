"""Decoding of Xids, SXids and machine checks, with the events near them in time. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodeguard.derive import sxid, xid
from nodeguard.derive.link_errors import LinkErrorCounter, report_recoveries
from nodeguard.derive.state import DeriveState, XidLine
from nodeguard.derive.xid_index import WINDOW, XidIndex, XidRecord, index_xids
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.control_group import workload_name
from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.model.signal import Scalar

_XID, _SXID = "gpu.xid.line", "nvswitch.sxid.line"

# Lines of one GPU kept to be decoded again, so that a storm of application errors does not grow memory.
_MAX_LINES = 32

# Letters kept of a line: more than the driver prints. GPUs with lines: a log can name any.
_MAX_TEXT = 1000
_MAX_GPUS = 64


def decode_events(
    state: DeriveState, readings: Sequence[Reading], catalogue: Catalogue, driver: int | None
) -> tuple[DeriveState, list[Reading]]:
    """Return the readings with their lines decoded. driver: the driver's branch, None where it is unknown.

    A later line can change the meaning of an earlier one (63 after 48, 154 after an NVLink error). The
    earlier line is then reported again.
    """
    lines = _xid_lines(readings)
    xids = {
        target: (*state.xids.get(target, ()), *(xid.summarize_xid(line.event) for line in new))
        for target, new in lines.items()
    }
    near = {target: index_xids(records, catalogue) for target, records in xids.items()}
    decoder = _Decoder(catalogue, driver, near, LinkErrorCounter(state.link_errors, readings))
    result = []
    decoded_again: set[str] = set()
    for reading in readings:
        observations: list[Observation] = []
        for observation in reading.observations:
            target = observation.target
            if target not in decoded_again and any(event.signal == _XID for event in observation.events):
                decoded_again.add(target)
                observations += decoder.changed_lines(state, target, lines[target])
            observations.append(decoder.decode(observation) if observation.events else observation)
        result.append(replace(reading, observations=tuple(observations)))
    link_errors, result = report_recoveries(decoder.link_errors.errors(), result, _most_links(state))
    if link_errors != state.link_errors:
        state = replace(state, link_errors=link_errors)
    return _with_lines(state, lines, xids), result


def _with_lines(
    state: DeriveState, lines: Mapping[str, Sequence[XidLine]], xids: Mapping[str, tuple[XidRecord, ...]]
) -> DeriveState:
    """Return the state with new lines and their records, of the GPUs with the latest ones."""
    if not lines:
        return state
    new_lines = {
        target: tuple(map(_truncated, (*state.lines.get(target, ()), *new)[-_MAX_LINES:]))
        for target, new in lines.items()
    }
    records = _latest_gpus({**state.xids, **{target: _recent(row) for target, row in xids.items()}})
    all_lines = {**state.lines, **new_lines}
    return replace(
        state, xids=records, lines={target: row for target, row in all_lines.items() if target in records}
    )


def _xid_lines(readings: Sequence[Reading]) -> dict[str, list[XidLine]]:
    """Return the lines of Xid in some readings, by target."""
    lines: dict[str, list[XidLine]] = {}
    for reading in readings:
        for observation in reading.observations:
            new = [XidLine(reading.source, event) for event in observation.events if event.signal == _XID]
            if new:
                lines.setdefault(observation.target, []).extend(new)
    return lines


def _most_links(state: DeriveState) -> dict[str, float]:
    """Return the most active NVLinks that each GPU has had."""
    return {target: best.values.get("gpu.nvlink.active", 0.0) for target, best in state.best.items()}


def _truncated(line: XidLine) -> XidLine:
    event = line.event
    if len(event.text) <= _MAX_TEXT and len(str(event.fields.get("rest", ""))) <= _MAX_TEXT:
        return line
    fields = {**event.fields, "rest": str(event.fields.get("rest", ""))[:_MAX_TEXT]}
    return XidLine(line.source, replace(event, text=event.text[:_MAX_TEXT], fields=fields))


def _latest_gpus(xids: Mapping[str, tuple[XidRecord, ...]]) -> dict[str, tuple[XidRecord, ...]]:
    """Return the Xids of GPUs with an Xid recent enough to explain the next: at most _MAX_GPUS GPUs."""
    times = {target: records[-1].at for target, records in xids.items()}
    now = max(times.values())
    targets = sorted(times, key=times.__getitem__)[-_MAX_GPUS:]
    return {target: xids[target] for target in targets if now - times[target] <= 2 * WINDOW}


def _recent(records: Sequence[XidRecord]) -> tuple[XidRecord, ...]:
    """Return the latest Xid of each kind, so that a storm of one code does not push out another code."""
    latest = max(record.at for record in records)
    by_kind: dict[tuple[int, int, bool, int], XidRecord] = {}
    for record in records:
        if latest - record.at <= 2 * WINDOW:
            kind = (record.code, record.recovery, record.has_message, record.named)
            by_kind.pop(kind, None)
            by_kind[kind] = record
    return tuple(by_kind.values())[-_MAX_LINES:]


class _Decoder:
    """Decodes the events of one round.

    near: the recent Xids of each GPU. link_errors: counts each NVLink error that is decoded.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        driver: int | None,
        near: Mapping[str, XidIndex],
        link_errors: LinkErrorCounter,
    ) -> None:
        self._catalogue, self._driver, self._near = catalogue, driver, near
        self._ended = xid.ended_codes(catalogue)
        self.link_errors = link_errors

    def decode(self, observation: Observation) -> Observation:
        """Return the observation with its events decoded."""
        events = [
            decoded
            for event in observation.events
            for decoded in self._decode_event(observation.target, event)
        ]
        return replace(observation, events=tuple(events))

    def changed_lines(self, state: DeriveState, target: str, new: Sequence[XidLine]) -> Iterator[Observation]:
        """Yield earlier lines of a target that the new ones give another meaning, as events with count 0."""
        first = min(line.event.at for line in new)
        earlier = index_xids(state.xids.get(target, ()), self._catalogue)
        for line in state.lines.get(target, ()):
            if first - line.event.at > WINDOW:
                continue
            before = xid.decode_xid(line.event, self._catalogue, self._driver, earlier)
            now = xid.decode_xid(line.event, self._catalogue, self._driver, self._near[target])
            if now != before:
                yield Observation(line.source, target, events=(replace(now, count=0),))

    def _decode_event(self, target: str, event: Event) -> Iterator[Event]:
        if event.signal == _XID:
            decoded = xid.decode_xid(event, self._catalogue, self._driver, self._near[target])
            yield self.link_errors.add(target, decoded)
            if decoded.signal == "gpu.xid.recovery" and decoded.fields["verdict"] == "ignored":
                yield Event("gpu.recovery_none", event.at)
            for code in self._ended.get(int(event.fields["xid"]), ()):
                yield Event("gpu.xid.ended", event.at, fields={"xid": code})
        elif event.signal == _SXID:
            yield sxid.decode_sxid(event, self._catalogue)
            alarm_end = sxid.decode_alarm_end(event, self._catalogue)
            if alarm_end is not None:
                yield alarm_end
        elif event.signal == _MACHINE_CHECK_LINE:
            yield decode_machine_check(event)
        elif "cgroup" in event.fields:
            workload = workload_name(str(event.fields["cgroup"]))
            yield replace(event, fields={**event.fields, "workload": workload})
        else:
            yield event


_MACHINE_CHECK_LINE, _MACHINE_CHECK = "cpu.machine_check.line", "cpu.machine_check"

# Bits of IA32_MCi_STATUS: the entry is valid; the error was not corrected; the context of the processor is
# corrupt. Sources: Intel Software Developer's Manual, volume 3, machine-check architecture; AMD64
# Architecture Programmer's Manual, volume 2, machine check architecture.
_VALID, _UNCORRECTED, _CONTEXT_CORRUPT = 1 << 63, 1 << 61, 1 << 57

# A status word as the kernel prints it; a shorter one is a cut line.
_STATUS = re.compile(r"[0-9a-fA-F]{16}")

# Messages of AMD's decoder. Source: Linux drivers/edac/mce_amd.c.
_AMD_SEVERITIES = {
    "System Fatal error": "fatal",
    "Uncorrected, software restartable error": "uncorrected",
    "Uncorrected, software containable error": "uncorrected",
    "Deferred error, no action required": "deferred",
    "Corrected error, no action required": "corrected",
}

# Seconds after the start within which the kernel prints the records that the processors kept from before it.
# Large servers take up to two minutes to start their processors and drivers; more than twice that.
_START = 300.0


def decode_machine_check(event: Event) -> Event:
    """Return the event `cpu.machine_check` for a line of a machine check.

    Its severity is corrected, deferred, uncorrected, fatal, before_boot (fatal, and kept from before the
    start) or unknown. event: with the fields of the line; `at` in seconds since boot.
    """
    severity = _severity(event.fields)
    if severity == "fatal" and event.at < _START and "exception" not in event.fields:
        severity = "before_boot"
    return Event(_MACHINE_CHECK, event.at, event.text, {**event.fields, "severity": severity}, event.count)


def _severity(fields: Mapping[str, Scalar]) -> str:
    message, status = fields.get("words"), fields.get("status")
    if isinstance(message, str):
        return _AMD_SEVERITIES.get(message, "unknown")
    if not isinstance(status, str) or not _STATUS.fullmatch(status):
        return "unknown"
    bits = int(status, 16)
    if not bits & _VALID:
        return "unknown"
    if not bits & _UNCORRECTED:
        return "corrected"
    return "fatal" if bits & _CONTEXT_CORRUPT else "uncorrected"
