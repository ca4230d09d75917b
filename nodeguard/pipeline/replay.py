"""The evaluation of a recording from its start to its end, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nodeguard.bundle.recording import Recording
from nodeguard.model.finding import Verdict
from nodeguard.model.observation import Reading
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.reader import read_source
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.source import Source

# Seconds that a replay continues after the last frame.
_AFTER_LAST_FRAME = 30.0


class ReplayStep(NamedTuple):
    """One step of a replay: its second, the readings, and the verdict after them."""

    at: float
    readings: list[Reading]
    verdict: Verdict


def replay_verdicts(
    recording: Recording, sources: Sequence[Source], pipeline: Pipeline
) -> Iterator[tuple[float, Verdict]]:
    """Yield the second and the verdict of each step; the last verdict is that of the recording."""
    return ((step.at, step.verdict) for step in replay_steps(recording, sources, pipeline))


def replay_steps(recording: Recording, sources: Sequence[Source], pipeline: Pipeline) -> Iterator[ReplayStep]:
    """Yield the steps of a recording.

    Every source that was recorded is read at its own interval from second 0, and once more half a minute
    after the last frame, so that this frame is evaluated. A recording without frames is evaluated once: a
    condition that was seen once has no duration. A source that was not recorded does not exist.
    """
    machine = ReplayMachine(recording)
    recorded = [source for source in sources if recording.is_recorded(source.name, source.paths)]
    end = recording.end + _AFTER_LAST_FRAME if recording.end else 0.0
    for at in due_times([source.interval for source in recorded], end):
        machine.seek(at)
        due = [source for source in recorded if at == end or at % source.interval == 0]
        readings = [read_source(source, machine) for source in due]
        yield ReplayStep(at, readings, pipeline.evaluate(readings, machine.now()))


def due_times(intervals: Sequence[float], end: float) -> Iterator[float]:
    """Yield the seconds at which a source is due, from 0 to the end, inclusive."""
    at = 0.0
    while at < end:
        yield at
        at = min([end, *((at // interval + 1) * interval for interval in set(intervals))])
    yield end
