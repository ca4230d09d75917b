"""Xids, SXids and machine checks, decoded as they arrive and with the events near them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodeguard.derive import machine_check, sxid, xid
from nodeguard.derive.link_errors import LinkErrorCounter, report_recoveries
from nodeguard.derive.state import DeriveState, XidLine
from nodeguard.derive.xid_index import WINDOW, XidIndex, XidRecord, index_xids
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.observation import Event, Observation, Reading

_XID, _SXID = "gpu.xid.line", "nvswitch.sxid.line"

# Lines of one GPU that are kept to be read again; a storm of application errors must not grow memory.
_KEPT = 32

# Letters of a line that are kept: a line that the driver printed is shorter. GPUs of which lines are kept: a
# log can name any.
_TEXT = 1000
_GPUS = 64


def decode_events(
    state: DeriveState, readings: Sequence[Reading], catalogue: Catalogue, driver: int | None
) -> tuple[DeriveState, list[Reading]]:
    """Readings with their lines decoded. driver: the driver's branch, None where unknown.

    A line that is read differently in the light of a later one (48 with 63, an NVLink error with 154) is told
    of again.
    """
    fresh = _xids(readings)
    said = {
        slot: (*state.xids.get(slot, ()), *(xid.summarize_xid(line.event) for line in new))
        for slot, new in fresh.items()
    }
    near = {slot: index_xids(xids, catalogue) for slot, xids in said.items()}
    decoder = _Decoder(catalogue, driver, near, LinkErrorCounter(state.link_errors, readings))
    result = []
    told: set[str] = set()
    for reading in readings:
        rows: list[Observation] = []
        for one in reading.observations:
            if one.target not in told and any(event.signal == _XID for event in one.events):
                told.add(one.target)
                rows += _again(state, one.target, fresh[one.target], catalogue, driver, near[one.target])
            rows.append(decoder.decoded(one) if one.events else one)
        result.append(replace(reading, observations=tuple(rows)))
    links, result = report_recoveries(decoder.link_errors.errors(), result, _most_links(state))
    if links != state.link_errors:
        state = replace(state, links=links)
    if not fresh:
        return state, result
    kept = {
        slot: tuple(map(_short, (*state.lines.get(slot, ()), *new)[-_KEPT:])) for slot, new in fresh.items()
    }
    recent = {slot: _recent(codes) for slot, codes in said.items()}
    latest = _latest({**state.xids, **recent})
    near_in_time = {slot: row for slot, row in {**state.lines, **kept}.items() if slot in latest}
    return replace(state, said=latest, lines=near_in_time), result


def _xids(readings: Sequence[Reading]) -> dict[str, list[XidLine]]:
    """Return the lines of Xid in some readings, by slot."""
    found: dict[str, list[XidLine]] = {}
    for reading in readings:
        for observation in reading.observations:
            lines = [XidLine(reading.source, event) for event in observation.events if event.signal == _XID]
            if lines:
                found.setdefault(observation.target, []).extend(lines)
    return found


def _most_links(state: DeriveState) -> dict[str, float]:
    """Return the most active NVLinks that each GPU has had."""
    return {slot: best.values.get("gpu.nvlink.active", 0.0) for slot, best in state.best.items()}


def _short(line: XidLine) -> XidLine:
    event = line.event
    if len(event.text) <= _TEXT and len(str(event.fields.get("rest", ""))) <= _TEXT:
        return line
    fields = {**event.fields, "rest": str(event.fields.get("rest", ""))[:_TEXT]}
    return XidLine(line.source, replace(event, text=event.text[:_TEXT], fields=fields))


def _latest(said: Mapping[str, tuple[XidRecord, ...]]) -> dict[str, tuple[XidRecord, ...]]:
    """What GPUs said lately enough to explain what comes; of too many, those that said something last."""
    moments = {slot: codes[-1].at for slot, codes in said.items()}
    now = max(moments.values())
    slots = sorted(moments, key=moments.__getitem__)[-_GPUS:]
    return {slot: said[slot] for slot in slots if now - moments[slot] <= 2 * WINDOW}


def _recent(said: Sequence[XidRecord]) -> tuple[XidRecord, ...]:
    """Return the latest Xid of each kind, so that a storm of one code does not push out another code."""
    latest = max(one.at for one in said)
    kinds: dict[tuple[int, int, bool], XidRecord] = {}
    for one in said:
        if latest - one.at <= 2 * WINDOW:
            kind = (one.code, one.recovery, one.has_message)
            kinds.pop(kind, None)
            kinds[kind] = one
    return tuple(kinds.values())[-_KEPT:]


class _Decoder:
    """Decodes the events of one round, observation by observation.

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
        self.link_errors = link_errors

    def decoded(self, observation: Observation) -> Observation:
        """Return the observation with its events decoded."""
        events = [one for event in observation.events for one in self._event(observation.target, event)]
        return replace(observation, events=tuple(events))

    def _event(self, slot: str, event: Event) -> Iterator[Event]:
        if event.signal == _XID:
            held = xid.decode_xid(event, self._catalogue, self._driver, self._near[slot])
            yield self.link_errors.add(slot, held)
            if held.signal == "gpu.xid.recovery" and held.fields["verdict"] == "ignored":
                yield Event("gpu.recovery_none", event.at)
        elif event.signal == _SXID:
            yield sxid.decode_sxid(event, self._catalogue)
            over = sxid.decode_alarm_end(event, self._catalogue)
            if over is not None:
                yield over
        elif event.signal == machine_check.LINE:
            yield machine_check.decode_machine_check(event)
        else:
            yield event


def _again(
    state: DeriveState,
    slot: str,
    new: Sequence[XidLine],
    catalogue: Catalogue,
    driver: int | None,
    near: XidIndex,
) -> Iterator[Observation]:
    """Earlier lines of the slot that read differently now, as events that count nothing."""
    first = min(line.event.at for line in new)
    earlier = index_xids(state.xids.get(slot, ()), catalogue)
    for line in state.lines.get(slot, ()):
        if first - line.event.at > WINDOW:
            continue
        before = xid.decode_xid(line.event, catalogue, driver, earlier)
        now = xid.decode_xid(line.event, catalogue, driver, near)
        if now != before:
            yield Observation(line.source, slot, events=(replace(now, count=0),))
