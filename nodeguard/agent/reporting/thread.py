"""The senders' threads: one for each receiver, so that none waits for another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from nodeguard.agent.reporting.mailbox import Mailbox
from nodeguard.agent.reporting.sender import Sender
from nodeguard.agent.reporting.transport import DEADLINE, Transport
from nodeguard.model.instant import Instant

# Seconds for what is left to be sent at the end, and for what was under way before it: a node that goes down
# waits for nobody.
LAST = 1.0
_UNDER_WAY = 0.5

# Seconds after an error that nobody thought of.
_PAUSE = 10.0


class SenderThread:
    """Sends to one receiver until it is ended, then what is left, and a last report.

    wake: to be set where there may be something to send at once. now: gives the moment.
    """

    def __init__(self, sender: Sender, now: Callable[[], Instant]) -> None:
        self.wake = threading.Event()
        self._sender = sender
        self._now = now
        self._end: float | None = None
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Let it end within LAST seconds; at once where the receiver does not hear."""
        began = time.monotonic()
        hears = self._sender.line.failures == 0
        # First, because the thread itself says by when it must be done, once it knows of its end.
        self._sender.transport.hurry(began + _UNDER_WAY if hears else began)
        self._end = began + LAST
        self.wake.set()

    def join(self, until: float) -> None:
        """Wait for its end, until a moment of time.monotonic: a name service may keep it longer."""
        self._thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while self._end is None:
            self.wake.clear()
            wait = self._turn(DEADLINE)
            if self._end is None:
                self.wake.wait(wait)
        self._sender.transport.hurry(self._end)
        while (left := self._end - time.monotonic()) > 0 and self._turn(left) <= 0.0:
            pass
        self._safely(lambda: self._sender.leave(self._now, LAST))
        self._sender.transport.close()

    def _turn(self, within: float) -> float:
        return self._safely(lambda: self._sender.turn(self._now, within))

    def _safely(self, work: Callable[[], float | None]) -> float:
        """What work gives. Whatever goes wrong, the thread goes on, for the next message may get through."""
        try:
            return work() or 0.0
        except Exception as error:  # noqa: BLE001 - a thread that ends tells nobody
            with suppress(Exception):
                self._sender.stumbled(error)
            return _PAUSE


class Senders:
    """Everybody who is told. See Sender."""

    def __init__(
        self,
        transports: Sequence[Transport],
        mailbox: Mailbox,
        jitter: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self._senders = [Sender(transport, mailbox, jitter, tell) for transport in transports]
        self._threads: list[SenderThread] = []
        mailbox.wake = self._wake

    def heard(self) -> dict[str, float]:
        """When each receiver last heard of this node, in seconds since boot, by its name; -inf for never."""
        return {one.transport.name: one.line.heard for one in self._senders}

    def begin(self, now: Callable[[], Instant]) -> None:
        """Begin to send. now: gives the moment."""
        self._threads = [SenderThread(one, now) for one in self._senders]

    def end(self, within: float) -> None:
        """Send what is left, and wait for that, so many seconds at most."""
        until = time.monotonic() + within
        for one in self._threads:
            one.end()
        for one in self._threads:
            one.join(until)

    def _wake(self) -> None:
        for one in self._threads:
            one.wake.set()
