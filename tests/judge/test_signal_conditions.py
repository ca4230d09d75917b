from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.judge.signal_conditions import (
    has_unplaced_increase,
    increase_within,
    is_saturated,
    update_counters,
)
from nodeguard.judge.state import CounterState
from nodeguard.model.check import EventOccurred
from nodeguard.model.finding import Health
from nodeguard.model.observation import DETACHED, Event
from nodeguard.model.target import NODE
from tests.judge.judged_node import JudgedNode, check, logged, observe, unread

SPANS = {"n": 600.0}


def counter_after(values: list[float], step: float = 10.0, span: float = 600.0) -> CounterState:
    """A counter after being read at every step from second 0 on."""
    counters: dict[str, CounterState] = {}
    previous = None
    for number, value in enumerate(values):
        now = number * step
        counters = update_counters(counters, {"n": span}, {"n": value}, previous, now)
        previous = now
    return counters["n"]


def test_first_reading_is_a_baseline_and_no_increase() -> None:
    counter = counter_after([5000])
    assert (counter.value, increase_within(counter, 600, 0)) == (5000, 0)


def test_increase_counts_only_within_its_window() -> None:
    counter = counter_after([10, 10, 14, 15])
    assert increase_within(counter, 600, 30) == 5
    assert increase_within(counter, 10, 30) == 1
    assert increase_within(counter, 10, 40) == 0


def test_counter_decrease_is_counted_and_keeps_earlier_increases() -> None:
    counter = counter_after([10, 14, 3, 5])
    assert (counter.resets, increase_within(counter, 600, 30)) == (1, 6)


def test_increase_in_a_gap_counts_only_in_windows_that_contain_the_gap() -> None:
    counters = update_counters({}, SPANS, {"n": 1}, None, 0)
    counter = update_counters(counters, SPANS, {"n": 4}, 0, 1000)["n"]
    assert (increase_within(counter, 600, 1000), has_unplaced_increase(counter, 600, 1000)) == (3, False)
    assert (increase_within(counter, 60, 1000), has_unplaced_increase(counter, 60, 1000)) == (0, True)
    assert not has_unplaced_increase(counter, 60, 1100)


@pytest.mark.parametrize("previous", [None, 0.0])
def test_increase_over_a_long_gap_or_another_epoch_does_not_count(previous: float | None) -> None:
    counters = update_counters({}, SPANS, {"n": 1}, None, 0)
    after = update_counters(counters, SPANS, {"n": 100}, previous, 1201)
    assert (after["n"].value, increase_within(after["n"], 600, 1201)) == (100, 0)


def test_a_gap_of_twice_the_window_is_still_bridged() -> None:
    counters = update_counters({}, SPANS, {"n": 1}, None, 0)
    assert increase_within(update_counters(counters, SPANS, {"n": 100}, 0, 1200)["n"], 600, 1200) == 99


@pytest.mark.parametrize("value", [None, "many", True])
def test_value_that_is_not_a_number_does_not_change_a_counter(value: object) -> None:
    counters = followed_from = {"n": CounterState(3.0, 0.0)}
    signals = {} if value is None else {"n": value}
    assert update_counters(counters, SPANS, signals, 0, 10) == followed_from


def test_only_counters_used_by_a_check_are_remembered() -> None:
    assert update_counters({}, SPANS, {"other": 4}, None, 0) == {}


def test_counter_of_few_bits_is_saturated_at_its_maximum() -> None:
    assert is_saturated(15, 4)
    assert not is_saturated(14, 4)
    assert not is_saturated(0xFFFF, 0)


@given(steps=st.lists(st.integers(0, 5), max_size=300))
def test_merged_increases_keep_their_sum(steps: list[int]) -> None:
    values = [float(sum(steps[: number + 1])) for number in range(len(steps))] or [0.0]
    counter = counter_after(values, step=1, span=10_000)
    assert increase_within(counter, 10_000, len(values)) == values[-1] - values[0]
    assert len(counter.increases) <= 32


@given(values=st.lists(st.integers(0, 1000), min_size=1, max_size=200), over=st.floats(1, 3000))
def test_sum_of_increases_is_between_zero_and_the_total_read(values: list[int], over: float) -> None:
    counter = counter_after([float(value) for value in values])
    risen = increase_within(counter, over, 10.0 * len(values))
    assert 0 <= risen <= sum(values)
    assert increase_within(counter, over * 2, 10.0 * len(values)) >= risen


def test_gap_of_more_than_twice_the_window_starts_a_new_baseline() -> None:
    counters = update_counters({}, SPANS, {"n": 1}, None, 0)
    assert update_counters(counters, SPANS, {"n": 4}, 0, 1201)["n"] == CounterState(4, 1201)


LOGGED = check(EventOccurred("a.happened", unless_read={"a.level": "memory", "a.state": "memory"}))
LINE = logged(NODE, Event("a.happened", 5.0))


def test_a_line_counts_where_the_reading_that_should_confirm_it_is_not_offered_or_fails() -> None:
    node = JudgedNode(LOGGED)
    assert node.health(10, LINE, observe(other=1)) is Health.SUSPECT
    assert node.health(20, unread(NODE, "a.level")) is Health.SUSPECT
    assert node.health(30, observe(a__level=0)) is Health.OK
    assert node.health(40, observe(source="other", a__state="good"), unread(NODE, "a.level")) is Health.OK


def test_a_line_waits_for_the_first_round_of_the_source_and_for_an_operator_who_detached_it() -> None:
    node = JudgedNode(LOGGED)
    assert node.health(10, LINE) is Health.OK
    assert node.health(20, unread(NODE, "a.level", DETACHED)) is Health.OK
    assert node.health(30, unread(NODE, "a.level")) is Health.SUSPECT
