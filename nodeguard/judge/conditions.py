"""Conditions compiled to functions: `all`, `any` and `for` over the conditions on signals. Pure."""

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
    """Return the function that evaluates a condition.

    key: of the condition in TargetState.true_since. clears: signs that clear events. units: by signal.
    """
    match condition:
        case Compare():
            test = compile_comparison(condition, units)
            return test if condition.evidence else _without_reasons(test)
        case Increase():
            return compile_increase(condition, units)
        case EventOccurred():
            return compile_event_condition(condition, clears)
        case Sustained():
            inner = compile_condition(condition.condition, f"{key}.0", clears, units)
            return _sustained(condition, inner, key)
    tests = [
        compile_condition(part, f"{key}.{index}", clears, units) for index, part in enumerate(condition.of)
    ]
    return _all(condition, tests) if isinstance(condition, AllOf) else _any(tests)


def _without_reasons(inner: ConditionTest) -> ConditionTest:
    """Return a test that limits where a check applies, and is no evidence of the fault."""

    def test(context: EvaluationContext) -> int:
        count = len(context.reasons)
        outcome = inner(context)
        del context.reasons[count:]
        return outcome

    return test


def _all(condition: AllOf, tests: list[ConditionTest]) -> ConditionTest:
    """Return the test of `all`: false where one part is, else not applicable, else unknown where one part is.

    One part that counts early makes the whole early.
    """
    # A sustained part needs every evaluation: without it the start of its true time is lost.
    sustained = {test for test, part in zip(tests, condition.of, strict=True) if _is_sustained(part)}

    def test(context: EvaluationContext) -> int:
        reasons, unreadable, pending = len(context.reasons), len(context.unreadable), len(context.pending)
        worst = TRUE
        early: tuple[float, float] | None = None
        for part in tests:
            if worst == FALSE and part not in sustained:
                continue
            outcome = part(context)
            if context.early is not None:
                early, context.early = context.early, None
            if outcome != TRUE and worst != FALSE and (worst == TRUE or outcome != UNKNOWN):
                worst = outcome
        if worst == TRUE:
            context.early = early
            return TRUE
        del context.reasons[reasons:]
        if worst == FALSE:
            del context.unreadable[unreadable:], context.pending[pending:]
        return worst

    return test


def _is_sustained(condition: Condition) -> bool:
    match condition:
        case Compare() | Increase() | EventOccurred():
            return False
        case Sustained():
            return True
    return any(_is_sustained(part) for part in condition.of)


def _any(tests: list[ConditionTest]) -> ConditionTest:
    """Return the test of `any`: true where one part is, else unknown, else false where one part is.

    All true parts give reasons. The whole is early only where every true part is.
    """

    def test(context: EvaluationContext) -> int:
        best, has_full_time = NOT_APPLICABLE, False
        early: tuple[float, float] | None = None
        for part in tests:
            count = len(context.reasons)
            outcome = part(context)
            part_early, context.early = context.early, None
            if outcome != TRUE:
                del context.reasons[count:]
            elif part_early is None:
                has_full_time = True
            else:
                early = early or part_early
            best = max(best, outcome)
        context.early = None if has_full_time else early
        return best

    return test


def _sustained(condition: Sustained, inner: ConditionTest, key: str) -> ConditionTest:
    """Return the test of `for`: true once the inner condition was true for the whole time."""
    seconds, seen_once = condition.seconds, condition.seen_once

    def test(context: EvaluationContext) -> int:
        count = len(context.reasons)
        outcome = inner(context)
        if outcome == UNKNOWN and key in context.true_since:
            context.new_true_since[key] = context.true_since[key]
        if outcome != TRUE:
            return outcome
        since = context.new_true_since[key] = context.true_since.get(key, context.now)
        context.reasons[count:] = (
            ConditionReason(min(reason.since, since), reason.make_evidence, reason.event)
            for reason in context.reasons[count:]
        )
        if context.now - since >= seconds:
            return TRUE
        if context.one_shot and seen_once and since <= context.first:
            context.early = (context.now - since, seconds)
            return TRUE
        return FALSE

    return test
