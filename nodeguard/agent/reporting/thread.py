"""The thread of one sender: each has its own, so that none waits for another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

from nodeguard.agent.reporting.http1 import DEADLINE
from nodeguard.agent.reporting.sender import Sender
from nodeguard.model.instant import Instant

# Seconds for what is left to be sent at the end, and for what was under way before it: a node that goes down
# waits for nobody.
LAST = 1.0
_UNDER_WAY = 0.5

# Seconds after an error that nobody thought of.
_PAUSE = 10.0


class SenderThread:
    """Sends to one receiver until it is ended, then what is left, and a last report.

    wake: to be set where there may be something to send at once. now: gives the moment. lost: is called, in
    the thread, when a receiver does not hear any more.
    """

    def __init__(
        self, sender: Sender, now: Callable[[], Instant], lost: Callable[[], object] = lambda: None
    ) -> None:
        self.wake = threading.Event()
        self.sender = sender
        self._now = now
        self._lost = lost
        self._end: float | None = None
        self._leaves = True
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._thread.start()

    @property
    def hears(self) -> bool:
        """Whether the receiver heard what it was told last."""
        return self.sender.line.failures == 0 and self.sender.line.heard > -inf

    def drop(self) -> None:
        """Let it end at once and without a word: its receiver is gone, the agent is not."""
        self._leaves = False
        now = time.monotonic()
        self.sender.transport.hurry(now)
        self._end = now
        self.wake.set()

    def end(self) -> None:
        """Let it end within LAST seconds; at once where the receiver does not hear."""
        began = time.monotonic()
        hears = self.sender.line.failures == 0
        # First, because the thread itself says by when it must be done, once it knows of its end.
        self.sender.transport.hurry(began + _UNDER_WAY if hears else began)
        self._end = began + LAST
        self.wake.set()

    def join(self, until: float) -> None:
        """Wait for its end, until a moment of time.monotonic: a name service may keep it longer."""
        self._thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while self._end is None:
            self.wake.clear()
            heard = self.sender.line.failures == 0
            wait = self._turn(DEADLINE)
            if heard and self.sender.line.failures:
                self._lost()
            if self._end is None:
                self.wake.wait(wait)
        self.sender.transport.hurry(self._end)
        while (left := self._end - time.monotonic()) > 0 and self._turn(left) <= 0.0:
            pass
        if self._leaves:
            self._safely(lambda: self.sender.leave(self._now, LAST))
        self.sender.transport.close()

    def _turn(self, within: float) -> float:
        return self._safely(lambda: self.sender.turn(self._now, within))

    def _safely(self, work: Callable[[], float | None]) -> float:
        """What work gives. Whatever goes wrong, the thread goes on, for the next message may get through."""
        try:
            return work() or 0.0
        except Exception as error:  # noqa: BLE001 - a thread that ends tells nobody
            with suppress(Exception):
                self.sender.stumbled(error)
            return _PAUSE
