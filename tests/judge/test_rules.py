from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.judge.context import FALSE, NOT_APPLICABLE, TRUE, UNKNOWN, EvaluationContext
from nodeguard.judge.rules import compile_condition, compile_rules
from nodeguard.judge.state import CounterIncrease, CounterState, RememberedEvent, SourceSnapshot, SourceStatus
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import (
    AllOf,
    AnyOf,
    Compare,
    Condition,
    EventOccurred,
    Increase,
    Reference,
    Sustained,
)
from nodeguard.model.signal import Scalar
from nodeguard.model.target import TARGET_KINDS
from tests.judge.judged_node import check

A = "a.happened"
HOT = Compare("hot", "is", value=True)
HIGH = Compare("level", "at_least", 3)


def evaluation_context(
    *,
    first: float = 0.0,
    one_shot: bool = False,
    since: float | None = None,
    **signals: Scalar,
) -> EvaluationContext:
    """Return a context in which the condition `key` is true since the time `since`."""
    values = {name.replace("__", "~"): value for name, value in signals.items()}
    return EvaluationContext(
        now=1000.0,
        clock_offset=1_000_000,
        first=first,
        one_shot=one_shot,
        signals=values,
        unread={},
        sources={"memory": SourceSnapshot(values)},
        rounds={"memory": SourceStatus("read", 1000.0)},
        counters={},
        events={},
        event_signals=frozenset(),
        signs={},
        true_since={} if since is None else {"key": since},
        expect={},
        statuses={"kmsg": "read"},
    )


def with_events(context: EvaluationContext, events: dict[str, RememberedEvent]) -> EvaluationContext:
    return replace(context, events=events, event_signals=frozenset(event.signal for event in events.values()))


def outcome(condition: Condition, context: EvaluationContext) -> int:
    return compile_condition(condition, "key", (), {"warmth": "celsius"})(context)


def remembered_events(*times: float) -> dict[str, RememberedEvent]:
    return {"a": RememberedEvent(A, "kmsg", times[0], times[-1], len(times), "text", {}, times)}


OUTCOMES = st.lists(st.sampled_from([NOT_APPLICABLE, FALSE, UNKNOWN, TRUE]), min_size=1, max_size=4)
Group = Callable[[tuple[Condition, ...]], Condition]
groups = pytest.mark.parametrize("group", [AllOf, AnyOf])


def group_outcome(group: Group, outcomes: Iterable[int], nested: Iterable[int] = ()) -> int:
    """Return the outcome of a group of conditions with these outcomes; nested ones form a group."""
    context = evaluation_context()
    every: list[Condition] = []

    def part(outcome: int) -> Condition:
        name = f"part.{len(every)}"
        if outcome in {TRUE, FALSE}:
            context.signals[name] = outcome == TRUE
        elif outcome == UNKNOWN:
            context.unread[name] = "refused"
        every.append(Compare(name, "is", value=True))
        return every[-1]

    parts = tuple(part(item) for item in outcomes)
    inner = tuple(part(item) for item in nested)
    return outcome(group((*parts, group(inner)) if inner else parts), context)


@pytest.mark.parametrize(
    ("parts", "every", "either"),
    [
        ((TRUE, TRUE), TRUE, TRUE),
        ((TRUE, UNKNOWN), UNKNOWN, TRUE),
        ((FALSE, UNKNOWN), FALSE, UNKNOWN),
        ((FALSE, NOT_APPLICABLE), FALSE, FALSE),
        ((TRUE, UNKNOWN, NOT_APPLICABLE), NOT_APPLICABLE, TRUE),
        ((TRUE, UNKNOWN, NOT_APPLICABLE, FALSE), FALSE, TRUE),
    ],
)
def test_truth_table_of_all_and_any(parts: tuple[int, ...], every: int, either: int) -> None:
    assert (group_outcome(AllOf, parts), group_outcome(AnyOf, parts)) == (every, either)


@groups
@given(parts=OUTCOMES, more=OUTCOMES)
def test_grouping_and_order_change_nothing(group: Group, parts: list[int], more: list[int]) -> None:
    whole = group_outcome(group, parts + more)
    assert group_outcome(group, parts, more) == whole
    assert group_outcome(group, reversed(parts + more)) == whole
    assert group_outcome(group, parts + parts) == group_outcome(group, parts)


@groups
@given(parts=OUTCOMES)
def test_unknown_part_never_decides_the_outcome(group: Group, parts: list[int]) -> None:
    """A later reading of an unknown part can change an unknown outcome only."""
    before = group_outcome(group, parts)
    learnt = {
        group_outcome(group, [truth if part == UNKNOWN else part for part in parts])
        for truth in (TRUE, FALSE)
    }
    assert before not in {TRUE, FALSE} or learnt == {before}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Compare("level", "is", 3), TRUE),
        (Compare("level", "is_not", 3), FALSE),
        (Compare("level", "in", (1, 3)), TRUE),
        (Compare("level", "below", 3), FALSE),
        (Compare("level", "at_most", 3), TRUE),
        (Compare("level", "above", 3), FALSE),
        (Compare("level", "at_least", 3), TRUE),
        (Compare("other", "is", 3), NOT_APPLICABLE),
    ],
)
def test_reading_is_compared_with_a_constant(condition: Compare, expected: int) -> None:
    assert outcome(condition, evaluation_context(level=3)) == expected


@pytest.mark.parametrize(
    ("of", "by", "expected"),
    [
        ("signal", 0, TRUE),
        ("peers", 0, TRUE),
        ("peers", 4, FALSE),
        ("platform", 0, TRUE),
        ("inventory", 0, NOT_APPLICABLE),
    ],
)
def test_reading_is_compared_with_a_reference_and_its_offset(of: Any, by: float, expected: int) -> None:
    context = evaluation_context(level=3, other=4, level__peers=6)
    context.expect = {"level": 4}
    names = {"signal": "other"}
    condition = Compare("level", "below", than=Reference(of, names.get(of, "level")), by=by)
    assert outcome(condition, context) == expected


def test_unread_signal_makes_the_outcome_unknown() -> None:
    context = evaluation_context()
    context.unread = {"level": "refused"}
    assert outcome(HIGH, context) == UNKNOWN
    assert context.unreadable == [("level", "refused")]


def test_boolean_below_its_inventory_value_is_shown_as_boolean() -> None:
    context = evaluation_context(loaded=False, loaded__inventory=1.0)
    assert outcome(Compare("loaded", "below", than=Reference("inventory", "loaded")), context) == TRUE
    assert context.reasons[0].make_evidence(context).text == "loaded = no (it had yes)"


def test_event_is_true_for_its_window() -> None:
    context = evaluation_context()
    context = with_events(context, remembered_events(990.0))
    assert outcome(EventOccurred(A, over=60), context) == TRUE
    context = with_events(context, remembered_events(900.0))
    assert outcome(EventOccurred(A, over=60), context) == FALSE


@pytest.mark.parametrize(
    ("status", "expected"),
    [("read", FALSE), ("failed", UNKNOWN), ("hung", UNKNOWN), ("absent", NOT_APPLICABLE)],
)
def test_missing_event_is_false_only_if_the_log_is_readable(status: str, expected: int) -> None:
    context = evaluation_context()
    context.statuses = {"kmsg": status}
    assert outcome(EventOccurred(A), context) == expected
    context.statuses = {}
    assert outcome(EventOccurred(A), context) == NOT_APPLICABLE


def test_counter_is_unknown_until_its_second_reading() -> None:
    context = evaluation_context(n=5)
    context.counters = {"n": CounterState(5, 1000)}
    assert outcome(Increase("n", 1, 60), context) == UNKNOWN
    assert context.pending == ["n"]
    context.counters = {"n": CounterState(5, 990)}
    assert outcome(Increase("n", 1, 60), context) == FALSE


def test_saturated_counter_is_unknown_with_a_reason() -> None:
    context = evaluation_context(n=15)
    context.counters = {"n": CounterState(15, 0)}
    assert outcome(Increase("n", 1, 60, bits=4), context) == UNKNOWN
    assert [name for name, _ in context.unreadable] == ["n"]


def test_condition_without_evidence_is_not_shown() -> None:
    context = evaluation_context(hot=True, level=5)
    assert outcome(AllOf((Compare("hot", "is", value=True, evidence=False), HIGH)), context) == TRUE
    assert [item.make_evidence(context).text for item in context.reasons] == ["level = 5"]
    assert outcome(Compare("hot", "is", value=False, evidence=False), evaluation_context(hot=True)) == FALSE


def test_increase_starts_with_the_first_increase_in_the_window() -> None:
    """Another check may use the same counter with a longer window: its earlier increases do not count."""
    context = evaluation_context(n=30)
    context.counters = {
        "n": CounterState(30, 0, tuple(CounterIncrease(at, 10, 10) for at in (100.0, 950.0, 990.0)))
    }
    assert outcome(Increase("n", 20, 60), context) == TRUE
    assert [(item.since, item.make_evidence(context).text) for item in context.reasons] == [
        (950, "n rose by 20 to 30")
    ]


def test_event_condition_starts_with_the_first_event_in_the_window() -> None:
    context = evaluation_context()
    context = with_events(context, remembered_events(100.0, 950.0, 990.0))
    assert outcome(EventOccurred(A, over=60), context) == TRUE
    assert [item.since for item in context.reasons] == [950]
    context = evaluation_context()
    context = with_events(context, remembered_events(100.0, 950.0, 990.0))
    assert outcome(EventOccurred(A), context) == TRUE
    assert [item.since for item in context.reasons] == [100]


@pytest.mark.parametrize(
    ("since", "expected"),
    [(None, FALSE), (701.0, FALSE), (700.0, TRUE), (100.0, TRUE)],
    ids=["new", "short", "just", "long"],
)
def test_sustained_condition_must_be_true_without_interruption(since: float | None, expected: int) -> None:
    context = evaluation_context(hot=True, since=since)
    assert outcome(Sustained(HOT, 300), context) == expected
    assert context.new_true_since == {"key": since or 1000.0}


def test_sustained_condition_starts_with_its_first_true_reading() -> None:
    context = evaluation_context(hot=True, since=100.0)
    assert outcome(Sustained(HOT, 300), context) == TRUE
    assert [item.since for item in context.reasons] == [100]


def test_false_reading_resets_a_sustained_condition_and_unread_does_not() -> None:
    cold = evaluation_context(hot=False, since=900.0)
    assert outcome(Sustained(HOT, 300), cold) == FALSE
    assert cold.new_true_since == {}
    context = evaluation_context(since=900.0)
    context.unread = {"hot": "refused"}
    assert outcome(Sustained(HOT, 300), context) == UNKNOWN
    assert context.new_true_since == {"key": 900.0}


@pytest.mark.parametrize(
    ("first", "one_shot", "seen_once", "expected"),
    [
        (900.0, True, True, TRUE),
        (899.0, True, True, FALSE),
        (900.0, False, True, FALSE),
        (900.0, True, False, FALSE),
    ],
)
def test_one_shot_reports_a_condition_true_from_the_first_reading(
    first: float, one_shot: bool, seen_once: bool, expected: int
) -> None:
    context = evaluation_context(hot=True, since=900.0, first=first, one_shot=one_shot)
    assert outcome(Sustained(HOT, 300, seen_once=seen_once), context) == expected
    assert context.early == ((100, 300) if expected == TRUE else None)


def test_certain_finding_has_no_note_seen_once() -> None:
    """One of two reasons has not held for long; the other one needs no time."""
    for parts in ((Sustained(HOT, 300), HIGH), (HIGH, Sustained(HOT, 300))):
        context = evaluation_context(hot=True, level=3, first=1000.0, one_shot=True)
        assert outcome(AnyOf(parts), context) == TRUE
        assert context.early is None
        assert outcome(AllOf(parts), context) == TRUE
        assert context.early == (0, 300)


def test_reasons_of_a_false_part_are_not_reported() -> None:
    context = evaluation_context(hot=True, level=1, n=1)
    both = AllOf((HOT, HIGH))
    assert outcome(AnyOf((both, Compare("n", "is", 1))), context) == TRUE
    assert [item.make_evidence(context).text for item in context.reasons] == ["n = 1"]


def test_event_with_count_zero_is_reported() -> None:
    """A line with a meaning that a later line changes is reported again, with count zero."""
    context = evaluation_context()
    context = with_events(context, {"a": RememberedEvent(A, "kmsg", 990, 990, 0, "text", {}, ())})
    assert outcome(EventOccurred(A, over=60), context) == TRUE
    assert [item.since for item in context.reasons] == [990]


def test_reason_shows_values_with_units() -> None:
    context = evaluation_context(warmth=91.0, warmth__peers=60)
    assert outcome(Compare("warmth", "above", than=Reference("peers", "warmth"), by=20), context) == TRUE
    assert context.reasons[0].make_evidence(context).text == "warmth = 91 °C (its peers have 60 °C)"


def test_decided_outcome_ignores_unread_parts() -> None:
    """One part is false: an unread part changes nothing, in either order."""
    for parts in ((HOT, HIGH), (HIGH, HOT)):
        context = evaluation_context(level=1)
        context.unread = {"hot": "refused"}
        assert outcome(AllOf(parts), context) == FALSE
        assert context.unreadable == []


def test_sustained_part_keeps_its_start_while_another_part_is_false() -> None:
    for parts in ((HIGH, Sustained(HOT, 300)), (Sustained(HOT, 300), HIGH)):
        context = evaluation_context(hot=True, level=1)
        assert outcome(AllOf(parts), context) == FALSE
        assert list(context.new_true_since.values()) == [1000.0]
        assert context.reasons == []


CHECKS = (
    check(AnyOf((Increase("n", 1, 60), Sustained(Increase("m", 1, 20), 5))), "a", targets=("gpu", "node")),
    check(Increase("n", 5, 600), "b", targets=("gpu",), family="other"),
    check(Compare("hot", "is", value=True), "c", targets=("port",)),
)


def test_rules_are_grouped_by_kind_of_target() -> None:
    made = compile_rules(Catalogue(checks=CHECKS), {})
    assert set(made.by_kind) == set(TARGET_KINDS)
    assert {kind: [rule.check.id for rule in rows] for kind, rows in made.by_kind.items() if rows} == {
        "gpu": ["a", "b"],
        "node": ["a"],
        "port": ["c"],
    }


def test_counter_is_remembered_for_the_longest_window_of_its_target_kind() -> None:
    spans = compile_rules(Catalogue(checks=CHECKS), {}).counter_windows
    assert (spans["gpu"], spans["node"], spans["port"]) == ({"n": 600, "m": 20}, {"n": 60, "m": 20}, {})


def test_compile_rules_selects_the_given_checks() -> None:
    made = compile_rules(Catalogue(checks=CHECKS), {}, frozenset({"b"}))
    assert [rule.check.id for rows in made.by_kind.values() for rule in rows] == ["b"]
    assert made.counter_windows["gpu"] == {"n": 600}
