"""Xid and SXid lines, decoded as they come and in the light of what follows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodeguard.derive import sxid, xid
from nodeguard.derive.state import DeriveState, Line
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.observation import Event, Observation, Reading

_XID, _SXID = "gpu.xid.line", "nvswitch.sxid.line"

# Lines of one GPU that are kept to be read again; a storm of application errors must not grow memory.
_KEPT = 32


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
    result = []
    told: set[str] = set()
    for reading in readings:
        rows: list[Observation] = []
        for one in reading.observations:
            if any(event.signal == _XID for event in one.events) and one.slot not in told:
                told.add(one.slot)
                rows += _again(state, one.slot, fresh[one.slot], catalogue, driver, said[one.slot])
            rows.append(_decoded(one, catalogue, driver, said) if one.events else one)
        result.append(replace(reading, observations=tuple(rows)))
    kept = {slot: (*state.lines.get(slot, ()), *new)[-_KEPT:] for slot, new in fresh.items()}
    recent = {slot: _recent(codes) for slot, codes in said.items()}
    return replace(state, said={**state.said, **recent}, lines={**state.lines, **kept}), result


def _recent(said: Sequence[xid.Said]) -> tuple[xid.Said, ...]:
    latest = max(one.at for one in said)
    return tuple(one for one in said if latest - one.at <= 2 * xid.WINDOW)[-_KEPT:]


def _decoded(
    observation: Observation,
    catalogue: Catalogue,
    driver: int | None,
    said: Mapping[str, Sequence[xid.Said]],
) -> Observation:
    events: list[Event] = []
    for event in observation.events:
        if event.signal == _XID:
            held = xid.held(event, catalogue, driver, said[observation.slot])
            events.append(held)
            if held.signal == "gpu.xid.recovery" and held.fields["verdict"] == "ignored":
                events.append(Event("gpu.recovery_none", event.at))
        elif event.signal == _SXID:
            events.append(sxid.held(event, catalogue))
        else:
            events.append(event)
    return replace(observation, events=tuple(events)) if events else observation


def _again(
    state: DeriveState,
    slot: str,
    new: Sequence[Line],
    catalogue: Catalogue,
    driver: int | None,
    said: Sequence[xid.Said],
) -> Iterator[Observation]:
    """Earlier lines of the slot that read differently now, as events that count nothing."""
    first = min(line.event.at for line in new)
    for line in state.lines.get(slot, ()):
        if first - line.event.at > xid.WINDOW:
            continue
        before = xid.held(line.event, catalogue, driver, state.said.get(slot, ()))
        now = xid.held(line.event, catalogue, driver, said)
        if now != before:
            yield Observation(line.source, slot, events=(replace(now, count=0),))
