"""Findings made from checks that fired, and their changes: past, stale, downgraded and merged. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from nodeguard.judge.context import ConditionReason, EvaluationContext
from nodeguard.judge.events import UNCORROBORATED_LIMIT
from nodeguard.judge.formatting import fill_template, format_duration, placeholders
from nodeguard.judge.state import RememberedEvent
from nodeguard.model.check import Check
from nodeguard.model.finding import Action, DataStatus, Evidence, Finding, Health, worst
from nodeguard.model.observation import DERIVED, DETACHED
from nodeguard.model.target import target_label

# Pieces of evidence of one finding, the most important first.
_MAX_EVIDENCE = 12

_HOUR = 3600.0

_ACTIONS = frozenset(Action)

# Events that the message of one finding names, the latest last.
_MAX_EVENTS_IN_MESSAGE = 3


def make_finding(
    check: Check,
    target: str,
    component: str,
    context: EvaluationContext,
    since: float,
    units: Mapping[str, str],
) -> Finding:
    """Return the finding of a check that fired. since: its start in seconds since boot. units: by signal."""
    events = sorted(
        (reason.event for reason in context.reasons if reason.event is not None), key=lambda event: event.last
    )
    values: dict[str, object] = dict(context.signals)
    values.update(
        target=target_label(target), component=component, count=sum(event.count for event in events)
    )
    messages = dict.fromkeys(
        fill_template(check.message, {**values, **event.fields}, units)
        for event in events[-_MAX_EVENTS_IN_MESSAGE:]
    )
    if events:
        values.update(events[-1].fields)
    action = worst(check.action, *_event_actions(events))
    values["action"] = action.phrase
    return Finding(
        check=check.id,
        target=target,
        component=component,
        health=check.health,
        data_status=DataStatus.FRESH,
        action=action,
        since=context.to_wall_clock(since),
        message=_joined(list(messages)) or fill_template(check.message, values, units),
        evidence=_evidence(context, lambda event: fill_template(check.message, values | event.fields, units)),
        family=check.family,
        title=check.title,
        remedy=_remedy(check, action, values, units),
        runbook=check.runbook,
        note=_early_note(context.early),
    )


def make_past_finding(
    check: Check,
    target: str,
    component: str,
    context: EvaluationContext,
    events: Sequence[tuple[RememberedEvent, str]],
    units: Mapping[str, str],
) -> Finding:
    """Return a finding of health `ok` for the latest of a check's cleared events.

    events: each with the clause that names what cleared it. units: by signal.
    """
    event, clause = max(events, key=lambda row: row[0].last)
    values = {
        **context.signals,
        **event.fields,
        "target": target_label(target),
        "component": component,
        "count": event.count,
    }
    at = context.to_wall_clock(event.last)
    return Finding(
        check=check.id,
        target=target,
        component=component,
        health=Health.OK,
        data_status=DataStatus.FRESH,
        action=Action.NONE,
        since=context.to_wall_clock(event.first),
        message=f"{fill_template(check.message, values, units)}; {clause}",
        evidence=(Evidence(event.source, event.text or event.signal, at, event.count),),
        family=check.family,
        title=check.title,
        remedy="",
        runbook=check.runbook,
    )


def _joined(messages: Sequence[str]) -> str:
    """Return several messages as one. The text before the first colon is written once."""
    heads = {message.partition(": ")[0] for message in messages}
    if len(messages) == 1 or len(heads) != 1:
        return "; ".join(messages)
    return f"{heads.pop()}: {'; '.join(message.partition(': ')[2] for message in messages)}"


def _evidence(context: EvaluationContext, meaning: Callable[[RememberedEvent], str]) -> tuple[Evidence, ...]:
    """Return the evidence of a check: log lines by time, then readings in the order of its condition.

    meaning: returns what an event means.
    """
    logged = dict.fromkeys(
        _with_meaning(reason.make_evidence(context), reason.event, meaning)
        for reason in context.reasons
        if reason.event is not None
    )
    read = dict.fromkeys(reason.make_evidence(context) for reason in context.reasons if reason.event is None)
    lines = sorted(logged, key=lambda evidence: evidence.at)[-max(1, _MAX_EVIDENCE - len(read)) :]
    return (*lines, *read)[:_MAX_EVIDENCE]


def _with_meaning(
    evidence: Evidence, event: RememberedEvent, meaning: Callable[[RememberedEvent], str]
) -> Evidence:
    """Return the evidence of an event with what it means, and with the process that it names."""
    fields = event.fields
    return replace(
        evidence,
        meaning=meaning(event),
        process=str(fields.get("process", "")),
        pid=int(fields.get("pid", 0)),
        workload=str(fields.get("workload", "")),
    )


def _event_actions(events: list[RememberedEvent]) -> list[Action]:
    names = (event.fields.get("action") for event in events)
    return [Action(str(name)) for name in names if name in _ACTIONS]


def _remedy(check: Check, action: Action, values: Mapping[str, object], units: Mapping[str, str]) -> str:
    """Return the remedy of a check; it begins with the action of the events where that is stronger."""
    remedy = fill_template(check.remedy, values, units)
    is_named = action == check.action or "action" in placeholders(check.remedy)
    return remedy if is_named else f"{action.sentence} {remedy}"


def _early_note(early: tuple[float, float] | None) -> str:
    if early is None:
        return ""
    elapsed, needed = early
    seen = f"true for {format_duration(elapsed)}" if elapsed else "seen once"
    return f"{seen}; the agent reports it after {format_duration(needed)}"


def downgrade_old_events(
    fired: Sequence[tuple[Check, Finding, list[ConditionReason]]], now: float
) -> list[Finding]:
    """Return the findings of one target, those of old and uncorroborated events as a warning at most.

    A reading corroborates an event: in the same finding, or in another finding of the target that is suspect
    or worse and is its cause or symptom. now: seconds since boot.
    """
    with_reading = [
        check
        for check, finding, reasons in fired
        if finding.health.rank >= Health.SUSPECT.rank and _has_reading(reasons)
    ]
    findings = []
    for check, finding, reasons in fired:
        events = [reason.event for reason in reasons if reason.event is not None]
        age = now - max((event.last for event in events), default=now)
        is_corroborated = _has_reading(reasons) or any(_is_related(check, other) for other in with_reading)
        is_old = age > UNCORROBORATED_LIMIT
        if is_old and not is_corroborated and finding.health.rank > Health.WARNING.rank:
            note = f"{format_duration(age)} old and nothing corroborates it"
            findings.append(replace(finding, health=Health.WARNING, note=note))
        else:
            findings.append(finding)
    return findings


def next_downgrade(fired: Sequence[tuple[Check, Finding, list[ConditionReason]]], now: float) -> float:
    """Return when downgrade_old_events next gives another result, in seconds since boot.

    A finding of old events shows their age in whole hours.
    """
    latest = (
        max((reason.event.last for reason in reasons if reason.event is not None), default=inf)
        for _, _, reasons in fired
    )
    return min((_next_downgrade(event_at, now) for event_at in latest), default=inf)


def _next_downgrade(event_at: float, now: float) -> float:
    age = now - event_at
    return event_at + (UNCORROBORATED_LIMIT if age <= UNCORROBORATED_LIMIT else (age // _HOUR + 1) * _HOUR)


def _is_related(check: Check, other: Check) -> bool:
    return other.id in check.symptom_of or check.id in other.symptom_of


def _has_reading(reasons: list[ConditionReason]) -> bool:
    return any(reason.event is None for reason in reasons)


def make_stale(active: Finding, since: float, reason: str) -> Finding:
    """Return an active finding that can no longer be evaluated: it stays active until it is read as cleared.

    since: its start in seconds since the epoch, by the present wall clock. reason: why a signal is unread.
    """
    if reason == DETACHED:
        note = "not read while the GPU is detached"
        return replace(active, since=since, data_status=DataStatus.NOT_APPLICABLE, note=note)
    note = f"not read any more: {reason}" if reason else "not read any more"
    return replace(active, since=since, data_status=DataStatus.STALE, note=note)


def merge_symptoms(cause: Finding, symptoms: Sequence[Finding]) -> Finding:
    """Return a cause with the evidence and the worst health of its symptoms.

    A symptom of lower health than the cause's never changes what to do. Of the others, the one with the
    strongest action gives the action and its remedy, where it is stronger than the cause's. A cause that a
    restart of a service ends keeps its action: hardware looks faulty without the service that drives it, and
    has a finding of its own if it still does after the restart.
    Its own evidence comes first. Evidence of the symptoms comes in turns: the first of each other source,
    then the second of each, derived evidence last. A line that means something to several is shown once.
    """
    own = cause.evidence
    pieces = {_line(evidence): evidence for evidence in own}
    for symptom in symptoms:
        for evidence in symptom.evidence:
            pieces.setdefault(_line(evidence), evidence)
    count = Counter(evidence.source for evidence in own)
    ranks: dict[Evidence, tuple[int, bool]] = {}
    more = (evidence for evidence in pieces.values() if evidence not in own)
    for evidence in sorted(more, key=lambda evidence: evidence.at):
        ranks[evidence] = (count[evidence.source], evidence.source == DERIVED)
        count[evidence.source] += 1
    others = sorted(ranks, key=ranks.__getitem__)[: _MAX_EVIDENCE - len(own)]
    as_bad = [cause, *(symptom for symptom in symptoms if symptom.health.rank >= cause.health.rank)]
    keeps_action = cause.action is Action.RESTART_SERVICE and all(
        symptom.health.rank <= cause.health.rank for symptom in symptoms
    )
    strongest = cause if keeps_action else max(as_bad, key=lambda finding: finding.action.rank)
    return replace(
        cause,
        health=worst(*(finding.health for finding in as_bad)),
        action=strongest.action,
        remedy=strongest.remedy,
        since=min(finding.since for finding in as_bad),
        evidence=(*own, *others),
    )


def _line(evidence: Evidence) -> tuple[str, str, float]:
    return evidence.source, evidence.text, evidence.at
