"""From conditions that hold to findings. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodeguard.judge.conditions import shown
from nodeguard.judge.events import OLD
from nodeguard.judge.view import Seen, View
from nodeguard.model.check import Check
from nodeguard.model.finding import Action, Finding, Health, Knowledge, worst
from nodeguard.model.slot import label

_PLACE = re.compile(r"\{([a-z0-9_.~-]+)\}")

# Pieces of evidence kept for one finding, the latest last.
_EVIDENCE = 12


# Events of one finding that its message speaks of, the latest last.
_TOLD = 3


def finding(check: Check, slot: str, part: str, view: View, active: Finding | None) -> Finding:
    """The finding of a check whose condition holds, as the view shows it.

    active: the same finding as it stood the round before; it keeps its beginning.
    """
    seen = sorted(view.seen, key=lambda reason: reason.evidence.at)
    since = view.wall_of(min(reason.since for reason in seen))
    if active is not None:
        since = min(since, active.since)
    events = [reason.event for reason in seen if reason.event is not None]
    values: dict[str, object] = dict(view.signals)
    values.update(slot=label(slot), part=part, count=sum(event.count for event in events))
    told = dict.fromkeys(fill(check.message, {**values, **event.fields}) for event in events[-_TOLD:])
    if events:
        values.update(events[-1].fields)
    return Finding(
        check=check.id,
        target=slot,
        part=part,
        health=check.health,
        knowledge=Knowledge.FRESH,
        action=worst(check.action, *_actions(seen)),
        since=since,
        message="; ".join(told) or fill(check.message, values),
        evidence=tuple(dict.fromkeys(reason.evidence for reason in seen))[-_EVIDENCE:],
        family=check.family,
        title=check.title,
        remedy=fill(check.remedy, values),
        runbook=check.runbook,
        note=_note(view.short),
    )


def _actions(seen: list[Seen]) -> list[Action]:
    named = (reason.event.fields.get("action") for reason in seen if reason.event is not None)
    return [Action(str(word)) for word in named if word in set(Action)]


def _note(short: tuple[float, float] | None) -> str:
    if short is None:
        return ""
    held, wanted = short
    return "seen once" if held == 0 else f"has held for {span(held)}, settles after {span(wanted)}"


def span(seconds: float) -> str:
    """A length of time as a person says it, in its two largest units: `40 d 3 h`, `2 min 5 s`, `0.4 s`."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    rest, said = int(seconds), []
    for size, name in units:
        if rest >= size:
            said.append(f"{rest // size} {name}")
            rest %= size
        elif said:
            break
    return " ".join(said[:2])


def fill(template: str, values: Mapping[str, object]) -> str:
    """A sentence with `{name}` replaced by values; a value that is not known reads as `?`."""
    return _PLACE.sub(lambda place: shown(values.get(place[1], "?")), template)


def weathered(found: list[tuple[Finding, list[Seen]]], now: float) -> list[Finding]:
    """Findings of one slot, those of old events that nothing corroborates no worse than a warning.

    What corroborates an event is a reading: one in the same finding, or another finding of the slot, not less
    than suspect, that rests on one. now: seconds since boot.
    """
    read = [one for one, seen in found if one.health.rank >= Health.SUSPECT.rank and _is_read(seen)]
    result = []
    for one, seen in found:
        events = [reason.event for reason in seen if reason.event is not None]
        age = now - max((event.last for event in events), default=now)
        alone = not _is_read(seen) and not any(other is not one for other in read)
        if alone and age > OLD and one.health.rank > Health.WARNING.rank:
            note = f"{span(age)} old and nothing corroborates it"
            result.append(replace(one, health=Health.WARNING, note=note))
        else:
            result.append(one)
    return result


def _is_read(seen: list[Seen]) -> bool:
    return any(reason.event is None for reason in seen)


def stale(active: Finding, why: str) -> Finding:
    """A finding whose signals can no longer be read: it stands, as not knowing gives nothing back."""
    note = f"not read any more: {why}" if why else "not read any more"
    return replace(active, knowledge=Knowledge.STALE, note=note)


def joined(cause: Finding, symptoms: Sequence[Finding]) -> Finding:
    """A cause with what its symptoms have to say: evidence, the worst health, the strongest action.

    Its own evidence stays; of theirs, what another source saw comes first.
    """
    own = cause.evidence
    more = dict.fromkeys(seen for one in symptoms for seen in one.evidence if seen not in own)
    known = {seen.source for seen in own}
    others = sorted(more, key=lambda seen: seen.source in known)[: _EVIDENCE - len(own)]
    return replace(
        cause,
        health=worst(cause.health, *(one.health for one in symptoms)),
        action=worst(cause.action, *(one.action for one in symptoms)),
        since=min([cause.since, *(one.since for one in symptoms if one.health != Health.OK)]),
        evidence=tuple(sorted((*others, *own), key=lambda seen: seen.at)),
    )
