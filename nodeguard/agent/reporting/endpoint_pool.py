"""Everybody behind one name, each with a sender of its own, followed as they come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf

from msgspec import Struct

from nodeguard.agent.reporting.endpoint import Place, unnamed, wanted
from nodeguard.agent.reporting.http1 import Transport
from nodeguard.agent.reporting.sender import Sender
from nodeguard.agent.reporting.thread import SenderThread
from nodeguard.model.instant import Instant

# Seconds between two questions to the name service: while all who are known hear, and only a replica more
# would be news; while one does not; and at least, however many are lost at once. A whole fleet asks it, each
# time for several names as a pod's search list has it.
AT_EASE = 30.0
IN_TROUBLE = 10.0
AT_LEAST = 1.0


class Name(Struct, frozen=True):
    """A name that may stand for several receivers.

    name: what logs call it. asked: gives the places behind it; may take long. way: to the one at a place.
    """

    name: str
    asked: Callable[[], Sequence[Place]]
    way: Callable[[Place], Transport]


class Replicas:
    """Sends to everybody behind a name.

    sender: makes one for a way. jitter: gives a number from 0 to 1. tell: is given what went wrong, a
    sentence each, once until it is over. The name service is asked in a thread of its own, since whoever asks
    it cannot be hurried; who is known is told meanwhile.
    """

    def __init__(
        self,
        name: Name,
        sender: Callable[[Transport], Sender],
        jitter: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self._name = name
        self._sender = sender
        self._jitter = jitter
        self._tell = tell
        self._said = ""
        self._ask = threading.Event()
        self._over = False
        # Held while threads begin, so that none does after the end. The dictionary is replaced and never
        # changed: other threads look through it.
        self._lock = threading.Lock()
        self._threads: dict[Place, SenderThread] = {}

    @property
    def threads(self) -> Sequence[SenderThread]:
        """Who sends now."""
        return tuple(self._threads.values())

    def heard(self) -> dict[str, float]:
        """When each receiver last heard of this node, in seconds since boot, by its name; -inf for never.

        While nobody is found the name itself stands for all of them.
        """
        by_name = {one.sender.transport.name: one.sender.line.heard for one in self.threads}
        return by_name or {self._name.name: -inf}

    def begin(self, now: Callable[[], Instant]) -> None:
        """Begin to ask and to send. now: gives the moment."""
        threading.Thread(target=self._follow, args=(now,), name="names", daemon=True).start()

    def end(self) -> None:
        """Find nobody new, and let every sender end."""
        with self._lock:
            self._over = True
        self._ask.set()
        for one in self.threads:
            one.end()

    def _follow(self, now: Callable[[], Instant]) -> None:
        failures = 0
        while not self._over:
            self._ask.clear()
            failures = 0 if self._look(now) else failures + 1
            self._rest(failures)

    def _look(self, now: Callable[[], Instant]) -> bool:
        """Ask the name service, and see to who is there. Returns whether anybody is named."""
        try:
            named = self._name.asked()
            self._adopt(named, now)
        except (OSError, ValueError) as error:
            self._say(unnamed(error))
        except Exception as error:  # noqa: BLE001 - a thread that ends follows nobody
            self._say(f"error in the agent itself, please report it: {type(error).__name__}: {error}")
        else:
            self._said = ""
            return bool(named)
        return False

    def _say(self, what: str) -> None:
        if what != self._said:
            self._said = what
            with suppress(Exception):
                self._tell(f"{self._name.name}: {what}")

    def _adopt(self, named: Sequence[Place], now: Callable[[], Instant]) -> None:
        had = self._threads
        keep = wanted(named, {place: one.hears for place, one in had.items()})
        with self._lock:
            if self._over or keep == tuple(had):
                return
            self._threads = {place: had.get(place) or self._sending(place, now) for place in keep}
        # What was offered while they began woke nobody.
        for place in set(keep) - had.keys():
            self._threads[place].wake.set()
        for place in had.keys() - set(keep):
            had[place].drop()

    def _sending(self, place: Place, now: Callable[[], Instant]) -> SenderThread:
        return SenderThread(self._sender(self._name.way(place)), now, self._ask.set)

    def _rest(self, failures: int) -> None:
        """Wait until the name service is to be asked again. failures: in a row, of asking it."""
        began = time.monotonic()
        at_ease = not failures and all(one.hears for one in self.threads)
        most = AT_EASE if at_ease else IN_TROUBLE
        if not self._threads:
            most = min(most, AT_LEAST * 2.0 ** min(failures, 10))
        if not self._over:
            self._ask.wait(most * (0.75 + 0.25 * self._jitter()))
        while not self._over and (left := began + AT_LEAST - time.monotonic()) > 0:
            time.sleep(left)
