from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nodeguard.kube.pending_writes import PendingWrites


def taken(waiting: PendingWrites[str], now: float = 0.0) -> tuple[object, str] | None:
    found = waiting.take(now)
    return found and (found[0], found[1].write)


def test_the_latest_counts_and_keeps_its_place() -> None:
    waiting = PendingWrites[str]()
    for key, what in (("a", "1"), ("b", "1"), ("a", "2")):
        waiting.put(key, what, 0.0)
    assert [taken(waiting), taken(waiting), taken(waiting)] == [("a", "2"), ("b", "1"), None]


def test_one_of_a_key_is_under_way() -> None:
    waiting = PendingWrites[str]()
    waiting.put("a", "1", 0.0)
    assert taken(waiting) == ("a", "1")
    waiting.put("a", "2", 0.0)
    waiting.put("a", "3", 0.0)
    assert taken(waiting) is None
    waiting.done("a", 0.0)
    assert taken(waiting) == ("a", "3")


def test_the_same_again_does_not_hurry_another_try() -> None:
    waiting = PendingWrites[str]()
    waiting.put("a", "1", 0.0)
    waiting.take(0.0)
    waiting.retry("a", 5.0, 0.0)
    waiting.put("a", "1", 1.0)
    assert waiting.seconds_until_due(1.0) == 4.0
    waiting.put("a", "2", 1.0)
    assert taken(waiting, 1.0) == ("a", "2")


def test_what_is_not_wanted_any_more_is_not_tried_again() -> None:
    waiting = PendingWrites[str]()
    waiting.put("a", "1", 0.0)
    waiting.take(0.0)
    waiting.drop("a")
    waiting.retry("a", 0.0, 0.0)
    assert (len(waiting), waiting.seconds_until_due(0.0)) == (0, None)


def test_what_is_wanted_again_after_all_is() -> None:
    waiting = PendingWrites[str]()
    waiting.put("a", "1", 0.0)
    waiting.take(0.0)
    waiting.drop("a")
    waiting.put("a", "1", 0.0)
    waiting.retry("a", 0.0, 0.0)
    assert taken(waiting) == ("a", "1")


class Machine(RuleBasedStateMachine):
    """Beside a dictionary of what was asked for last and is not done."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = PendingWrites[int]()
        self.asked: dict[object, int] = {}
        self.going: dict[object, int] = {}
        self.now = 0.0

    @rule(key=st.sampled_from("abc"), what=st.integers(0, 2))
    def put(self, key: str, what: int) -> None:
        self.waiting.put(key, what, self.now)
        self.asked[key] = what

    @rule(key=st.sampled_from("abc"))
    def drop(self, key: str) -> None:
        self.waiting.drop(key)
        self.asked.pop(key, None)

    @rule()
    def take(self) -> None:
        found = self.waiting.take(self.now)
        if found is not None:
            key, entry = found
            assert key not in self.going
            assert self.asked[key] == entry.write
            self.going[key] = entry.write

    @rule(failed=st.booleans(), later=st.sampled_from([0.0, 1.0, 5.0]), pick=st.integers(0, 2))
    def end(self, failed: bool, later: float, pick: int) -> None:
        if not self.going:
            return
        key = sorted(self.going, key=str)[pick % len(self.going)]
        what = self.going.pop(key)
        if failed:
            self.waiting.retry(key, self.now + later, self.now)
        else:
            self.waiting.done(key, self.now)
            if self.asked.get(key) == what:
                del self.asked[key]

    @rule(seconds=st.sampled_from([0.5, 1.0, 9.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nothing_is_lost(self) -> None:
        assert {key for key in "abc" if key in self.waiting} == set(self.asked) | set(self.going)
        resting = set(self.asked) - set(self.going)
        assert (self.waiting.seconds_until_due(self.now) is None) == (not resting)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
