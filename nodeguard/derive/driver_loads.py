"""Start of a driver load, the time at which the sign that the driver was loaded takes effect. Pure.

The driver probes its NVSwitches and GPUs before it logs `loading`, so the failures of a load precede that
line by up to seconds. A sign with the time of the line would clear them. The line of the start may be lost:
then the load begins with the line that the driver was unloaded, or before the failures that only probes have.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from nodeguard.model.observation import Event, Reading

_BEGUN, _LOADED, _UNLOADED = "driver.load_begun", "driver.load", "driver.unload"
# Failures that the driver logs only while it probes: the count of the GPUs that failed, and an NVSwitch.
_PROBE_FAILED = frozenset({"driver.probe_failed", "nvswitch.init_failed"})

# Seconds that the probes of a load take at most, where the line of its start is lost: 0.1 to 2 in public logs
# of machines with one to eight GPUs.
_PROBES = 10.0

# Seconds that a load takes at most; a line of its start that is older belongs to another load.
_LONGEST_LOAD = 600.0


def date_loads(begun_at: float | None, readings: Sequence[Reading]) -> tuple[float | None, list[Reading]]:
    """Return the start of the load that is under way, and the readings with each load dated at its start.

    begun_at: the start from earlier rounds, or the end of the load before, in seconds since boot; None where
    neither is known.
    """
    result: list[Reading] = []
    for reading in readings:
        observations = []
        for observation in reading.observations:
            begun_at, events = _dated(begun_at, observation.events)
            observations.append(replace(observation, events=events) if events else observation)
        result.append(replace(reading, observations=tuple(observations)))
    return begun_at, result


def _dated(begun_at: float | None, events: Sequence[Event]) -> tuple[float | None, tuple[Event, ...]]:
    result: list[Event] = []
    for event in events:
        dated = event
        if event.signal == _BEGUN:
            begun_at = event.at
        elif event.signal in _PROBE_FAILED:
            begun_at = _start(begun_at, event.at, event.at - _PROBES)
        elif event.signal == _UNLOADED:
            # Earlier failures belong to the driver that is gone.
            begun_at = event.at
        elif event.signal == _LOADED:
            dated = replace(event, at=_start(begun_at, event.at, event.at))
            begun_at = None
        result.append(dated)
    return begun_at, tuple(result)


def _start(begun_at: float | None, now: float, otherwise: float) -> float:
    """Return the start of the load of a line at `now`; `otherwise` where the log does not have it."""
    return begun_at if begun_at is not None and 0 <= now - begun_at <= _LONGEST_LOAD else otherwise
