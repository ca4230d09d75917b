"""Xid and SXid lines, decoded as they come and in the light of what follows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodeguard.derive import sxid, xid
from nodeguard.derive.state import DeriveState, Line
from nodeguard.derive.xid_index import WINDOW, Said, XidIndex, indexed
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.observation import Event, Observation, Reading

_XID, _SXID = "gpu.xid.line", "nvswitch.sxid.line"

# Lines of one GPU that are kept to be read again; a storm of application errors must not grow memory.
_KEPT = 32

# Letters of a line that are kept: a line that the driver printed is shorter. GPUs of which lines are kept: a
# log can name any.
_TEXT = 1000
_GPUS = 64


def decoded(
    state: DeriveState, readings: Sequence[Reading], catalogue: Catalogue, driver: int | None
) -> tuple[DeriveState, list[Reading]]:
    """Readings with their lines decoded. driver: the driver's branch, None where unknown.

    A line that is read differently in the light of a later one (48 with 63, an NVLink error with 154) is told
    of again.
    """
    fresh: dict[str, list[Line]] = {}
    for reading in readings:
        for observation in reading.observations:
            lines = [Line(reading.source, event) for event in observation.events if event.signal == _XID]
            if lines:
                fresh.setdefault(observation.slot, []).extend(lines)
    said = {
        slot: (*state.said.get(slot, ()), *(xid.said(line.event) for line in new))
        for slot, new in fresh.items()
    }
    near = {slot: indexed(xids, catalogue) for slot, xids in said.items()}
    result = []
    told: set[str] = set()
    for reading in readings:
        rows: list[Observation] = []
        for one in reading.observations:
            if one.slot not in told and any(event.signal == _XID for event in one.events):
                told.add(one.slot)
                rows += _again(state, one.slot, fresh[one.slot], catalogue, driver, near[one.slot])
            rows.append(_decoded(one, catalogue, driver, near) if one.events else one)
        result.append(replace(reading, observations=tuple(rows)))
    if not fresh:
        return state, result
    kept = {
        slot: tuple(map(_short, (*state.lines.get(slot, ()), *new)[-_KEPT:])) for slot, new in fresh.items()
    }
    recent = {slot: _recent(codes) for slot, codes in said.items()}
    latest = _latest({**state.said, **recent})
    near_in_time = {slot: row for slot, row in {**state.lines, **kept}.items() if slot in latest}
    return replace(state, said=latest, lines=near_in_time), result


def _short(line: Line) -> Line:
    event = line.event
    if len(event.text) <= _TEXT and len(str(event.fields.get("rest", ""))) <= _TEXT:
        return line
    fields = {**event.fields, "rest": str(event.fields.get("rest", ""))[:_TEXT]}
    return Line(line.source, replace(event, text=event.text[:_TEXT], fields=fields))


def _latest(said: Mapping[str, tuple[Said, ...]]) -> dict[str, tuple[Said, ...]]:
    """What GPUs said lately enough to explain what comes; of too many, those that said something last."""
    moments = {slot: codes[-1].at for slot, codes in said.items()}
    now = max(moments.values())
    slots = sorted(moments, key=moments.__getitem__)[-_GPUS:]
    return {slot: said[slot] for slot in slots if now - moments[slot] <= 2 * WINDOW}


def _recent(said: Sequence[Said]) -> tuple[Said, ...]:
    """Return the latest Xid of each kind, so that a storm of one code does not push out another code."""
    latest = max(one.at for one in said)
    kinds: dict[tuple[int, int, bool], Said] = {}
    for one in said:
        if latest - one.at <= 2 * WINDOW:
            kind = (one.code, one.recovery, one.worded)
            kinds.pop(kind, None)
            kinds[kind] = one
    return tuple(kinds.values())[-_KEPT:]


def _decoded(
    observation: Observation,
    catalogue: Catalogue,
    driver: int | None,
    near: Mapping[str, XidIndex],
) -> Observation:
    events: list[Event] = []
    for event in observation.events:
        if event.signal == _XID:
            held = xid.held(event, catalogue, driver, near[observation.slot])
            events.append(held)
            if held.signal == "gpu.xid.recovery" and held.fields["verdict"] == "ignored":
                events.append(Event("gpu.recovery_none", event.at))
        elif event.signal == _SXID:
            events.append(sxid.held(event, catalogue))
            if event.fields["sxid"] == sxid.THERMAL_END:
                events.append(Event("nvswitch.cool", event.at))
        else:
            events.append(event)
    return replace(observation, events=tuple(events)) if events else observation


def _again(
    state: DeriveState,
    slot: str,
    new: Sequence[Line],
    catalogue: Catalogue,
    driver: int | None,
    near: XidIndex,
) -> Iterator[Observation]:
    """Earlier lines of the slot that read differently now, as events that count nothing."""
    first = min(line.event.at for line in new)
    earlier = indexed(state.said.get(slot, ()), catalogue)
    for line in state.lines.get(slot, ()):
        if first - line.event.at > WINDOW:
            continue
        before = xid.held(line.event, catalogue, driver, earlier)
        now = xid.held(line.event, catalogue, driver, near)
        if now != before:
            yield Observation(line.source, slot, events=(replace(now, count=0),))
