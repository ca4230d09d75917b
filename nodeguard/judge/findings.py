"""From conditions that hold to findings. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodeguard.judge.context import ConditionReason, EvaluationContext
from nodeguard.judge.events import UNCORROBORATED_LIMIT
from nodeguard.judge.formatting import fill_template, format_duration
from nodeguard.judge.state import RememberedEvent
from nodeguard.model.check import Check
from nodeguard.model.finding import Action, DataStatus, Evidence, Finding, Health, worst
from nodeguard.model.observation import DERIVED, DETACHED
from nodeguard.model.target import target_label

# Pieces of evidence kept for one finding, what tells most first.
_EVIDENCE = 12

# Events of one finding that its message speaks of, the latest last.
_TOLD = 3


def make_finding(
    check: Check, slot: str, part: str, view: EvaluationContext, since: float, units: Mapping[str, str]
) -> Finding:
    """The finding of a check whose condition holds, as the view shows it.

    since: when it began, in seconds since boot. units: by signal.
    """
    events = sorted(
        (one.event for one in view.reasons if one.event is not None), key=lambda event: event.last
    )
    values: dict[str, object] = dict(view.signals)
    values.update(slot=target_label(slot), part=part, count=sum(event.count for event in events))
    told = dict.fromkeys(
        fill_template(check.message, {**values, **event.fields}, units) for event in events[-_TOLD:]
    )
    if events:
        values.update(events[-1].fields)
    return Finding(
        check=check.id,
        target=slot,
        component=part,
        health=check.health,
        data_status=DataStatus.FRESH,
        action=worst(check.action, *_actions(events)),
        since=view.to_wall_clock(since),
        message="; ".join(told) or fill_template(check.message, values, units),
        evidence=_own(view),
        family=check.family,
        title=check.title,
        remedy=fill_template(check.remedy, values, units),
        runbook=check.runbook,
        note=_note(view.early),
    )


def make_past_finding(
    check: Check, slot: str, part: str, view: EvaluationContext, events: Sequence[tuple[RememberedEvent, str]]
) -> Finding:
    """What is still told of a check's events that are over: nothing wrong, but seen.

    events: with what ended each, the latest counts.
    """
    event, since = max(events, key=lambda one: one[0].last)
    values = {**view.signals, **event.fields, "slot": target_label(slot), "part": part, "count": event.count}
    return Finding(
        check=check.id,
        target=slot,
        component=part,
        health=Health.OK,
        data_status=DataStatus.FRESH,
        action=Action.NONE,
        since=view.to_wall_clock(event.first),
        message=f"{fill_template(check.message, values, {})}; {since}",
        evidence=(
            Evidence(event.source, event.text or event.signal, view.to_wall_clock(event.last), event.count),
        ),
        family=check.family,
        title=check.title,
        remedy="",
        runbook=check.runbook,
    )


def _own(view: EvaluationContext) -> tuple[Evidence, ...]:
    """What a check itself saw: lines of the log as they came, then readings in the order of its condition."""
    logged = dict.fromkeys(reason.make_evidence(view) for reason in view.reasons if reason.event is not None)
    read = dict.fromkeys(reason.make_evidence(view) for reason in view.reasons if reason.event is None)
    lines = sorted(logged, key=lambda one: one.at)[-max(1, _EVIDENCE - len(read)) :]
    return (*lines, *read)[:_EVIDENCE]


def _actions(events: list[RememberedEvent]) -> list[Action]:
    named = (event.fields.get("action") for event in events)
    return [Action(str(word)) for word in named if word in set(Action)]


def _note(short: tuple[float, float] | None) -> str:
    if short is None:
        return ""
    held, wanted = short
    return (
        "seen once"
        if held == 0
        else f"has held for {format_duration(held)}, settles after {format_duration(wanted)}"
    )


def downgrade_old_events(
    found: Sequence[tuple[Check, Finding, list[ConditionReason]]], now: float
) -> list[Finding]:
    """Findings of one slot, those of old events that nothing corroborates no worse than a warning.

    What corroborates an event is a reading: one in the same finding, or another finding of the slot, not less
    than suspect, that rests on one and is its cause or its symptom. now: seconds since boot.
    """
    read = [check for check, one, seen in found if one.health.rank >= Health.SUSPECT.rank and _is_read(seen)]
    result = []
    for check, one, seen in found:
        events = [reason.event for reason in seen if reason.event is not None]
        age = now - max((event.last for event in events), default=now)
        alone = not _is_read(seen) and not any(_are_kin(check, other) for other in read)
        if alone and age > UNCORROBORATED_LIMIT and one.health.rank > Health.WARNING.rank:
            note = f"{format_duration(age)} old and nothing corroborates it"
            result.append(replace(one, health=Health.WARNING, note=note))
        else:
            result.append(one)
    return result


def _are_kin(one: Check, other: Check) -> bool:
    return other.id in one.symptom_of or one.id in other.symptom_of


def _is_read(seen: list[ConditionReason]) -> bool:
    return any(reason.event is None for reason in seen)


def make_stale(active: Finding, since: float, why: str) -> Finding:
    """A finding whose signals can no longer be read: it stands, as not knowing gives nothing back.

    since: when it began, in seconds since the epoch, by today's clock.
    """
    if why == DETACHED:
        note = "not read while the GPU is released"
        return replace(active, since=since, knowledge=DataStatus.NOT_APPLICABLE, note=note)
    note = f"not read any more: {why}" if why else "not read any more"
    return replace(active, since=since, knowledge=DataStatus.STALE, note=note)


def merge_symptoms(cause: Finding, symptoms: Sequence[Finding]) -> Finding:
    """A cause with what its symptoms have to say: evidence, the worst health, the strongest action.

    Its own evidence stays and comes first. Of theirs, what another source saw comes before the rest, and the
    first of each source before its second.
    """
    own = cause.evidence
    more = dict.fromkeys(seen for one in symptoms for seen in one.evidence if seen not in own)
    heard = Counter(seen.source for seen in own)
    ranks: dict[Evidence, tuple[int, bool]] = {}
    for seen in sorted(more, key=lambda seen: seen.at):
        ranks[seen] = (heard[seen.source], seen.source == DERIVED)
        heard[seen.source] += 1
    others = sorted(ranks, key=ranks.__getitem__)[: _EVIDENCE - len(own)]
    return replace(
        cause,
        health=worst(cause.health, *(one.health for one in symptoms)),
        action=worst(cause.action, *(one.action for one in symptoms)),
        since=min([cause.since, *(one.since for one in symptoms if one.health.rank >= cause.health.rank)]),
        evidence=(*own, *others),
    )
