"""All checks of one slot, evaluated. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from nodeguard.judge.context import FALSE, TRUE, UNKNOWN, ConditionReason, ConditionTest, EvaluationContext
from nodeguard.judge.events import UNCORROBORATED_LIMIT, cleared_events
from nodeguard.judge.findings import downgrade_old_events, make_finding, make_past_finding, make_stale
from nodeguard.judge.rules import Rule, Rules
from nodeguard.judge.signal_conditions import outcome_without_event
from nodeguard.judge.state import (
    ActiveFinding,
    Background,
    OperatorClear,
    RememberedEvent,
    TargetResult,
    TargetState,
)
from nodeguard.judge.target_update import merge_sources
from nodeguard.model.check import Check
from nodeguard.model.finding import Finding
from nodeguard.model.instant import Instant
from nodeguard.model.target import NODE, target_kind

_NOTHING: dict[str, OperatorClear] = {}


def evaluate_target(
    rules: Rules,
    slot: str,
    state: TargetState,
    signs: Mapping[str, float],
    background: Background,
    instant: Instant,
    cleared: Mapping[str, OperatorClear] = _NOTHING,
) -> TargetResult:
    """Every check of the slot's kind, on what is remembered of the slot.

    signs: what may clear its events → when it was last seen, in seconds since boot. cleared: what people
    cleared of it, by check.
    """
    signals, unread = merge_sources(state.sources)
    view = EvaluationContext(
        now=instant.mono,
        wall=instant.wall,
        first=state.first_seen,
        one_shot=background.one_shot,
        signals=signals,
        unread=unread,
        sources=state.sources,
        counters=state.counters,
        events=state.events,
        signs=signs,
        true_since=state.true_since,
        expect=background.expect,
        statuses=background.statuses,
    )
    part = state.component.id if state.component else ""
    found: list[tuple[Check, Finding, list[ConditionReason]]] = []
    kept: list[Finding] = []
    past: list[Finding] = []
    since: dict[str, float] = {}
    fine, silent = 0, None if state.events else outcome_without_event(background.statuses)
    for at, rule in enumerate(rules.by_kind[target_kind(slot)]):
        if rule.applies is not None and not _is_for(rule.applies, view):
            continue
        check, missing = rule.check, len(view.unreadable)
        person = cleared.get(check.id) if cleared else None
        view.signs = signs if person is None else {**signs, "operator": person.at}
        outcome = silent if silent is not None and rule.is_event_only else rule.test(view)
        if outcome == TRUE:
            since[check.id] = _since(view, state.active.get(check.id))
            one = make_finding(check, slot, part, view, since[check.id], rules.units)
            found.append((check, one, view.reasons))
        elif outcome == FALSE:
            if slot != NODE or _tells(check, background.kinds):
                fine |= 1 << at
            if (state.events and rule.events) or person is not None:
                past.extend(_past(rule, slot, part, view, person))
        elif outcome == UNKNOWN and check.id in state.active:
            why = view.unreadable[-1][1] if len(view.unreadable) > missing else ""
            since[check.id] = state.active[check.id].since
            one = state.active[check.id].finding
            kept.append(make_stale(one, view.to_wall_clock(since[check.id]), why))
        if view.reasons:
            view.reasons = []
        view.early = None
    findings = (*downgrade_old_events(found, instant.mono), *kept)
    after = state
    if view.new_true_since != state.true_since or findings or state.active:
        after = replace(
            state,
            held=view.new_true_since,
            active={one.check: ActiveFinding(since[one.check], one) for one in findings},
        )
    return TargetResult(
        state=after,
        findings=findings,
        past_findings=tuple(past),
        passed_rules=fine,
        unreadable=tuple({(view.source_of(name), name, why) for name, why in view.unreadable}),
        pending={name: state.counters[name].value for name in view.pending},
        settled=after is state
        and not cleared
        and _rests(state, rules.counter_windows[target_kind(slot)], instant.mono),
    )


def _since(view: EvaluationContext, active: ActiveFinding | None) -> float:
    """When what is found now began, in seconds since boot."""
    began = min((reason.since for reason in view.reasons), default=view.now)
    return began if active is None else min(began, active.since)


def _past(
    rule: Rule, slot: str, part: str, view: EvaluationContext, person: OperatorClear | None
) -> Iterable[Finding]:
    """What is to be told of a check's events that are over, or of what a person cleared of it.

    Of a person's word it is told for as long as of an event.
    """
    check, by = rule.check, person.by if person is not None else ""
    events = [
        one
        for leaf in rule.events
        for one in cleared_events(view.events, leaf, check.clears, view.signs, view.now, by)
    ]
    if events:
        yield make_past_finding(check, slot, part, view, events)
    elif person is not None and person.at > view.now - UNCORROBORATED_LIMIT:
        word = RememberedEvent("", "operator", person.at, person.at, 1, f"cleared by {by}", {}, ())
        yield make_past_finding(check, slot, part, view, [(word, word.text)])


def _is_for(applies: ConditionTest, view: EvaluationContext) -> bool:
    """Whether a check is for the slot, as far as that can be told."""
    missing = len(view.unreadable)
    outcome = applies(view)
    view.reasons.clear()
    del view.unreadable[missing:]
    return outcome != FALSE


def _rests(state: TargetState, spans: Mapping[str, float], now: float) -> bool:
    """Whether nothing that is remembered of a slot means something else a moment later."""
    if state.events or state.true_since:
        return False
    return all(
        one.since < now and (not one.increases or one.increases[-1].at <= now - spans.get(name, 0.0))
        for name, one in state.counters.items()
    )


def _tells(check: Check, kinds: Collection[str]) -> bool:
    """Whether silence of a check on the node itself says anything.

    Not where the node only stands in for slots that a message does not name, nor where it has no such
    hardware.
    """
    return check.targets == (NODE,) and (not check.hardware or any(one in kinds for one in check.hardware))
