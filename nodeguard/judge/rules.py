"""Rules: the catalogue's checks and conditions compiled to functions, by the kind of their targets. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import inf

from msgspec import Struct

from nodeguard.judge.context import (
    FALSE,
    NOT_APPLICABLE,
    TRUE,
    UNKNOWN,
    ConditionReason,
    ConditionTest,
    EvaluationContext,
)
from nodeguard.judge.formatting import placeholders
from nodeguard.judge.signal_conditions import compile_comparison, compile_event_condition, compile_increase
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import (
    AllOf,
    Check,
    ClearSign,
    Compare,
    Condition,
    EventOccurred,
    Increase,
    Sustained,
)
from nodeguard.model.signal import Signal
from nodeguard.model.target import TARGET_KINDS


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
        context.expire(since + seconds)
        if context.one_shot and seen_once and since <= context.first:
            context.early = (context.now - since, seconds)
            context.expire(context.now)
            return TRUE
        return FALSE

    return test


# Signals that name a target's dependency: the disk of a file system, the PCI function of a port.
DEPENDENCY_SIGNALS = ("fs.disk", "port.pci")


class Rule(Struct, frozen=True):
    """A check and its compiled condition.

    is_event_only: whether the condition uses events and no readings. events: its conditions on events.
    event_signals: their signals.
    applies: test whether the check applies to a target; None for every target of its kinds.
    """

    check: Check
    test: ConditionTest
    is_event_only: bool
    events: tuple[EventOccurred, ...]
    event_signals: frozenset[str]
    applies: ConditionTest | None


class PassedChecks(Struct, frozen=True):
    """Checks that targets of one kind passed: the ids of all, and those of each family."""

    ids: tuple[str, ...]
    by_family: dict[str, frozenset[str]]


# Sets of passed checks that are remembered: the targets of a node with faults have fewer than a hundred.
_MAX_PASSED = 128


class Rules(Struct, frozen=True):
    """The rules, by kind of target.

    counter_windows: for each kind, the longest window in seconds of each counter that a check uses.
    signals_used: for each kind, the signals that a check uses in conditions or messages. event_windows: for
    each kind, the longest window in seconds of each event that a check uses. units: by signal with a unit.
    checks: all of the catalogue, by id. definitions: of counters, by signal. passed_checks: returns the
    checks of a kind of target that have their bit set, see TargetResult.passed_rules.
    """

    by_kind: dict[str, tuple[Rule, ...]]
    counter_windows: dict[str, dict[str, float]]
    signals_used: dict[str, frozenset[str]]
    event_windows: dict[str, dict[str, float]]
    units: dict[str, str]
    checks: dict[str, Check]
    definitions: dict[str, Signal]
    passed_checks: Callable[[str, int], PassedChecks]


def compile_rules(
    catalogue: Catalogue, signals: Mapping[str, Signal], selection: frozenset[str] | None = None
) -> Rules:
    """Return the rules of a catalogue. signals: all, by name. selection: ids of the checks to
    include, None for all.
    """
    units = {name: signal.unit for name, signal in signals.items() if signal.unit}
    definitions = {name: signal for name, signal in signals.items() if signal.kind == "counter"}
    by_kind: dict[str, list[Rule]] = {kind: [] for kind in TARGET_KINDS}
    counter_windows: dict[str, dict[str, float]] = {kind: {} for kind in TARGET_KINDS}
    signals_used: dict[str, set[str]] = {kind: set(DEPENDENCY_SIGNALS) for kind in TARGET_KINDS}
    event_windows: dict[str, dict[str, float]] = {kind: {} for kind in TARGET_KINDS}
    for check in catalogue.checks:
        if selection is not None and check.id not in selection:
            continue
        rule = _rule(check, units)
        for kind in check.targets:
            by_kind[kind].append(rule)
            signals_used[kind].update(_signals(check))
            _widen_windows(check, definitions, counter_windows[kind], event_windows[kind])
    rules_by_kind = {kind: tuple(rules) for kind, rules in by_kind.items()}

    @lru_cache(maxsize=_MAX_PASSED)
    def passed_checks(kind: str, passed: int) -> PassedChecks:
        checks = [rule.check for index, rule in enumerate(rules_by_kind[kind]) if passed >> index & 1]
        by_family: dict[str, set[str]] = defaultdict(set)
        for check in checks:
            by_family[check.family].add(check.id)
        families = {family: frozenset(ids) for family, ids in by_family.items()}
        return PassedChecks(tuple(check.id for check in checks), families)

    return Rules(
        by_kind=rules_by_kind,
        counter_windows=counter_windows,
        signals_used={kind: frozenset(names) for kind, names in signals_used.items()},
        event_windows=event_windows,
        units=units,
        checks={check.id: check for check in catalogue.checks},
        definitions=definitions,
        passed_checks=passed_checks,
    )


def _rule(check: Check, units: Mapping[str, str]) -> Rule:
    leaves = tuple(check.leaves())
    events = tuple(leaf for leaf in leaves if isinstance(leaf, EventOccurred))
    return Rule(
        check,
        compile_condition(check.when, check.id, check.cleared_by, units),
        len(events) == len(leaves),
        events,
        frozenset(condition.event for condition in events),
        compile_comparison(check.applies_when, units) if check.applies_when else None,
    )


# Window in seconds of a counter that a check only compares with a value, to see implausible increases: the
# shortest window of most checks.
_COMPARED_WINDOW = 600.0


def _widen_windows(
    check: Check, definitions: Mapping[str, Signal], counters: dict[str, float], events: dict[str, float]
) -> None:
    """Widen the windows of counters and events to those that a check needs. definitions: of counters."""
    for leaf in check.leaves():
        if isinstance(leaf, Compare) and leaf.signal in definitions:
            counters[leaf.signal] = max(_COMPARED_WINDOW, counters.get(leaf.signal, 0.0))
        if isinstance(leaf, Increase):
            counters[leaf.signal] = max(leaf.over, counters.get(leaf.signal, 0.0))
        if isinstance(leaf, EventOccurred):
            for event in filter(None, (leaf.event, leaf.until)):
                events[event] = max(leaf.over or inf, events.get(event, 0.0))


def _signals(check: Check) -> Iterator[str]:
    """Yield the signals that a check uses in conditions and messages, with references such as
    `port.rate~peers`.
    """
    yield from placeholders(check.message + check.remedy)
    for leaf in (*check.leaves(), *([check.applies_when] if check.applies_when else [])):
        if isinstance(leaf, EventOccurred):
            yield from leaf.unless_read
            continue
        yield leaf.signal
        if isinstance(leaf, Compare) and leaf.than is not None:
            yield leaf.than.name if leaf.than.of == "signal" else f"{leaf.than.name}~{leaf.than.of}"
