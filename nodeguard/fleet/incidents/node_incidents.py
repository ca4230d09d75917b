"""Incidents of one node, one for each thing that failed: from findings and what became of marks. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision, grace_end
from nodeguard.fleet.decide.mark_requests import fault_class, resource, resource_of, unconfirmed_requests
from nodeguard.fleet.decide.release import CauseKey, Proof, cause_key
from nodeguard.fleet.policy_rules import is_silenced
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_marks import NodeMarks
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import GRANTED_STATES, Incident, IncidentState, Symptom
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Mark, MarkCause
from nodeguard.model.node import Device
from nodeguard.model.policy import Policy
from nodeguard.model.target import target_label
from nodeguard.wire.report import ReportedFinding

_SYMPTOMS = 8
_EVIDENCE = 3

# Characters of a text. An agent cuts its own to as many; whoever has its credential need not.
_TEXT = 512

_HEALTH = {Mark.QUARANTINE: Health.FATAL, Mark.SUSPECT: Health.SUSPECT}

# The outcome that an incident of several outcomes shows: the first of these.
_STATES = (
    IncidentState.MARKED,
    IncidentState.ADVISED,
    IncidentState.WITHHELD,
    IncidentState.DRY_RUN,
    IncidentState.PENDING,
)


class ParentIncidents(Struct, frozen=True):
    """What of a node's is told by others, by the slot that failed. parents: names of the incidents that it is
    a part of. early: what may be a part of one yet, and is not told of before that is clear.
    """

    parents: Mapping[str, str] = {}
    early: frozenset[str] = frozenset()


class NodeSituation(Struct, frozen=True):
    """What the incidents of one node follow from. outcomes: of its mark requests. proofs: of what it holds.
    granted: the state of a mark that stands. graced: slots of which each suspect or fatal finding that makes
    no request, as it is late or not fresh, is within the grace period that its mark would have.
    """

    placement: NodePlacement
    report: LatestReport | None
    decisions: tuple[MarkDecision, ...]
    marks: NodeMarks
    proofs: Mapping[CauseKey, Proof]
    shared: ParentIncidents = ParentIncidents()
    granted: IncidentState = IncidentState.MARKED
    graced: frozenset[str] = frozenset()


def unconfirmed_until(
    seat: NodePlacement, report: LatestReport, policy: Policy, now: float
) -> dict[str, float]:
    """Return when the first grace period of a slot's unconfirmed findings ends, in seconds since the epoch.

    A slot is left out where one of them has lasted for longer. now: seconds since the epoch.
    """
    ends: dict[str, float] = {}
    for request in unconfirmed_requests(seat, report):
        slot, end = resource_of(request.target), grace_end(policy, request, now)
        ends[slot] = min(end, ends.get(slot, end))
    return {slot: end for slot, end in ends.items() if end}


class NodeIncidents(Struct, frozen=True):
    """The incidents of one node, by name.

    written: those that are recorded where people look for them, and those that are over. pending: those whose
    mark is in its grace period, or would be if its finding were confirmed (see Story), as they are now. A
    pending incident is not recorded: a fault that ends within its grace period leaves no trace. An incident
    of its name that is recorded already stays as it is. brief: those that were pending and are over.
    """

    recorded: dict[str, Incident]
    pending: dict[str, Incident]
    transient: tuple[Incident, ...] = ()


def incidents_of(story: NodeSituation, before: NodeIncidents, policy: Policy, now: Instant) -> NodeIncidents:
    """Return the incidents of a node. before: as of the plan before.

    An incident changes when its state, health, cause, action or reason does; new words alone are no change.
    """
    pending: dict[str, Incident] = {}
    written: dict[str, Incident] = {}
    found = _found(story, policy, now)
    for name, (one, is_untold) in found.items():
        if name in before.recorded or not is_untold:
            kept = pending if one.state == IncidentState.PENDING else written
            kept[name] = update_incident(before.recorded.get(name), one, now.wall)
    for name, past in before.recorded.items():
        if name in pending:
            written[name] = resolve(past, now.wall) if past.state in _OF_MARKS else past
        elif name not in written:
            written[name] = _left(past, story, now.wall)
    over = (one for name, one in before.pending.items() if name not in found)
    return NodeIncidents(written, pending, tuple(resolve(one, now.wall) for one in over))


# The states of an incident whose mark stands.
_OF_MARKS = frozenset({*GRANTED_STATES, IncidentState.RECOVERING})


def _found(story: NodeSituation, policy: Policy, now: Instant) -> dict[str, tuple[Incident, bool]]:
    """Return the incidents that a node shows now, by name, and of each whether it is not opened: because
    another incident reports it, or may do so soon.
    """
    found: dict[str, list[ReportedFinding]] = defaultdict(list)
    began: dict[str, float] = {}
    if story.report is not None:
        for active, since in zip(story.report.findings, story.report.began, strict=True):
            place = resource(active)
            found[place].append(active)
            began[place] = min(since, began.get(place, since))
    causes: dict[str, list[tuple[Device | None, MarkCause]]] = defaultdict(list)
    for held in story.marks.carriers:
        for cause in story.marks.record_of(held).causes:
            causes[resource_of(cause.target)].append((held, cause))
    outcomes = _by_place(story.decisions)
    shown = {}
    for place in found.keys() | causes.keys():
        one = _incident(story, place, found.get(place, []), causes.get(place, []), outcomes.get(place, []))
        if is_silenced(policy, one.cause, story.placement.name, now.wall):
            continue
        parent = "" if place in causes else story.shared.parents.get(place, "")
        is_early = place in story.shared.early and one.state != IncidentState.PENDING
        is_untold = place not in causes and (parent != "" or is_early)
        since = began[place] if place in began else min(cause.since for _, cause in causes[place])
        name = incident_name(story.placement, place)
        shown[name] = replace(one, name=name, first_seen=since, parent=parent), is_untold
    return shown


def _by_place(outcomes: Iterable[MarkDecision]) -> dict[str, list[MarkDecision]]:
    found: dict[str, list[MarkDecision]] = defaultdict(list)
    for outcome in outcomes:
        found[resource_of(outcome.request.target)].append(outcome)
    return found


def _left(one: Incident, story: NodeSituation, now: float) -> Incident:
    """What becomes of an incident of which nothing is found any more: that of a node that has not been heard
    is not over for that.
    """
    if one.state == IncidentState.RESOLVED:
        return one
    if story.report is not None:
        return resolve(one, now)
    if one.state in _OF_MARKS:
        return replace(
            one,
            state=IncidentState.OPEN,
            last_transition=now,
            scope="",
            detail="nothing is heard from the node",
        )
    return one


def resolve(one: Incident, now: float, detail: str = "") -> Incident:
    """An incident that is over. now: seconds since the epoch."""
    return replace(
        one, state=IncidentState.RESOLVED, last_transition=now, resolved_at=now, scope="", detail=detail
    )


def incident_name(seat: NodePlacement, place: str) -> str:
    """Name of the incident of a part of a node, the same whoever tells of it."""
    words = re.sub(r"[^a-z0-9-]+", "-", f"{seat.name[:120]}-{place[:80]}".lower()).strip("-")
    return f"{words}-{blake2b(f'{seat.uid} {place}'.encode(), digest_size=4).hexdigest()}"


def _incident(
    story: NodeSituation,
    place: str,
    findings: list[ReportedFinding],
    causes: list[tuple[Device | None, MarkCause]],
    outcomes: list[MarkDecision],
) -> Incident:
    """The incident of one part, as it is now, without its name and times."""
    seat = story.placement
    unasked = IncidentState.PENDING if not outcomes and place in story.graced else IncidentState.OPEN
    state = next((one for one in _STATES if any(each.state == one for each in outcomes)), unasked)
    shown = _shown(outcomes, state)
    detail = shown.reason if shown else ""
    if causes and state not in GRANTED_STATES:
        state, detail, shown = *_recovery(story, causes), None
    device = any(held is not None for held, _ in causes) or any(
        each.state == state and each.request.device is not None for each in outcomes
    )
    node_wide = any(held is None for held, _ in causes) or any(
        each.state == state and each.request.device is None for each in outcomes
    )
    scope = f"node {seat.name}" if node_wide else f"{target_label(place)} of {seat.name}" if device else ""
    if shown and state == IncidentState.DRY_RUN:
        detail = dry_run_message(shown.request.mark, scope, shown.reason)
    findings = sorted(findings, key=lambda one: (-one.health.rank, -one.action.rank, -one.age, one.check))
    worst = findings[0] if findings else None
    _, first = min(causes, key=lambda one: one[1].since) if causes else (None, None)
    return Incident(
        name="",
        node=seat.name,
        uid=seat.uid,
        target=place,
        cause=worst.check if worst else first.check if first else "",
        health=worst.health if worst else _HEALTH[first.mark] if first else Health.OK,
        state=state,
        first_seen=0.0,
        last_transition=0.0,
        scope=scope if state != IncidentState.OPEN else "",
        component=next(
            (one.component for one in findings if one.component), first.component if first else ""
        ),
        fault_class=fault_class(worst) if worst else first.fault_class if first else "",
        action=max((one.action for one in findings), key=lambda one: one.rank, default=Action.NONE),
        message=worst.message[:_TEXT] if worst else "",
        detail=detail,
        symptoms=tuple(_symptom(one) for one in findings[:_SYMPTOMS]),
        budget=shown.refusal.limit_message() if shown and shown.refusal else "",
    )


def _shown(outcomes: Iterable[MarkDecision], state: IncidentState) -> MarkDecision | None:
    """Return the outcome that tells why an incident is in its state: of a dry run one that nothing withholds,
    else one with a reason.
    """
    found = [one for one in outcomes if one.state == state]
    found.sort(key=lambda one: bool(one.reason) == (state == IncidentState.DRY_RUN))
    return found[0] if found else None


def dry_run_message(mark: Mark, scope: str, why: str) -> str:
    """Return what a dry run would do, in words. why: what would withhold the mark; empty for nothing."""
    done = f"quarantine {scope}" if mark == Mark.QUARANTINE else f"mark {scope} suspect"
    return f"would not {done}: {why}" if why else f"would {done}"


def _recovery(
    story: NodeSituation, causes: Iterable[tuple[Device | None, MarkCause]]
) -> tuple[IncidentState, str]:
    unproven = sorted({cause.check for held, cause in causes if cause_key(held, cause) not in story.proofs})
    if not unproven:
        return IncidentState.RECOVERING, "proven to be over; the soak period runs"
    if story.report is None:
        return story.granted, "kept: the node's agent does not report, so nothing proves that it is over"
    return story.granted, f"kept until proven to be over by {', '.join(unproven)}"


def _symptom(one: ReportedFinding) -> Symptom:
    seen = tuple(f"{sight.source}: {sight.message}"[:_TEXT] for sight in one.evidence[:_EVIDENCE])
    return Symptom(one.check, one.target, one.health, one.message[:_TEXT], seen)


def update_incident(before: Incident | None, now: Incident, wall: float) -> Incident:
    """An incident as it is told now, with what is known of it from before. wall: seconds since the epoch."""
    if before is None:
        return replace(now, last_transition=wall)
    if before.state == IncidentState.RESOLVED:
        return replace(now, last_transition=wall, occurrences=before.occurrences + 1)
    same = replace(
        now,
        first_seen=before.first_seen,
        last_transition=before.last_transition,
        occurrences=before.occurrences,
        message=now.message or before.message,
    )
    return before if _gist(same) == _gist(before) else replace(same, last_transition=wall)


def _gist(one: Incident) -> tuple[object, ...]:
    found = {(each.check, each.target, each.health) for each in one.symptoms}
    reason = one.budget or one.detail
    said = one.state, one.health, one.cause, one.action, one.scope, one.component, reason, one.parent
    # Of what many nodes show, who shows what changes all the time.
    return *said, frozenset(found) if one.node else None
