"""Incidents of one node, one for each thing that failed: from findings and what became of marks. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.admission import Outcome
from nodeguard.fleet.heard import Heard
from nodeguard.fleet.holding import Holding
from nodeguard.fleet.modes import silenced
from nodeguard.fleet.plan import Event
from nodeguard.fleet.release import Key, Proof, key
from nodeguard.fleet.seat import Seat
from nodeguard.fleet.want import resource, resource_of, word
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, State, Symptom
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Cause, Mark
from nodeguard.model.node import Device
from nodeguard.model.policy import Policy
from nodeguard.model.slot import label
from nodeguard.wire.report import Active

_SYMPTOMS = 8
_EVIDENCE = 3

# Characters of a text. An agent cuts its own to as many; whoever has its credential need not.
_TEXT = 512

_HEALTH = {Mark.QUARANTINE: Health.FATAL, Mark.SUSPECT: Health.SUSPECT}

# The worst of several outcomes of one incident, first.
_STATES = (State.MARKED, State.WITHHELD, State.OBSERVED)


class Shared(Struct, frozen=True):
    """What of a node's is told by others, by the slot that failed. parents: names of the incidents that it is
    a part of. early: what may be a part of one yet, and is not told of before that is clear.
    """

    parents: Mapping[str, str] = {}
    early: frozenset[str] = frozenset()


class Story(Struct, frozen=True):
    """What an incident's telling rests on, of one node. outcomes: of its wants. proofs: of what it holds."""

    seat: Seat
    heard: Heard | None
    outcomes: tuple[Outcome, ...]
    holding: Holding
    proofs: Mapping[Key, Proof]
    shared: Shared = Shared()


def incidents_of(
    story: Story, before: Mapping[str, Incident], policy: Policy, now: Instant
) -> dict[str, Incident]:
    """The incidents of a node, by name: those that are, and those that were. An incident changes when its
    state, health, cause, action or reason does; new words alone are none.
    """
    found: dict[str, list[Active]] = defaultdict(list)
    began: dict[str, float] = {}
    if story.heard is not None:
        for active, since in zip(story.heard.findings, story.heard.began, strict=True):
            place = resource(active)
            found[place].append(active)
            began[place] = min(since, began.get(place, since))
    causes: dict[str, list[tuple[Device | None, Cause]]] = defaultdict(list)
    for held in story.holding.places:
        for cause in story.holding.of(held).causes:
            causes[resource_of(cause.target)].append((held, cause))
    outcomes = _by_place(story.outcomes)
    told = {}
    for place in found.keys() | causes.keys():
        name = named(story.seat, place)
        one = _incident(story, place, found.get(place, []), causes.get(place, []), outcomes.get(place, []))
        if silenced(policy, one.cause, story.seat.name, now.wall):
            continue
        parent = "" if place in causes else story.shared.parents.get(place, "")
        if name not in before and place not in causes and (parent or place in story.shared.early):
            continue
        since = began[place] if place in began else min(cause.since for _, cause in causes[place])
        told[name] = continued(
            before.get(name), replace(one, name=name, since=since, parent=parent), now.wall
        )
    for name, past in before.items():
        if name not in told:
            told[name] = _left(past, story, now.wall)
    return told


def _by_place(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        found[resource_of(outcome.want.target)].append(outcome)
    return found


def _left(one: Incident, story: Story, now: float) -> Incident:
    """What becomes of an incident of which nothing is found any more: that of a node that has not been heard
    is not over for that.
    """
    if one.state == State.RESOLVED:
        return one
    if story.heard is not None:
        return resolved(one, now)
    if one.state in {State.MARKED, State.RECOVERING}:
        return replace(one, state=State.OPEN, changed=now, scope="", detail="nothing is heard from the node")
    return one


def resolved(one: Incident, now: float, detail: str = "") -> Incident:
    """An incident that is over. now: seconds since the epoch."""
    return replace(one, state=State.RESOLVED, changed=now, resolved=now, scope="", detail=detail)


def named(seat: Seat, place: str) -> str:
    """Name of the incident of a part of a node, the same whoever tells of it."""
    words = re.sub(r"[^a-z0-9-]+", "-", f"{seat.name[:120]}-{place[:80]}".lower()).strip("-")
    return f"{words}-{blake2b(f'{seat.uid} {place}'.encode(), digest_size=4).hexdigest()}"


def _incident(
    story: Story,
    place: str,
    findings: list[Active],
    causes: list[tuple[Device | None, Cause]],
    outcomes: list[Outcome],
) -> Incident:
    """The incident of one part, as it is now, without its name and times."""
    seat = story.seat
    state = next((one for one in _STATES if any(each.state == one for each in outcomes)), State.OPEN)
    detail = next((each.why for each in outcomes if each.state == state and each.why), "")
    if causes and not outcomes:
        state, detail = _recovery(story, causes)
    device = any(held is not None for held, _ in causes) or any(
        each.state == state and each.want.device is not None for each in outcomes
    )
    node_wide = any(held is None for held, _ in causes) or any(
        each.state == state and each.want.device is None for each in outcomes
    )
    scope = f"node {seat.name}" if node_wide else f"{label(place)} of {seat.name}" if device else ""
    findings = sorted(findings, key=lambda one: (-one.health.rank, -one.action.rank, -one.age, one.check))
    worst = findings[0] if findings else None
    _, first = min(causes, key=lambda one: one[1].since) if causes else (None, None)
    return Incident(
        name="",
        node=seat.name,
        uid=seat.uid,
        resource=place,
        cause=worst.check if worst else first.check if first else "",
        health=worst.health if worst else _HEALTH[first.mark] if first else Health.OK,
        state=state,
        since=0.0,
        changed=0.0,
        scope=scope if state != State.OPEN else "",
        part=next((one.part for one in findings if one.part), first.part if first else ""),
        word=word(worst) if worst else first.word if first else "",
        action=max((one.action for one in findings), key=lambda one: one.rank, default=Action.NONE),
        message=worst.message[:_TEXT] if worst else "",
        detail=detail,
        symptoms=tuple(_symptom(one) for one in findings[:_SYMPTOMS]),
    )


def _recovery(story: Story, causes: Iterable[tuple[Device | None, Cause]]) -> tuple[State, str]:
    unproven = sorted({cause.check for held, cause in causes if key(held, cause) not in story.proofs})
    if not unproven:
        return State.RECOVERING, "proven to be in order; soaking"
    if story.heard is None:
        return State.MARKED, "nothing is heard from the node, which proves nothing"
    return State.MARKED, f"kept until proven to be in order by {', '.join(unproven)}"


def _symptom(one: Active) -> Symptom:
    seen = tuple(f"{sight.source}: {sight.what}"[:_TEXT] for sight in one.evidence[:_EVIDENCE])
    return Symptom(one.check, one.target, one.health, one.message[:_TEXT], seen)


def continued(before: Incident | None, now: Incident, wall: float) -> Incident:
    """An incident as it is told now, with what is known of it from before. wall: seconds since the epoch."""
    if before is None:
        return replace(now, changed=wall)
    if before.state == State.RESOLVED:
        return replace(now, changed=wall, times=before.times + 1)
    same = replace(
        now,
        since=before.since,
        changed=before.changed,
        times=before.times,
        message=now.message or before.message,
    )
    return before if _gist(same) == _gist(before) else replace(same, changed=wall)


def _gist(one: Incident) -> tuple[object, ...]:
    found = {(each.check, each.target, each.health) for each in one.symptoms}
    said = one.state, one.health, one.cause, one.action, one.scope, one.part, one.detail, one.parent
    # Of what many nodes show, who shows what changes all the time.
    return *said, frozenset(found) if one.node else None


_REASONS = {
    State.OPEN: ("NodeguardFinding", True),
    State.OBSERVED: ("NodeguardWouldMark", True),
    State.WITHHELD: ("NodeguardWithheld", True),
    State.MARKED: ("NodeguardMarked", True),
    State.RECOVERING: ("NodeguardRecovering", False),
    State.RESOLVED: ("NodeguardResolved", False),
}


def _news(one: Incident) -> tuple[str, ...]:
    """What of an incident is told anew when it changes: why it is withheld, too."""
    return one.state, one.scope, one.detail if one.state == State.WITHHELD else ""


def event_of(before: Incident | None, after: Incident) -> Event | None:
    """What is told of an incident's change; None where only words have changed, or another one tells it."""
    if after.parent:
        return None
    if before is not None and _news(before) == _news(after):
        return None
    reason, warning = _REASONS[after.state]
    who = "work" if after.node else "gangs"
    said = {
        State.OPEN: "nothing is kept away" if after.node else after.detail,
        State.OBSERVED: f"in enforce mode {after.scope} would be kept from {who}",
        State.WITHHELD: f"{after.scope} {'is' if after.node else 'are'} not marked: {after.detail}",
        State.MARKED: f"{'work is' if after.node else 'gangs are'} kept from {after.scope}",
        State.RECOVERING: f"{after.scope}: {after.detail}",
        State.RESOLVED: after.detail or "over",
    }[after.state]
    # What is told of a domain or a check names it.
    place = f"{after.cause} on {label(after.resource)}: " if after.node else ""
    found = f"{after.message}; " if after.message else ""
    message = f"{place}{found}{said} ({after.name})"
    return Event(after.uid, after.node, reason, message[:1000], warning, after.name)
