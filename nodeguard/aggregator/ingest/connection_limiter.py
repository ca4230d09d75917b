"""The connection limiter: limits connections, and closes those that exceed their deadline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from nodeguard.aggregator.ingest.limits import IngestLimits

NO_ROOM = "the limit on connections of this aggregator is reached: see nodeguard status, or wait"
OF_ONE_ADDRESS = (
    "too many connections of this address are not authenticated yet: check what connects from there"
)


class ConnectionSlot:
    """One connection. address: of the client. close: ends it. deadline: when it is closed unless something
    happens, by the clock of the event loop. caller: the same for all connections of one caller, empty before
    it is authenticated. is_idle: whether no request is running.
    """

    __slots__ = ("address", "caller", "close", "deadline", "is_authenticated", "is_idle")

    def __init__(self, address: str, deadline: float) -> None:
        self.address, self.deadline, self.is_authenticated = address, deadline, False
        self.caller, self.is_idle = "", False
        self.close: Callable[[], object] = lambda: None


class ConnectionLimiter:
    """The open connections, within limits."""

    def __init__(self, limits: IngestLimits) -> None:
        self._limits = limits
        self._slots: dict[ConnectionSlot, None] = {}
        self._unauthenticated: dict[ConnectionSlot, None] = {}
        self._per_address: Counter[str] = Counter()
        self._per_caller: dict[str, dict[ConnectionSlot, None]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def admit(self, address: str, now: float) -> ConnectionSlot | str:
        """Return a slot for a new connection, or why it is rejected."""
        full = len(self._slots) >= self._limits.connections
        if full and not self._unauthenticated:
            return NO_ROOM
        if self._per_address[address] >= self._limits.unauthenticated_per_address:
            return OF_ONE_ADDRESS
        if full or len(self._unauthenticated) >= self._limits.unauthenticated:
            oldest = next(iter(self._unauthenticated))
            self.remove(oldest)
            oldest.close()
        slot = ConnectionSlot(address, now + self._limits.header_timeout)
        self._slots[slot] = self._unauthenticated[slot] = None
        self._per_address[address] += 1
        return slot

    def authenticated(self, slot: ConnectionSlot, caller: str) -> bool:
        """Set the caller of a connection, empty for a caller without a limit. Returns whether the caller may
        have another connection: if needed, its connection that was idle for longest is closed.
        """
        others = self._per_caller.setdefault(caller, {}) if caller else {}
        if len(others) >= self._limits.connections_per_node:
            idle = [other for other in others if other.is_idle]
            if not idle:
                return False
            oldest = min(idle, key=lambda slot: slot.deadline)
            self.remove(oldest)
            oldest.close()
        slot.is_authenticated = True
        self._forget(slot)
        if caller:
            slot.caller = caller
            self._per_caller.setdefault(caller, {})[slot] = None
        return True

    def remove(self, slot: ConnectionSlot) -> None:
        """Remove a connection that has ended."""
        self._slots.pop(slot, None)
        self._forget(slot)
        slots = self._per_caller.get(slot.caller, {})
        slots.pop(slot, None)
        if not slots:
            self._per_caller.pop(slot.caller, None)

    def close_overdue(self, now: float) -> int:
        """Close the connections after their deadline. Returns their number."""
        overdue = [slot for slot in self._slots if slot.deadline <= now]
        for slot in overdue:
            self.remove(slot)
            slot.close()
        return len(overdue)

    def close_all(self) -> None:
        """Close all connections."""
        for slot in list(self._slots):
            self.remove(slot)
            slot.close()

    def _forget(self, slot: ConnectionSlot) -> None:
        if slot in self._unauthenticated:
            del self._unauthenticated[slot]
            self._per_address[slot.address] -= 1
            if self._per_address[slot.address] <= 0:
                del self._per_address[slot.address]
