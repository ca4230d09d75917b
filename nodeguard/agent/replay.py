"""A recording, judged from its beginning to its end in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nodeguard.agent.judgement import Judgement
from nodeguard.agent.reading import read
from nodeguard.bundle.recording import Recording
from nodeguard.model.finding import Verdict
from nodeguard.model.observation import Reading
from nodeguard.sources.replay import ReplayMachine
from nodeguard.sources.source import Source

# A replay goes on for so many seconds past the last frame.
_AFTER_LAST_FRAME = 30.0


class Round(NamedTuple):
    """One round of a replay: its second, what was read, and the verdict after it."""

    at: float
    readings: list[Reading]
    verdict: Verdict


def replayed(
    recording: Recording, sources: Sequence[Source], judgement: Judgement
) -> Iterator[tuple[float, Verdict]]:
    """The verdict of each round, with its second; the last one is the recording's. See rounds."""
    return ((one.at, one.verdict) for one in rounds(recording, sources, judgement))


def rounds(recording: Recording, sources: Sequence[Source], judgement: Judgement) -> Iterator[Round]:
    """A recording, round by round.

    Every source that was recorded is read at its own interval from second 0 on, and once more at the end,
    half a minute after the last frame, so that what the last frame says is judged. A recording without frames
    is one look and is judged as such, once: what was seen once has not lasted. A source that was not recorded
    does not exist.
    """
    machine = ReplayMachine(recording)
    present = [source for source in sources if recording.is_recorded(source.name, source.paths)]
    end = recording.end + _AFTER_LAST_FRAME if recording.end else 0.0
    for at in moments([source.interval for source in present], end):
        machine.seek(at)
        due = [source for source in present if at == end or at % source.interval == 0]
        readings = [read(source, machine) for source in due]
        yield Round(at, readings, judgement.judge(readings, machine.now()))


def moments(intervals: Sequence[float], end: float) -> Iterator[float]:
    """Seconds at which something is due, from 0 to the end, which is one of them."""
    at = 0.0
    while at < end:
        yield at
        at = min([end, *((at // interval + 1) * interval for interval in set(intervals))])
    yield end
