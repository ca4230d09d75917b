"""Incidents of one node, one for each thing that failed: from findings and what became of marks. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.admission import Outcome, pending_until
from nodeguard.fleet.heard import Heard
from nodeguard.fleet.holding import Holding
from nodeguard.fleet.modes import silenced
from nodeguard.fleet.plan import Event
from nodeguard.fleet.release import Key, Proof, key
from nodeguard.fleet.seat import Seat
from nodeguard.fleet.want import resource, resource_of, unconfirmed, word
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import GRANTED, Incident, State, Symptom
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

# The outcome that an incident of several outcomes shows: the first of these.
_STATES = (State.MARKED, State.ADVISED, State.WITHHELD, State.DRY_RUN, State.PENDING)


class Shared(Struct, frozen=True):
    """What of a node's is told by others, by the slot that failed. parents: names of the incidents that it is
    a part of. early: what may be a part of one yet, and is not told of before that is clear.
    """

    parents: Mapping[str, str] = {}
    early: frozenset[str] = frozenset()


class Story(Struct, frozen=True):
    """What the incidents of one node follow from. outcomes: of its mark requests. proofs: of what it holds.
    granted: the state of a mark that stands. graced: slots of which each suspect or fatal finding that makes
    no request, as it is late or not fresh, is within the grace period that its mark would have.
    """

    seat: Seat
    heard: Heard | None
    outcomes: tuple[Outcome, ...]
    holding: Holding
    proofs: Mapping[Key, Proof]
    shared: Shared = Shared()
    granted: State = State.MARKED
    graced: frozenset[str] = frozenset()


def unconfirmed_until(seat: Seat, report: Heard, policy: Policy, now: float) -> dict[str, float]:
    """Return when the first grace period of a slot's unconfirmed findings ends, in seconds since the epoch.

    A slot is left out where one of them has lasted for longer. now: seconds since the epoch.
    """
    ends: dict[str, float] = {}
    for request in unconfirmed(seat, report):
        slot, end = resource_of(request.target), pending_until(policy, request, now)
        ends[slot] = min(end, ends.get(slot, end))
    return {slot: end for slot, end in ends.items() if end}


class NodeIncidents(Struct, frozen=True):
    """The incidents of one node, by name.

    written: those that are recorded where people look for them, and those that are over. pending: those whose
    mark is in its grace period, or would be if its finding were confirmed (see Story), as they are now. A
    pending incident is not recorded: a fault that ends within its grace period leaves no trace. An incident
    of its name that is recorded already stays as it is. brief: those that were pending and are over.
    """

    written: dict[str, Incident]
    pending: dict[str, Incident]
    brief: tuple[Incident, ...] = ()


def incidents_of(story: Story, before: NodeIncidents, policy: Policy, now: Instant) -> NodeIncidents:
    """Return the incidents of a node. before: as of the plan before.

    An incident changes when its state, health, cause, action or reason does; new words alone are no change.
    """
    pending: dict[str, Incident] = {}
    written: dict[str, Incident] = {}
    found = _found(story, policy, now)
    for name, (one, is_untold) in found.items():
        if name in before.written or not is_untold:
            kept = pending if one.state == State.PENDING else written
            kept[name] = continued(before.written.get(name), one, now.wall)
    for name, past in before.written.items():
        if name in pending:
            written[name] = resolved(past, now.wall) if past.state in _OF_MARKS else past
        elif name not in written:
            written[name] = _left(past, story, now.wall)
    over = (one for name, one in before.pending.items() if name not in found)
    return NodeIncidents(written, pending, tuple(resolved(one, now.wall) for one in over))


# The states of an incident whose mark stands.
_OF_MARKS = frozenset({*GRANTED, State.RECOVERING})


def _found(story: Story, policy: Policy, now: Instant) -> dict[str, tuple[Incident, bool]]:
    """Return the incidents that a node shows now, by name, and of each whether it is not opened: because
    another incident reports it, or may do so soon.
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
    shown = {}
    for place in found.keys() | causes.keys():
        one = _incident(story, place, found.get(place, []), causes.get(place, []), outcomes.get(place, []))
        if silenced(policy, one.cause, story.seat.name, now.wall):
            continue
        parent = "" if place in causes else story.shared.parents.get(place, "")
        is_early = place in story.shared.early and one.state != State.PENDING
        is_untold = place not in causes and (parent != "" or is_early)
        since = began[place] if place in began else min(cause.since for _, cause in causes[place])
        name = named(story.seat, place)
        shown[name] = replace(one, name=name, since=since, parent=parent), is_untold
    return shown


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
    if one.state in _OF_MARKS:
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
    unasked = State.PENDING if not outcomes and place in story.graced else State.OPEN
    state = next((one for one in _STATES if any(each.state == one for each in outcomes)), unasked)
    shown = _shown(outcomes, state)
    detail = shown.why if shown else ""
    if causes and state not in GRANTED:
        state, detail, shown = *_recovery(story, causes), None
    device = any(held is not None for held, _ in causes) or any(
        each.state == state and each.want.device is not None for each in outcomes
    )
    node_wide = any(held is None for held, _ in causes) or any(
        each.state == state and each.want.device is None for each in outcomes
    )
    scope = f"node {seat.name}" if node_wide else f"{label(place)} of {seat.name}" if device else ""
    if shown and state == State.DRY_RUN:
        detail = dry_run_words(shown.want.mark, scope, shown.why)
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
        budget=shown.refusal.limit_words() if shown and shown.refusal else "",
    )


def _shown(outcomes: Iterable[Outcome], state: State) -> Outcome | None:
    """Return the outcome that tells why an incident is in its state: of a dry run one that nothing withholds,
    else one with a reason.
    """
    found = [one for one in outcomes if one.state == state]
    found.sort(key=lambda one: bool(one.why) == (state == State.DRY_RUN))
    return found[0] if found else None


def dry_run_words(mark: Mark, scope: str, why: str) -> str:
    """Return what a dry run would do, in words. why: what would withhold the mark; empty for nothing."""
    done = f"quarantine {scope}" if mark == Mark.QUARANTINE else f"mark {scope} suspect"
    return f"would not {done}: {why}" if why else f"would {done}"


def _recovery(story: Story, causes: Iterable[tuple[Device | None, Cause]]) -> tuple[State, str]:
    unproven = sorted({cause.check for held, cause in causes if key(held, cause) not in story.proofs})
    if not unproven:
        return State.RECOVERING, "proven to be over; the soak period runs"
    if story.heard is None:
        return story.granted, "kept: the node's agent does not report, so nothing proves that it is over"
    return story.granted, f"kept until proven to be over by {', '.join(unproven)}"


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
    reason = one.budget or one.detail
    said = one.state, one.health, one.cause, one.action, one.scope, one.part, reason, one.parent
    # Of what many nodes show, who shows what changes all the time.
    return *said, frozenset(found) if one.node else None


# Reason of an Event, and whether it is a warning. A pending incident has none.
_REASONS = {
    State.OPEN: ("NodeguardFinding", True),
    State.DRY_RUN: ("NodeguardDryRun", True),
    State.WITHHELD: ("NodeguardWithheld", True),
    State.MARKED: ("NodeguardMarked", True),
    State.ADVISED: ("NodeguardAdvised", True),
    State.RECOVERING: ("NodeguardRecovering", False),
    State.RESOLVED: ("NodeguardResolved", False),
}


def _news(one: Incident) -> tuple[str, ...]:
    """Return what of an incident makes an Event when it changes: the reason of a withheld mark, too."""
    return one.state, one.scope, (one.budget or one.detail) if one.state == State.WITHHELD else ""


def event_of(before: Incident | None, after: Incident) -> Event | None:
    """Return the Event of an incident's change; None where only words changed, or its parent has one."""
    if after.parent or after.state not in _REASONS:
        return None
    if before is not None and _news(before) == _news(after):
        return None
    reason, warning = _REASONS[after.state]
    # A message about a domain or a check names it.
    place = f"{after.cause} on {label(after.resource)}: " if after.node else ""
    found = f"{after.message}; " if after.message else ""
    message = f"{place}{found}{_done(after)} ({after.name})"
    return Event(after.uid, after.node, reason, message[:1000], warning, after.name)


def _done(one: Incident) -> str:
    """Return what is done about an incident, in words."""
    work = "new work" if one.health == Health.FATAL else "new gang work"
    match one.state:
        case State.OPEN:
            return "nothing is kept away" if one.node else one.detail
        case State.DRY_RUN:
            return f"dry run: {one.detail}"
        case State.WITHHELD:
            return f"{one.scope} {'is' if one.node else 'are'} not marked: {one.detail}"
        case State.MARKED:
            return f"{work} is kept off {one.scope}"
        case State.ADVISED:
            return f"advice: keep {work} off {one.scope}"
        case State.RECOVERING:
            return f"{one.scope}: {one.detail}"
    return one.detail or "over"
