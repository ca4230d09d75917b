"""Deduplication of Xids that NVML and the kernel log both report: each counts as one event. Pure.

The kernel log is the better source: it has the driver's message, and events from before NVML's event set was
registered. Where the log is readable, an Xid of NVML waits for its log line, and counts only if none follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.observation import Event, Observation, Reading

_XID, _LOG, _NVML = "gpu.xid.line", "kmsg", "nvml"

# Seconds between the log line and the event of one Xid, at most. Both are usually read within milliseconds,
# but a flood of lines takes longer. Times are those of reading, because the log's clock drifts.
GRACE = 10.0

# Events of one GPU, so that a storm does not grow memory.
_MAX_PENDING = 32


class DedupState(Struct, frozen=True, array_like=True):
    """State of the deduplication.

    logged_codes: by target, codes from the log and when they were read, in seconds since boot.
    pending_events: by target, events of NVML that wait for their log line.
    """

    logged_codes: dict[str, tuple[tuple[int, float], ...]] = {}
    pending_events: dict[str, tuple[Event, ...]] = {}


def deduplicate_xids(
    state: DedupState, readings: Sequence[Reading], latest: Mapping[str, Reading], now: float
) -> tuple[DedupState, list[Reading]]:
    """Return the readings without Xids of NVML that the kernel log reports or may still report.

    latest: each source's latest reading, including these. now: seconds since boot. An event that has waited
    for GRACE seconds is in the next reading of NVML.
    """
    log = latest.get(_LOG)
    is_log_readable = log is not None and log.complete
    logged = _logged_codes(state.logged_codes, readings, now)
    pending = dict(state.pending_events)
    for target, event in _xids(readings, _NVML):
        pending[target] = (*pending.get(target, ()), event)[-_MAX_PENDING:]
    pending = {
        target: tuple(event for event in events if not _is_logged(event, logged.get(target, ())))
        for target, events in pending.items()
    }
    due = {
        target: tuple(event for event in events if not is_log_readable or event.at <= now - GRACE)
        for target, events in pending.items()
    }
    result: list[Reading] = []
    for reading in readings:
        if reading.source == _NVML:
            result.append(_with_due_events(reading, due))
            pending = {
                target: tuple(event for event in events if event not in due.get(target, ()))
                for target, events in pending.items()
            }
            due = {}
        else:
            result.append(reading)
    return DedupState(logged, {target: events for target, events in pending.items() if events}), result


def _logged_codes(
    before: Mapping[str, tuple[tuple[int, float], ...]], readings: Iterable[Reading], now: float
) -> dict[str, tuple[tuple[int, float], ...]]:
    after = {target: {code: at for code, at in codes if at > now - GRACE} for target, codes in before.items()}
    for target, event in _xids(readings, _LOG):
        after.setdefault(target, {})[int(event.fields["xid"])] = now
    return {target: tuple(codes.items()) for target, codes in after.items() if codes}


def _is_logged(event: Event, logged: Iterable[tuple[int, float]]) -> bool:
    return any(code == event.fields["xid"] for code, _ in logged)


def _xids(readings: Iterable[Reading], source: str) -> Iterator[tuple[str, Event]]:
    """Yield the Xids of a source with their target."""
    for reading in readings:
        if reading.source == source:
            for observation in reading.observations:
                for event in observation.events:
                    if event.signal == _XID:
                        yield observation.target, event


def _with_due_events(reading: Reading, due: Mapping[str, tuple[Event, ...]]) -> Reading:
    """Return a reading of NVML with the Xids that are due, and without its other Xids."""
    observations = tuple(
        replace(observation, events=tuple(event for event in observation.events if event.signal != _XID))
        if observation.events
        else observation
        for observation in reading.observations
    )
    added = tuple(Observation(_NVML, target, events=events) for target, events in due.items() if events)
    if observations == reading.observations and not added:
        return reading
    return replace(reading, observations=(*filter(_has_content, observations), *added))


def _has_content(observation: Observation) -> bool:
    """Return whether an observation has anything besides the Xids that were taken from it."""
    return observation != Observation(_NVML, observation.target)
