"""Xids of which NVML and the kernel log both tell: each is one event. Pure.

The kernel log is the better witness: it has the words, and what NVML told before somebody listened. Where it
can be read, an Xid that NVML tells of waits for its line, and counts only if none has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.observation import Event, Observation, Reading

_XID, _LOG, _NVML = "gpu.xid.line", "kmsg", "nvml"

# Seconds that a line has to come in after its event, or before it: as a rule both are read within
# milliseconds, but a flood takes its time. By when they are read, because the log's clock drifts.
GRACE = 10.0

# Of one GPU; a storm must not grow memory.
_KEPT = 32


class DedupState(Struct, frozen=True, array_like=True):
    """What is known of the two witnesses.

    heard: by slot, codes that the log told of and when they were read (seconds since boot). held: by slot,
    events of NVML that wait for their line.
    """

    logged_codes: dict[str, tuple[tuple[int, float], ...]] = {}
    pending_events: dict[str, tuple[Event, ...]] = {}


def deduplicate_xids(
    waiting: DedupState, readings: Sequence[Reading], latest: Mapping[str, Reading], now: float
) -> tuple[DedupState, list[Reading]]:
    """Readings in which NVML tells of no Xid that the kernel log tells of, or may tell of in a moment.

    latest: of each source its latest reading, these among them. now: seconds since boot. What has waited long
    enough is told in the next reading of NVML.
    """
    log = latest.get(_LOG)
    readable = log is not None and log.complete
    heard, held = _heard(waiting.logged_codes, readings, now), dict(waiting.pending_events)
    for slot, event in _xids(readings, _NVML):
        held[slot] = (*held.get(slot, ()), event)[-_KEPT:]
    held = {
        slot: tuple(one for one in events if not _told(one, heard.get(slot, ())))
        for slot, events in held.items()
    }
    due = {
        slot: tuple(one for one in events if not readable or one.at <= now - GRACE)
        for slot, events in held.items()
    }
    result: list[Reading] = []
    for reading in readings:
        if reading.source == _NVML:
            result.append(_without(reading, due))
            held = {
                slot: tuple(one for one in events if one not in due.get(slot, ()))
                for slot, events in held.items()
            }
            due = {}
        else:
            result.append(reading)
    return DedupState(heard, {slot: events for slot, events in held.items() if events}), result


def _heard(
    before: Mapping[str, tuple[tuple[int, float], ...]], readings: Iterable[Reading], now: float
) -> dict[str, tuple[tuple[int, float], ...]]:
    after = {slot: {code: at for code, at in codes if at > now - GRACE} for slot, codes in before.items()}
    for slot, event in _xids(readings, _LOG):
        after.setdefault(slot, {})[int(event.fields["xid"])] = now
    return {slot: tuple(codes.items()) for slot, codes in after.items() if codes}


def _told(event: Event, heard: Iterable[tuple[int, float]]) -> bool:
    return any(code == event.fields["xid"] for code, _ in heard)


def _xids(readings: Iterable[Reading], source: str) -> Iterator[tuple[str, Event]]:
    for reading in readings:
        if reading.source == source:
            for observation in reading.observations:
                for event in observation.events:
                    if event.signal == _XID:
                        yield observation.target, event


def _without(reading: Reading, due: Mapping[str, tuple[Event, ...]]) -> Reading:
    """A reading of NVML with those of its Xids, and of those before, whose time has come."""
    own = tuple(
        replace(one, events=tuple(event for event in one.events if event.signal != _XID))
        if one.events
        else one
        for one in reading.observations
    )
    more = tuple(Observation(_NVML, slot, events=events) for slot, events in due.items() if events)
    same = own == reading.observations and not more
    return reading if same else replace(reading, observations=(*filter(_says, own), *more))


def _says(observation: Observation) -> bool:
    """Whether something is left of an observation that may have been of an event alone."""
    return observation != Observation(_NVML, observation.target)
