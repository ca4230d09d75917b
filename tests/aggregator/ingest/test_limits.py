from __future__ import annotations

from nodeguard.aggregator.ingest.connection_limiter import (
    NO_ROOM,
    OF_ONE_ADDRESS,
    ConnectionLimiter,
    ConnectionSlot,
)
from nodeguard.aggregator.ingest.endpoint import RejectionLog
from nodeguard.aggregator.ingest.limits import IngestLimits, cost, retry_after
from nodeguard.local.rate_limiter import Rate
from nodeguard.wire.encoding import MESSAGE_LIMIT

RATE = Rate(10.0, 2.0)


def test_the_largest_message_can_be_paid_for_and_a_clock_that_goes_back_does_no_harm() -> None:
    assert cost(MESSAGE_LIMIT) <= IngestLimits().connection_rate.burst
    assert RATE.bucket().take(50.0, 1000.0) == 0.0


def test_a_spool_that_is_full_passes_at_once() -> None:
    """64 changes of 4 KiB, or few large ones, and the report behind them."""
    for size, count in ((4096, 65), (MESSAGE_LIMIT // 4, 5)):
        assert cost(size) * count <= min(IngestLimits().connection_rate.burst, IngestLimits().node_rate.burst)


def test_putting_off_is_told_in_whole_seconds() -> None:
    assert [retry_after(seconds) for seconds in (0.01, 1.2, 1e9)] == ["1", "2", "3600"]


def entered(door: ConnectionLimiter, address: str, now: float = 0.0) -> ConnectionSlot:
    guest = door.admit(address, now)
    assert isinstance(guest, ConnectionSlot)
    return guest


def test_one_address_cannot_take_all_places_of_strangers() -> None:
    door = ConnectionLimiter(IngestLimits(unauthenticated=10, unauthenticated_per_address=3))
    guests = [entered(door, "greedy") for _ in range(3)]
    assert door.admit("greedy", 0.0) == OF_ONE_ADDRESS
    entered(door, "other")
    assert door.authenticated(guests[0], "node-1")
    entered(door, "greedy")
    door.remove(guests[0])
    assert len(door) == 4


def test_a_door_that_is_full_says_so() -> None:
    door = ConnectionLimiter(IngestLimits(connections=2))
    for number in range(2):
        door.authenticated(entered(door, "10.0.0.1"), f"node-{number}")
    assert door.admit("10.0.0.2", 0.0) == NO_ROOM


def test_all_that_are_counted_are_forgotten() -> None:
    door = ConnectionLimiter(IngestLimits())
    guests = [entered(door, f"10.0.0.{number}", float(number)) for number in range(20)]
    for number, one in enumerate(guests[::2]):
        door.authenticated(one, f"node-{number % 3}")
    assert door.close_overdue(19.5) == 10
    for one in guests:
        door.remove(one)
        door.remove(one)
    assert (len(door), len(door._unauthenticated), len(door._per_address), len(door._per_caller)) == (
        0,
        0,
        0,
        0,
    )


def test_of_one_caller_the_connection_that_was_not_used_for_longest_gives_way() -> None:
    door, closed = ConnectionLimiter(IngestLimits(connections_per_node=2)), list[str]()

    def connected(name: str, by: float, *, idle: bool) -> bool:
        guest = entered(door, "10.0.0.1")
        guest.deadline, guest.is_idle = by, idle
        guest.close = lambda: closed.append(name)
        return door.authenticated(guest, "node-1")

    assert connected("first", 20.0, idle=True)
    assert connected("second", 10.0, idle=True)
    assert connected("third", 30.0, idle=False)
    assert closed == ["second"]
    assert connected("fourth", 40.0, idle=False)
    assert closed == ["second", "first"]
    assert not connected("fifth", 50.0, idle=False)
    assert door.authenticated(entered(door, "10.0.0.1"), "node-2")
    assert closed == ["second", "first"]


def test_callers_that_show_nothing_are_not_limited() -> None:
    door = ConnectionLimiter(IngestLimits(connections_per_node=2))
    assert all(door.authenticated(entered(door, "127.0.0.1"), "") for _ in range(10))


def test_complaints_are_told_once_in_a_while_and_few() -> None:
    told: list[str] = []
    complaints = RejectionLog(told.append)
    for _ in range(3):
        complaints.add("10.0.0.1", "no token", 0.0)
    assert told == ["10.0.0.1: no token"]
    complaints.add("10.0.0.1", "no token", 601.0)
    assert len(told) == 2
    for number in range(1000):
        complaints.add(f"10.1.0.{number}", "no token", 601.0)
    assert len(told) == 21
    complaints.add("10.2.0.1", "no token", 610.0)
    assert told[-1] == "10.2.0.1: no token (981 other rejections were not logged before this one)"
