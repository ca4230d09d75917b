from __future__ import annotations

from nodeguard.aggregator.ingest.connection_limiter import (
    NO_ROOM,
    OF_ONE_ADDRESS,
    ConnectionLimiter,
    ConnectionSlot,
)
from nodeguard.aggregator.ingest.limits import IngestLimits, cost, retry_after
from nodeguard.local.rate_limiter import Rate
from nodeguard.wire.encoding import MESSAGE_LIMIT

RATE = Rate(10.0, 2.0)


def test_a_bucket_admits_the_largest_message_even_after_a_clock_step_back() -> None:
    assert cost(MESSAGE_LIMIT) <= IngestLimits().connection_rate.burst
    assert RATE.bucket().take(50.0, 1000.0) == 0.0


def test_a_full_spool_passes_at_once() -> None:
    """64 changes of 4 KiB, or few large ones, and the current report."""
    for size, count in ((4096, 65), (MESSAGE_LIMIT // 4, 5)):
        assert cost(size) * count <= min(IngestLimits().connection_rate.burst, IngestLimits().node_rate.burst)


def test_retry_after_has_whole_seconds() -> None:
    assert [retry_after(seconds) for seconds in (0.01, 1.2, 1e9)] == ["1", "2", "3600"]


def admitted(limiter: ConnectionLimiter, address: str, now: float = 0.0) -> ConnectionSlot:
    slot = limiter.admit(address, now)
    assert isinstance(slot, ConnectionSlot)
    return slot


def test_the_unauthenticated_connections_of_one_address_are_limited() -> None:
    limiter = ConnectionLimiter(IngestLimits(unauthenticated=10, unauthenticated_per_address=3))
    slots = [admitted(limiter, "greedy") for _ in range(3)]
    assert limiter.admit("greedy", 0.0) == OF_ONE_ADDRESS
    admitted(limiter, "other")
    assert limiter.authenticated(slots[0], "node-1")
    admitted(limiter, "greedy")
    limiter.remove(slots[0])
    assert len(limiter) == 4


def test_a_full_limiter_rejects_a_connection_with_the_reason() -> None:
    limiter = ConnectionLimiter(IngestLimits(connections=2))
    for number in range(2):
        limiter.authenticated(admitted(limiter, "10.0.0.1"), f"node-{number}")
    assert limiter.admit("10.0.0.2", 0.0) == NO_ROOM


def test_removed_connections_leave_no_state() -> None:
    limiter = ConnectionLimiter(IngestLimits())
    slots = [admitted(limiter, f"10.0.0.{number}", float(number)) for number in range(20)]
    for number, slot in enumerate(slots[::2]):
        limiter.authenticated(slot, f"node-{number % 3}")
    assert limiter.close_overdue(19.5) == 10
    for slot in slots:
        limiter.remove(slot)
        limiter.remove(slot)
    assert not limiter._unauthenticated
    assert not limiter._per_address
    assert not limiter._per_caller
    assert len(limiter) == 0


def test_the_longest_idle_connection_of_a_caller_is_closed_for_a_new_one() -> None:
    limiter, closed = ConnectionLimiter(IngestLimits(connections_per_node=2)), list[str]()

    def connected(name: str, by: float, *, idle: bool) -> bool:
        slot = admitted(limiter, "10.0.0.1")
        slot.deadline, slot.is_idle = by, idle
        slot.close = lambda: closed.append(name)
        return limiter.authenticated(slot, "node-1")

    assert connected("first", 20.0, idle=True)
    assert connected("second", 10.0, idle=True)
    assert connected("third", 30.0, idle=False)
    assert closed == ["second"]
    assert connected("fourth", 40.0, idle=False)
    assert closed == ["second", "first"]
    assert not connected("fifth", 50.0, idle=False)
    assert limiter.authenticated(admitted(limiter, "10.0.0.1"), "node-2")
    assert closed == ["second", "first"]


def test_callers_without_a_credential_are_not_limited() -> None:
    limiter = ConnectionLimiter(IngestLimits(connections_per_node=2))
    assert all(limiter.authenticated(admitted(limiter, "127.0.0.1"), "") for _ in range(10))
