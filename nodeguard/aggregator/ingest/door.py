"""Who is in: connections counted, strangers few, and those that take too long sent away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from nodeguard.aggregator.ingest.limits import Limits


class Guest:
    """One connection. address: whence. leave: ends it. by: the moment at which it is ended if nothing comes
    of it, of the loop's clock. known: whether its caller has shown who it is.
    """

    __slots__ = ("address", "by", "known", "leave")

    def __init__(self, address: str, by: float) -> None:
        self.address, self.by, self.known = address, by, False
        self.leave: Callable[[], object] = lambda: None


class Door:
    """Lets connections in, up to limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._guests: dict[Guest, None] = {}
        self._strangers: dict[Guest, None] = {}
        self._of_one: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._guests)

    def enter(self, address: str, now: float) -> Guest | None:
        """A new connection; None where there is no room for it."""
        full = len(self._guests) >= self._limits.connections
        if full and not self._strangers:
            return None
        if self._of_one[address] >= self._limits.strangers_of_one:
            return None
        if full or len(self._strangers) >= self._limits.strangers:
            oldest = next(iter(self._strangers))
            self.left(oldest)
            oldest.leave()
        guest = Guest(address, now + self._limits.head)
        self._guests[guest] = self._strangers[guest] = None
        self._of_one[address] += 1
        return guest

    def recognise(self, guest: Guest) -> None:
        """A connection's caller has shown who it is."""
        guest.known = True
        self._forget(guest)

    def left(self, guest: Guest) -> None:
        """A connection is over."""
        self._guests.pop(guest, None)
        self._forget(guest)

    def sweep(self, now: float) -> int:
        """End what took too long. Returns how many."""
        overdue = [guest for guest in self._guests if guest.by <= now]
        for guest in overdue:
            self.left(guest)
            guest.leave()
        return len(overdue)

    def end(self) -> None:
        """End all."""
        for guest in list(self._guests):
            self.left(guest)
            guest.leave()

    def _forget(self, guest: Guest) -> None:
        if guest in self._strangers:
            del self._strangers[guest]
            self._of_one[guest.address] -= 1
            if self._of_one[guest.address] <= 0:
                del self._of_one[guest.address]
