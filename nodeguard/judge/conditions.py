"""Conditions, turned once into functions that look at a slot. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from nodeguard.judge.leaves import compare, happened, increase
from nodeguard.judge.outcome import FALSE, NOT_APPLICABLE, TRUE, UNKNOWN
from nodeguard.judge.view import Seen, Test, View
from nodeguard.model.check import Compare, Condition, Every, Happened, Increase, Sign, Sustained


def prepare(condition: Condition, key: str, clears: tuple[Sign, ...], units: Mapping[str, str]) -> Test:
    """A function that evaluates the condition on a View and leaves there what it saw.

    key: names the condition in the slot's memory. clears: signs that end events. units: by signal.
    """
    match condition:
        case Compare():
            return compare(condition, units) if condition.evidence else _untold(compare(condition, units))
        case Increase():
            return increase(condition, units)
        case Happened():
            return happened(condition, clears)
        case Sustained():
            return _sustained(condition, prepare(condition.condition, f"{key}.0", clears, units), key)
    tests = [prepare(part, f"{key}.{at}", clears, units) for at, part in enumerate(condition.of)]
    return _every(condition, tests) if isinstance(condition, Every) else _either(tests)


def _untold(inner: Test) -> Test:
    """A condition that says where a check applies, and nothing of what is wrong."""

    def test(view: View) -> int:
        seen = len(view.seen)
        outcome = inner(view)
        del view.seen[seen:]
        return outcome

    return test


def _every(condition: Every, tests: list[Test]) -> Test:
    """`all`: false where one is, which settles it; else not applicable, else unknown where one is.

    One part that was told of early makes all of them early.
    """
    # What has to hold for a while must be asked each time, or it would forget since when it has held.
    lasting = {test for test, part in zip(tests, condition.of, strict=True) if _lasts(part)}

    def test(view: View) -> int:
        seen, missing, pending = len(view.seen), len(view.missing), len(view.pending)
        worst = TRUE
        short: tuple[float, float] | None = None
        for part in tests:
            if worst == FALSE and part not in lasting:
                continue
            outcome = part(view)
            if view.short is not None:
                short, view.short = view.short, None
            if outcome != TRUE and worst != FALSE and (worst == TRUE or outcome != UNKNOWN):
                worst = outcome
        if worst == TRUE:
            view.short = short
            return TRUE
        del view.seen[seen:]
        if worst == FALSE:
            del view.missing[missing:], view.pending[pending:]
        return worst

    return test


def _lasts(condition: Condition) -> bool:
    match condition:
        case Compare() | Increase() | Happened():
            return False
        case Sustained():
            return True
    return any(_lasts(part) for part in condition.of)


def _either(tests: list[Test]) -> Test:
    """`any`: true where one is, else unknown where one is, else false where one is.

    All that are true are told of; one that was not told of early makes any of them certain.
    """

    def test(view: View) -> int:
        best, certain = NOT_APPLICABLE, False
        short: tuple[float, float] | None = None
        for part in tests:
            seen = len(view.seen)
            outcome = part(view)
            early, view.short = view.short, None
            if outcome != TRUE:
                del view.seen[seen:]
            elif early is None:
                certain = True
            else:
                short = short or early
            best = max(best, outcome)
        view.short = None if certain else short
        return best

    return test


def _sustained(condition: Sustained, inner: Test, key: str) -> Test:
    seconds, seen_once = condition.seconds, condition.seen_once

    def test(view: View) -> int:
        reasons = len(view.seen)
        outcome = inner(view)
        if outcome == UNKNOWN and key in view.held:
            view.holding[key] = view.held[key]
        if outcome != TRUE:
            return outcome
        since = view.holding[key] = view.held.get(key, view.now)
        view.seen[reasons:] = (
            Seen(min(reason.since, since), reason.tell, reason.event) for reason in view.seen[reasons:]
        )
        if view.now - since >= seconds:
            return TRUE
        if view.one_look and seen_once and since <= view.first:
            view.short = (view.now - since, seconds)
            return TRUE
        return FALSE

    return test
