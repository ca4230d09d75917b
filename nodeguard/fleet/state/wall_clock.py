"""The wall clock of the aggregator with its jumps: what a recorded time means. Pure."""

from __future__ import annotations

from collections.abc import Callable

from nodeguard.model.instant import Instant

# Seconds by which the wall clock has to change against the monotonic clock to have jumped.
_JUMP = 1.0

# Seconds by which a recorded time may differ: it has no fractions, and clocks are adjusted.
CLOCK_TOLERANCE = 1.0

# Maximum number of jumps that are remembered.
_JUMPS = 16


# Returns the seconds since a recorded time of the wall clock, see WallClock.age.
RecordedAge = Callable[[float], float]


class WallClock:
    """The offsets of the wall clock from the monotonic clock since the start."""

    def __init__(self) -> None:
        # Since when, in seconds of the monotonic clock, and the offset, in seconds.
        self._offsets: list[tuple[float, float]] = []

    def follow(self, now: Instant) -> float:
        """Follow the clocks. Returns by how many seconds the wall clock has jumped; 0 for no jump."""
        offset = now.wall - now.mono
        jump = offset - self._offsets[-1][1] if self._offsets else 0.0
        if abs(jump) > _JUMP or not self._offsets:
            self._offsets = [*self._offsets[-_JUMPS:], (now.mono, offset)]
        return jump if abs(jump) > _JUMP else 0.0

    def age(self, wall: float, now: Instant) -> float:
        """Return the seconds since a recorded time, of those that it may mean the fewest. For a time of the
        future, as of a clock that is ahead of this one, return the seconds until then.
        """
        times = self.mono_times(wall, now)
        return max(0.0, now.mono - max(times)) if times else abs(now.wall - wall)

    def mono_times(self, wall: float, now: Instant) -> list[float]:
        """Return the times that a recorded wall time may mean, in seconds of the monotonic clock: two if the
        clock was set back over it, none for a time of the future.
        """
        if len(self._offsets) == 1:  # the usual case: the clock has not jumped since the start
            at = wall - self._offsets[0][1]
            return [at] if at <= now.mono + CLOCK_TOLERANCE else []
        starts = [at for at, _ in self._offsets[1:]]
        # Before the first update there are no offsets: nothing to return.
        segments = zip([float("-inf"), *starts], self._offsets, [*starts, now.mono], strict=False)
        return [
            wall - offset
            for start, (_, offset), end in segments
            if start - CLOCK_TOLERANCE <= wall - offset <= end + CLOCK_TOLERANCE
        ]
