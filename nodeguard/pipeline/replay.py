"""A recording, judged from its beginning to its end in virtual time."""

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

# A replay goes on for so many seconds past the last frame.
_AFTER_LAST_FRAME = 30.0


class ReplayStep(NamedTuple):
    """One round of a replay: its second, what was read, and the verdict after it."""

    at: float
    readings: list[Reading]
    verdict: Verdict


def replay_verdicts(
    recording: Recording, sources: Sequence[Source], judgement: Pipeline
) -> Iterator[tuple[float, Verdict]]:
    """The verdict of each round, with its second; the last one is the recording's. See rounds."""
    return ((one.at, one.verdict) for one in replay_steps(recording, sources, judgement))


def replay_steps(
    recording: Recording, sources: Sequence[Source], judgement: Pipeline
) -> Iterator[ReplayStep]:
    """A recording, round by round.

    Every source that was recorded is read at its own interval from second 0 on, and once more at the end,
    half a minute after the last frame, so that what the last frame says is judged. A recording without frames
    is one look and is judged as such, once: what was seen once has not lasted. A source that was not recorded
    does not exist.
    """
    machine = ReplayMachine(recording)
    present = [source for source in sources if recording.is_recorded(source.name, source.paths)]
    end = recording.end + _AFTER_LAST_FRAME if recording.end else 0.0
    for at in due_times([source.interval for source in present], end):
        machine.seek(at)
        due = [source for source in present if at == end or at % source.interval == 0]
        readings = [read_source(source, machine) for source in due]
        yield ReplayStep(at, readings, judgement.evaluate(readings, machine.now()))


def due_times(intervals: Sequence[float], end: float) -> Iterator[float]:
    """Seconds at which something is due, from 0 to the end, which is one of them."""
    at = 0.0
    while at < end:
        yield at
        at = min([end, *((at // interval + 1) * interval for interval in set(intervals))])
    yield end
