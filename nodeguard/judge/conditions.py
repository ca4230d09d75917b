"""Conditions, turned once into functions that look at a slot. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from nodeguard.judge.context import (
    FALSE,
    NOT_APPLICABLE,
    TRUE,
    UNKNOWN,
    ConditionReason,
    ConditionTest,
    EvaluationContext,
)
from nodeguard.judge.signal_conditions import compile_comparison, compile_event_condition, compile_increase
from nodeguard.model.check import AllOf, ClearSign, Compare, Condition, EventOccurred, Increase, Sustained


def compile_condition(
    condition: Condition, key: str, clears: tuple[ClearSign, ...], units: Mapping[str, str]
) -> ConditionTest:
    """A function that evaluates the condition on a View and leaves there what it saw.

    key: names the condition in the slot's memory. clears: signs that end events. units: by signal.
    """
    match condition:
        case Compare():
            return (
                compile_comparison(condition, units)
                if condition.evidence
                else _untold(compile_comparison(condition, units))
            )
        case Increase():
            return compile_increase(condition, units)
        case EventOccurred():
            return compile_event_condition(condition, clears)
        case Sustained():
            return _sustained(
                condition, compile_condition(condition.condition, f"{key}.0", clears, units), key
            )
    tests = [compile_condition(part, f"{key}.{at}", clears, units) for at, part in enumerate(condition.of)]
    return _every(condition, tests) if isinstance(condition, AllOf) else _either(tests)


def _untold(inner: ConditionTest) -> ConditionTest:
    """A condition that says where a check applies, and nothing of what is wrong."""

    def test(view: EvaluationContext) -> int:
        seen = len(view.reasons)
        outcome = inner(view)
        del view.reasons[seen:]
        return outcome

    return test


def _every(condition: AllOf, tests: list[ConditionTest]) -> ConditionTest:
    """`all`: false where one is, which settles it; else not applicable, else unknown where one is.

    One part that was told of early makes all of them early.
    """
    # What has to hold for a while must be asked each time, or it would forget since when it has held.
    lasting = {test for test, part in zip(tests, condition.of, strict=True) if _lasts(part)}

    def test(view: EvaluationContext) -> int:
        seen, missing, pending = len(view.reasons), len(view.unreadable), len(view.pending)
        worst = TRUE
        short: tuple[float, float] | None = None
        for part in tests:
            if worst == FALSE and part not in lasting:
                continue
            outcome = part(view)
            if view.early is not None:
                short, view.early = view.early, None
            if outcome != TRUE and worst != FALSE and (worst == TRUE or outcome != UNKNOWN):
                worst = outcome
        if worst == TRUE:
            view.early = short
            return TRUE
        del view.reasons[seen:]
        if worst == FALSE:
            del view.unreadable[missing:], view.pending[pending:]
        return worst

    return test


def _lasts(condition: Condition) -> bool:
    match condition:
        case Compare() | Increase() | EventOccurred():
            return False
        case Sustained():
            return True
    return any(_lasts(part) for part in condition.of)


def _either(tests: list[ConditionTest]) -> ConditionTest:
    """`any`: true where one is, else unknown where one is, else false where one is.

    All that are true are told of; one that was not told of early makes any of them certain.
    """

    def test(view: EvaluationContext) -> int:
        best, certain = NOT_APPLICABLE, False
        short: tuple[float, float] | None = None
        for part in tests:
            seen = len(view.reasons)
            outcome = part(view)
            early, view.early = view.early, None
            if outcome != TRUE:
                del view.reasons[seen:]
            elif early is None:
                certain = True
            else:
                short = short or early
            best = max(best, outcome)
        view.early = None if certain else short
        return best

    return test


def _sustained(condition: Sustained, inner: ConditionTest, key: str) -> ConditionTest:
    seconds, seen_once = condition.seconds, condition.seen_once

    def test(view: EvaluationContext) -> int:
        reasons = len(view.reasons)
        outcome = inner(view)
        if outcome == UNKNOWN and key in view.true_since:
            view.new_true_since[key] = view.true_since[key]
        if outcome != TRUE:
            return outcome
        since = view.new_true_since[key] = view.true_since.get(key, view.now)
        view.reasons[reasons:] = (
            ConditionReason(min(reason.since, since), reason.make_evidence, reason.event)
            for reason in view.reasons[reasons:]
        )
        if view.now - since >= seconds:
            return TRUE
        if view.one_shot and seen_once and since <= view.first:
            view.early = (view.now - since, seconds)
            return TRUE
        return FALSE

    return test
