"""A recorded machine whose time goes on as a clock does, as fast or faster."""

from __future__ import annotations

import time
from collections.abc import Callable

from nodeguard.bundle.recording import Recording
from nodeguard.model.instant import Instant
from nodeguard.sources.machine import Cursor, Hangs
from nodeguard.sources.replay import ReplayMachine


class PacedMachine(ReplayMachine):
    """The machine of a recording, live: at second `began` when this is made; after the last frame it rests.

    speed: seconds of the recording in one of the clock's. began: second at which it goes on; logged, hung:
    see ReplayMachine.
    """

    def __init__(
        self,
        recording: Recording,
        speed: float = 1.0,
        began: float = 0.0,
        logged: Cursor | None = None,
        hung: Hangs | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(recording, began or None, logged, hung)
        self._clock, self._speed, self._began = clock, speed, clock() - began / speed

    def now(self) -> Instant:
        """See Machine.now; what is read after it is of this moment or a later one."""
        self.seek((self._clock() - self._began) * self._speed)
        return super().now()
