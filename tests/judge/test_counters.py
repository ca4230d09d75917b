from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.judge.counters import has_unplaced_increase, increase_within, is_saturated, update_counters
from nodeguard.judge.state import CounterState
from nodeguard.model.check import Compare, Condition, Increase
from nodeguard.model.finding import Health
from nodeguard.model.signal import Signal
from tests.judge.judged_node import JudgedNode, check, observe

SPANS = {"n": 600.0}


UNLIMITED = Signal("n", "counter", "")
# At most 10 a second.
LIMITED = Signal("n", "counter", "", max_rate=10.0)
NARROW = Signal("n", "counter", "", bits=16)


def counter_after(
    values: list[float],
    step: float = 10.0,
    span: float = 600.0,
    definition: Signal = UNLIMITED,
    start: float = 0.0,
) -> CounterState:
    """A counter after being read at every step from a second since boot on."""
    counters: dict[str, CounterState] = {}
    previous = None
    for number, value in enumerate(values):
        now = start + number * step
        counters = update_counters(counters, {"n": span}, {"n": value}, previous, now, {"n": definition})
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


@pytest.mark.parametrize(
    ("values", "counted", "is_doubted"),
    [
        ([0, 100], 100, False),
        ([0, 101], 0, True),
        ([0, 101, 102], 0, True),
        ([0, 5, 5000, 6, 7], 6, False),
        ([0, 5000, 4000, 4001], 0, True),
        ([5, 0, 5, 6], 1, False),
        ([5, 0, 2, 6], 6, False),
    ],
)
def test_increase_beyond_the_highest_rate_is_doubted_until_the_value_drops_to_a_plausible_one(
    values: list[float], counted: float, is_doubted: bool
) -> None:
    counter = counter_after(values, definition=LIMITED, start=1000)
    assert increase_within(counter, 600, 1000 + 10 * len(values)) == counted
    assert (counter.doubt is not None) == is_doubted


def test_first_value_is_doubted_if_it_cannot_be_counted_since_boot() -> None:
    assert counter_after([5001], definition=LIMITED, start=500).doubt is not None
    assert counter_after([5000], definition=LIMITED, start=500).doubt is None


def test_increase_to_the_end_of_a_narrow_counter_is_doubted() -> None:
    assert counter_after([0, 0xFFFF], definition=NARROW).increases == ()
    assert increase_within(counter_after([0, 70, 0xFFFF], definition=NARROW), 600, 30) == 70


@pytest.mark.parametrize("condition", [Increase("n", 3, 60), Compare("n", "at_least", 3)])
def test_no_finding_follows_from_an_increase_that_cannot_be(condition: Condition) -> None:
    node = JudgedNode(check(condition, cleared_by=()), signals=(LIMITED,))
    healths = [node.health(1000 + 10 * at, observe(n=value)) for at, value in enumerate((0, 0, 2**40, 2**41))]
    assert set(healths) == {Health.OK}
    verdict = node.round(1040, observe(n=2**41))
    assert [failure.reason for failure in verdict.read_failures] == [
        "rose by 1099511627776 within 10 s, which the hardware cannot count: the reading is not trusted"
    ]
    assert node.round(1050, observe(n=0)).read_failures == ()
    assert node.health(1060, observe(n=3)) == Health.SUSPECT


def test_increase_that_cannot_be_is_forgotten_after_the_window() -> None:
    node = JudgedNode(check(Increase("n", 3, 60), cleared_by=()), signals=(LIMITED,))
    for at, value in ((1000, 0), (1010, 5000), (1069, 5000)):
        verdict = node.round(at, observe(n=value))
    assert verdict.read_failures
    assert not node.round(1070, observe(n=5000)).read_failures
    assert node.health(1080, observe(n=5003)) == Health.SUSPECT


@given(values=st.lists(st.integers(0, 1 << 64), min_size=1, max_size=50))
def test_counted_increase_never_exceeds_the_highest_rate(values: list[int]) -> None:
    counter = counter_after([float(value) for value in values], definition=LIMITED)
    assert increase_within(counter, 600, 10.0 * len(values)) <= 10.0 * 10.0 * len(values)
