from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nodeguard.kube.pending_writes import PendingWrites


def taken(writes: PendingWrites[str], now: float = 0.0) -> tuple[object, str] | None:
    """Take a write. Return its key and value."""
    item = writes.take(now)
    return item and (item[0], item[1].write)


def test_a_newer_write_replaces_the_pending_one_in_its_place() -> None:
    writes = PendingWrites[str]()
    for key, value in (("a", "1"), ("b", "1"), ("a", "2")):
        writes.put(key, value, 0.0)
    assert [taken(writes), taken(writes), taken(writes)] == [("a", "2"), ("b", "1"), None]


def test_one_write_of_a_key_is_in_flight() -> None:
    writes = PendingWrites[str]()
    writes.put("a", "1", 0.0)
    assert taken(writes) == ("a", "1")
    writes.put("a", "2", 0.0)
    writes.put("a", "3", 0.0)
    assert taken(writes) is None
    writes.done("a", 0.0)
    assert taken(writes) == ("a", "3")


def test_an_equal_write_does_not_advance_a_retry() -> None:
    writes = PendingWrites[str]()
    writes.put("a", "1", 0.0)
    writes.take(0.0)
    writes.retry("a", 5.0, 0.0)
    writes.put("a", "1", 1.0)
    assert writes.seconds_until_due(1.0) == 4.0
    writes.put("a", "2", 1.0)
    assert taken(writes, 1.0) == ("a", "2")


def test_a_dropped_write_is_not_retried() -> None:
    writes = PendingWrites[str]()
    writes.put("a", "1", 0.0)
    writes.take(0.0)
    writes.drop("a")
    writes.retry("a", 0.0, 0.0)
    assert (len(writes), writes.seconds_until_due(0.0)) == (0, None)


def test_a_write_that_is_added_again_is_retried() -> None:
    writes = PendingWrites[str]()
    writes.put("a", "1", 0.0)
    writes.take(0.0)
    writes.drop("a")
    writes.put("a", "1", 0.0)
    writes.retry("a", 0.0, 0.0)
    assert taken(writes) == ("a", "1")


class Machine(RuleBasedStateMachine):
    """Compare the pending writes with a dictionary of the latest writes that are not done."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = PendingWrites[int]()
        self.requested: dict[object, int] = {}
        self.in_flight: dict[object, int] = {}
        self.now = 0.0

    @rule(key=st.sampled_from("abc"), value=st.integers(0, 2))
    def put(self, key: str, value: int) -> None:
        self.writes.put(key, value, self.now)
        self.requested[key] = value

    @rule(key=st.sampled_from("abc"))
    def drop(self, key: str) -> None:
        self.writes.drop(key)
        self.requested.pop(key, None)

    @rule()
    def take(self) -> None:
        item = self.writes.take(self.now)
        if item is not None:
            key, entry = item
            assert key not in self.in_flight
            assert self.requested[key] == entry.write
            self.in_flight[key] = entry.write

    @rule(failed=st.booleans(), later=st.sampled_from([0.0, 1.0, 5.0]), pick=st.integers(0, 2))
    def end(self, failed: bool, later: float, pick: int) -> None:
        if not self.in_flight:
            return
        key = sorted(self.in_flight, key=str)[pick % len(self.in_flight)]
        value = self.in_flight.pop(key)
        if failed:
            self.writes.retry(key, self.now + later, self.now)
        else:
            self.writes.done(key, self.now)
            if self.requested.get(key) == value:
                del self.requested[key]

    @rule(seconds=st.sampled_from([0.5, 1.0, 9.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nothing_is_lost(self) -> None:
        assert {key for key in "abc" if key in self.writes} == set(self.requested) | set(self.in_flight)
        idle = set(self.requested) - set(self.in_flight)
        assert (self.writes.seconds_until_due(self.now) is None) == (not idle)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
