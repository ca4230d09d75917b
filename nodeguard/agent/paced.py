"""A recorded machine whose time goes on as a clock does, as fast or faster."""

from __future__ import annotations

import time
from collections.abc import Callable

from nodeguard.bundle.recording import Recording
from nodeguard.model.instant import Instant
from nodeguard.sources.replay import ReplayMachine


class PacedMachine(ReplayMachine):
    """The machine of a recording, live: second 0 is when this was made; after the last frame nothing changes.

    speed: seconds of the recording in one of the clock's.
    """

    def __init__(
        self, recording: Recording, speed: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(recording)
        self._clock, self._speed, self._began = clock, speed, clock()

    def now(self) -> Instant:
        """See Machine.now; what is read after it is of this moment or a later one."""
        self.seek((self._clock() - self._began) * self._speed)
        return super().now()
