"""Evaluation of all checks on one target. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from nodeguard.judge.context import FALSE, TRUE, UNKNOWN, ConditionReason, ConditionTest, EvaluationContext
from nodeguard.judge.events import UNCORROBORATED_LIMIT, cleared_events
from nodeguard.judge.findings import (
    downgrade_old_events,
    make_finding,
    make_past_finding,
    make_stale,
    next_downgrade,
)
from nodeguard.judge.rules import Rule, Rules
from nodeguard.judge.signal_conditions import outcome_without_event
from nodeguard.judge.state import (
    ActiveFinding,
    Background,
    OperatorClear,
    RememberedEvent,
    SourceStatus,
    TargetInput,
    TargetResult,
    TargetState,
)
from nodeguard.judge.target_update import merge_sources
from nodeguard.model.check import Check
from nodeguard.model.finding import Finding
from nodeguard.model.target import NODE, target_kind


def evaluate_target(
    rules: Rules,
    target: str,
    data: TargetInput,
    background: Background,
    rounds: Mapping[str, SourceStatus],
    now: float,
) -> TargetResult:
    """Return the result of every check of the target's kind.

    rounds: each source's latest round. now: seconds since boot.
    """
    state, signs, cleared = data.state, data.signs, data.cleared
    context = _context(state, signs, background, rounds, now)
    component = state.component.id if state.component else ""
    fired: list[tuple[Check, Finding, list[ConditionReason]]] = []
    stale: list[Finding] = []
    past: list[Finding] = []
    since: dict[str, float] = {}
    passed = 0
    # All checks on events have this outcome while none of their events is remembered.
    event_outcome = outcome_without_event(background.statuses)
    for index, rule in enumerate(rules.by_kind[target_kind(target)]):
        if rule.applies is not None and not _applies(rule.applies, context):
            continue
        check, unreadable_before = rule.check, len(context.unreadable)
        clear = cleared.get(check.id) if cleared else None
        context.signs = signs if clear is None else {**signs, "operator": clear.at}
        has_event = not context.event_signals.isdisjoint(rule.event_signals)
        outcome = rule.test(context) if has_event or not rule.is_event_only else event_outcome
        if outcome == TRUE:
            since[check.id] = _since(context, state.active.get(check.id))
            finding = make_finding(check, target, component, context, since[check.id], rules.units)
            fired.append((check, finding, context.reasons))
        elif outcome == FALSE:
            if target != NODE or _can_pass_on_node(check, background.kinds):
                passed |= 1 << index
            if clear is not None or has_event:
                past.extend(_past_findings(rule, target, component, context, clear, rules.units))
        elif outcome == UNKNOWN and check.id in state.active:
            is_new = len(context.unreadable) > unreadable_before
            reason = context.unreadable[-1][1] if is_new else ""
            active = state.active[check.id]
            since[check.id] = active.since
            stale.append(make_stale(active.finding, context.to_wall_clock(active.since), reason))
        if context.reasons:
            context.reasons = []
        context.early = None
    findings = (*downgrade_old_events(fired, now), *stale)
    context.expire(next_downgrade(fired, now))
    after = state
    if context.new_true_since != state.true_since or findings or state.active:
        active_now = {finding.check: ActiveFinding(since[finding.check], finding) for finding in findings}
        after = replace(state, true_since=context.new_true_since, active=active_now)
    return TargetResult(
        state=after,
        findings=findings,
        past_findings=tuple(past),
        passed_rules=passed,
        unreadable=tuple({(context.source_of(name), name, reason) for name, reason in context.unreadable}),
        pending={name: state.counters[name].value for name in context.pending},
        valid_until=context.valid_until,
        signs=signs,
        cleared=cleared,
        read_at=context.read_at,
    )


def with_new_signs(result: TargetResult, state: TargetState) -> TargetResult:
    """Return a result for a state that differs in signs only; the field `signs` has those that matter."""
    if result.state is state or replace(result.state, signs=state.signs) != state:
        return result
    return replace(result, state=state)


def is_current(
    result: TargetResult,
    state: TargetState,
    signs: Mapping[str, float],
    cleared: Mapping[str, OperatorClear],
    rounds: Mapping[str, SourceStatus],
    now: float,
) -> bool:
    """Return whether an evaluation of a target with the same background would give the same result again."""
    return (
        result.state is state
        and now < result.valid_until
        and result.signs == signs
        and result.cleared == cleared
        and (not result.read_at or all(rounds[source].at == at for source, at in result.read_at.items()))
    )


def _context(
    state: TargetState,
    signs: Mapping[str, float],
    background: Background,
    rounds: Mapping[str, SourceStatus],
    now: float,
) -> EvaluationContext:
    signals, unread = merge_sources(state.sources)
    return EvaluationContext(
        now=now,
        clock_offset=background.clock_offset,
        first=state.first_seen,
        one_shot=background.one_shot,
        signals=signals,
        unread=unread,
        sources=state.sources,
        rounds=rounds,
        counters=state.counters,
        events=state.events,
        event_signals=frozenset(event.signal for event in state.events.values()),
        signs=signs,
        true_since=state.true_since,
        expect=background.expect,
        statuses=background.statuses,
    )


def _since(context: EvaluationContext, active: ActiveFinding | None) -> float:
    """Return the start of a finding, in seconds since boot."""
    began = min((reason.since for reason in context.reasons), default=context.now)
    return began if active is None else min(began, active.since)


def _past_findings(
    rule: Rule,
    target: str,
    component: str,
    context: EvaluationContext,
    clear: OperatorClear | None,
    units: Mapping[str, str],
) -> Iterable[Finding]:
    """Yield the past finding of a check with cleared events, or of an operator's clear of the last day."""
    check, by = rule.check, clear.by if clear is not None else ""
    events = [
        event
        for condition in rule.events
        for event in cleared_events(
            context.events, condition, check.cleared_by, context.signs, context.now, by
        )
    ]
    if events:
        context.expire(min(event.last for event, _ in events) + UNCORROBORATED_LIMIT)
        yield make_past_finding(check, target, component, context, events, units)
    elif clear is not None and clear.at > context.now - UNCORROBORATED_LIMIT:
        context.expire(clear.at + UNCORROBORATED_LIMIT)
        event = RememberedEvent("", "operator", clear.at, clear.at, 1, f"cleared by {by}", {}, ())
        yield make_past_finding(check, target, component, context, [(event, event.text)], units)


def _applies(test: ConditionTest, context: EvaluationContext) -> bool:
    """Return whether a check applies to the target, or may apply where that could not be read."""
    unreadable = len(context.unreadable)
    outcome = test(context)
    context.reasons.clear()
    del context.unreadable[unreadable:]
    return outcome != FALSE


def _can_pass_on_node(check: Check, kinds: Collection[str]) -> bool:
    """Return whether a check without a finding on the node itself has passed.

    It has not if the node only represents targets that a log line does not name, or if the node lacks the
    hardware of the check.
    """
    has_hardware = not check.hardware or any(hardware in kinds for hardware in check.hardware)
    return check.targets == (NODE,) and has_hardware
