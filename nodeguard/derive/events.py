"""Xid and SXid lines, decoded as they come and in the light of what follows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from nodeguard.derive import sxid, xid
from nodeguard.derive.state import DeriveState
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
    fresh: dict[str, list[Event]] = {}
    for reading in readings:
        for observation in reading.observations:
            lines = [event for event in observation.events if event.signal == _XID]
            if lines:
                fresh.setdefault(observation.slot, []).extend(lines)
    said = {**state.said, **{slot: _said(state.said.get(slot, ()), new) for slot, new in fresh.items()}}
    result = [
        replace(
            reading,
            observations=tuple(_decoded(one, catalogue, driver, said) for one in reading.observations),
        )
        if any(one.events for one in reading.observations)
        else reading
        for reading in readings
    ]
    again = {
        slot: told
        for slot, new in fresh.items()
        if (told := _again(state, slot, new, catalogue, driver, said[slot]))
    }
    if again:
        rows = (Observation(result[0].source, slot, events=events) for slot, events in again.items())
        result[0] = replace(result[0], observations=(*result[0].observations, *rows))
    kept = {slot: (*state.lines.get(slot, ()), *new)[-_KEPT:] for slot, new in fresh.items()}
    return replace(state, said=said, lines={**state.lines, **kept}), result


def _said(known: Iterable[xid.Said], new: Iterable[Event]) -> tuple[xid.Said, ...]:
    more = [_one(event) for event in new]
    latest = max(one.at for one in more)
    kept = [one for one in known if latest - one.at <= 2 * xid.WINDOW]
    return (*kept, *more)[-_KEPT:]


def _one(event: Event) -> xid.Said:
    code = int(event.fields["xid"])
    recovery = xid.recovery_in(str(event.fields.get("rest", ""))) if code == 154 else None
    return xid.Said(code, event.at, -1 if recovery is None else recovery)


def _decoded(
    observation: Observation,
    catalogue: Catalogue,
    driver: int | None,
    said: dict[str, tuple[xid.Said, ...]],
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
    new: Sequence[Event],
    catalogue: Catalogue,
    driver: int | None,
    said: Sequence[xid.Said],
) -> tuple[Event, ...]:
    """Earlier lines of the slot that read differently now, as events that count nothing."""
    told = []
    first = min(event.at for event in new)
    for line in state.lines.get(slot, ()):
        if first - line.at > xid.WINDOW:
            continue
        before = xid.held(line, catalogue, driver, state.said.get(slot, ()))
        now = xid.held(line, catalogue, driver, said)
        if now != before:
            told.append(replace(now, count=0))
    return tuple(told)
