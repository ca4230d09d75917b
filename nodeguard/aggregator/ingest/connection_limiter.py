"""Who is in: connections counted, strangers few, and those that take too long sent away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from nodeguard.aggregator.ingest.limits import IngestLimits

NO_ROOM = "as many connections are open as this aggregator accepts: see nodeguard status, or wait"
OF_ONE_ADDRESS = (
    "too many connections of this address have not shown yet who they are: see what connects from there"
)


class ConnectionSlot:
    """One connection. address: whence. leave: ends it. by: the moment at which it is ended if nothing comes
    of it, of the loop's clock. known: whether its caller has shown who it is. caller: who that is, the same
    on each of its connections. is_idle: whether no request is under way.
    """

    __slots__ = ("address", "deadline", "caller", "is_idle", "is_authenticated", "leave")

    def __init__(self, address: str, by: float) -> None:
        self.address, self.deadline, self.is_authenticated = address, by, False
        self.caller, self.is_idle = "", False
        self.close: Callable[[], object] = lambda: None


class ConnectionLimiter:
    """Lets connections in, up to limits."""

    def __init__(self, limits: IngestLimits) -> None:
        self._limits = limits
        self._guests: dict[ConnectionSlot, None] = {}
        self._strangers: dict[ConnectionSlot, None] = {}
        self._of_one: Counter[str] = Counter()
        self._of_caller: dict[str, dict[ConnectionSlot, None]] = {}

    def __len__(self) -> int:
        return len(self._guests)

    def admit(self, address: str, now: float) -> ConnectionSlot | str:
        """Return a new connection, or why there is no room for it."""
        full = len(self._guests) >= self._limits.connections
        if full and not self._strangers:
            return NO_ROOM
        if self._of_one[address] >= self._limits.unauthenticated_per_address:
            return OF_ONE_ADDRESS
        if full or len(self._strangers) >= self._limits.unauthenticated:
            oldest = next(iter(self._strangers))
            self.remove(oldest)
            oldest.close()
        guest = ConnectionSlot(address, now + self._limits.header_timeout)
        self._guests[guest] = self._strangers[guest] = None
        self._of_one[address] += 1
        return guest

    def authenticated(self, guest: ConnectionSlot, caller: str) -> bool:
        """Note the caller of a connection, empty for a caller without a limit. Returns whether the caller may
        have one more connection: to make room, the one that was idle for longest is closed.
        """
        others = self._of_caller.setdefault(caller, {}) if caller else {}
        if len(others) >= self._limits.connections_per_node:
            idle = [one for one in others if one.is_idle]
            if not idle:
                return False
            oldest = min(idle, key=lambda one: one.deadline)
            self.remove(oldest)
            oldest.close()
        guest.is_authenticated = True
        self._forget(guest)
        if caller:
            guest.caller = caller
            self._of_caller.setdefault(caller, {})[guest] = None
        return True

    def remove(self, guest: ConnectionSlot) -> None:
        """A connection is over."""
        self._guests.pop(guest, None)
        self._forget(guest)
        of_caller = self._of_caller.get(guest.caller, {})
        of_caller.pop(guest, None)
        if not of_caller:
            self._of_caller.pop(guest.caller, None)

    def close_overdue(self, now: float) -> int:
        """End what took too long. Returns how many."""
        overdue = [guest for guest in self._guests if guest.deadline <= now]
        for guest in overdue:
            self.remove(guest)
            guest.close()
        return len(overdue)

    def close_all(self) -> None:
        """End all."""
        for guest in list(self._guests):
            self.remove(guest)
            guest.close()

    def _forget(self, guest: ConnectionSlot) -> None:
        if guest in self._strangers:
            del self._strangers[guest]
            self._of_one[guest.address] -= 1
            if self._of_one[guest.address] <= 0:
                del self._of_one[guest.address]
