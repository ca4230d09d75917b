"""Incidents of one node, one for each component that failed: from findings and mark decisions. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.mark_requests import (
    fault_class,
    resource,
    resource_of,
)
from nodeguard.fleet.decide.observed_marks import NodeRemoval, WriteProblem
from nodeguard.fleet.decide.release import cause_key
from nodeguard.fleet.incidents.events import resolve, update_incident
from nodeguard.fleet.incidents.node_situation import NodeSituation
from nodeguard.fleet.incidents.parent_incidents import Subject
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.device import Device
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import GRANTED_STATES, Incident, IncidentState, Symptom
from nodeguard.model.instant import Instant
from nodeguard.model.job import limit_jobs
from nodeguard.model.mark import Mark, MarkCause, worst
from nodeguard.model.target import target_label
from nodeguard.wire.report import ReportedFinding

_SYMPTOMS = 8
_EVIDENCE = 3

# Maximum characters of a text. An agent truncates its own; a client with its credential may not.
_TEXT = 512

# The decision that an incident with several shows: the first of these.
_STATES = (
    IncidentState.MARKED,
    IncidentState.ADVISED,
    IncidentState.WITHHELD,
    IncidentState.DRY_RUN,
    IncidentState.PENDING,
)


class NodeIncidents(Struct, frozen=True):
    """The incidents of one node, by name.

    recorded: those that are stored, and those that are over. pending: those with a mark in its grace period,
    or that would be in it if their finding were confirmed (see NodeSituation); and those with a mark, or a
    removal, that is being written. A pending incident is not recorded: a fault that ends within its grace
    period leaves no trace, and a write that is observed soon costs no second write of the incident. A
    recorded incident of the same name stays as it is. transient: those that were pending, not recorded as
    open, and are over.
    """

    recorded: dict[str, Incident]
    pending: dict[str, Incident]
    transient: tuple[Incident, ...] = ()


def incidents_of(situation: NodeSituation, before: NodeIncidents, now: Instant) -> NodeIncidents:
    """Return the incidents of a node. before: as of the plan before.

    An incident changes with its state, health, cause, action or reason; another message is no change.
    """
    pending: dict[str, Incident] = {}
    recorded: dict[str, Incident] = {}
    current = _current(situation)
    for name, shown in current.items():
        past = before.recorded.get(name)
        if past is not None and _is_unconfirmed(past, shown.incident, situation.report):
            recorded[name] = past
        elif past is not None or not shown.is_covered:
            is_pending = shown.is_being_written or shown.incident.state == IncidentState.PENDING
            target = pending if is_pending else recorded
            target[name] = update_incident(past, shown.incident, now.wall)
    for name, past in before.recorded.items():
        if name in pending:
            has_lost_mark = past.state in _OF_MARKS and not current[name].is_being_written
            recorded[name] = resolve(past, now.wall) if has_lost_mark else past
        elif name not in recorded:
            recorded[name] = _without_findings(past, situation, now.wall)
    # The end of an open incident is recorded: its removal of a mark was pending.
    recorded_open = {name for name, incident in before.recorded.items() if incident.is_open}
    over = (
        incident
        for name, incident in before.pending.items()
        if name not in current and name not in recorded_open
    )
    return NodeIncidents(recorded, pending, tuple(resolve(incident, now.wall) for incident in over))


def _is_unconfirmed(past: Incident, incident: Incident, report: LatestReport | None) -> bool:
    """Return whether an open incident without a mark would only change as its report is late, as the first
    ones of a new leader can be: it asks for no mark until the node confirms it.
    """
    is_late = report is not None and report.late
    return is_late and incident.state == IncidentState.OPEN and past.is_open and past.state not in _OF_MARKS


# The states of an incident with an active mark.
_OF_MARKS = frozenset({*GRANTED_STATES, IncidentState.RECOVERING})


class _CurrentIncident(Struct, frozen=True):
    """An incident that a node shows now. is_covered: whether another incident covers it, or may soon.
    is_being_written: whether its mark, or the removal of its mark, may be observed soon.
    """

    incident: Incident
    is_being_written: bool
    is_covered: bool = False


def _current(situation: NodeSituation) -> dict[str, _CurrentIncident]:
    """Return the incidents that a node shows now, by name."""
    findings: dict[Subject, list[ReportedFinding]] = defaultdict(list)
    began: dict[Subject, float] = {}
    for finding, since, injected in situation.report.faults() if situation.report is not None else ():
        subject = resource(finding), injected
        findings[subject].append(finding)
        began[subject] = min(since, began.get(subject, since))
    causes: dict[Subject, list[tuple[Device | None, MarkCause]]] = defaultdict(list)
    for device, cause in situation.marks.causes():
        causes[resource_of(cause.target), cause.injected].append((device, cause))
    decisions = _by_subject(situation.decisions)
    shown = {}
    for subject in findings.keys() | causes.keys():
        shown_now = _incident(
            situation, subject, findings.get(subject, []), causes.get(subject, []), decisions.get(subject, [])
        )
        incident = shown_now.incident
        if incident.cause in situation.silenced:
            continue
        target, injected = subject
        parent = "" if injected or subject in causes else situation.shared.parents.get(target, "")
        is_early = subject in situation.shared.early and incident.state != IncidentState.PENDING
        is_covered = subject not in causes and (parent != "" or is_early)
        since = began[subject] if subject in began else min(cause.since for _, cause in causes[subject])
        name = incident_name(situation.placement, target, injected=injected)
        incident = replace(incident, name=name, first_seen=since, parent=parent)
        shown[name] = replace(shown_now, incident=incident, is_covered=is_covered)
    return shown


def _by_subject(decisions: Iterable[MarkDecision]) -> dict[Subject, list[MarkDecision]]:
    by_subject: dict[Subject, list[MarkDecision]] = defaultdict(list)
    for decision in decisions:
        by_subject[resource_of(decision.request.target), decision.request.injected].append(decision)
    return by_subject


def _without_findings(incident: Incident, situation: NodeSituation, now: float) -> Incident:
    """Return an incident without findings: without a report of the node, it is not over."""
    if incident.state == IncidentState.RESOLVED:
        return incident
    if situation.report is not None:
        return resolve(incident, now)
    if incident.state in _OF_MARKS:
        return replace(
            incident,
            state=IncidentState.OPEN,
            last_transition=now,
            scope="",
            mark=None,
            detail="no report of the node's agent",
        )
    return incident


def incident_name(placement: NodePlacement, target: str, *, injected: bool = False) -> str:
    """Return the name of the incident of a target in a node, the same in every aggregator."""
    readable = re.sub(r"[^a-z0-9-]+", "-", f"{placement.name[:120]}-{target[:80]}".lower()).strip("-")
    suffix = "-injected" if injected else ""
    return f"{readable}{suffix}-{blake2b(f'{placement.uid} {target}'.encode(), digest_size=4).hexdigest()}"


def _incident(
    situation: NodeSituation,
    subject: Subject,
    findings: list[ReportedFinding],
    causes: list[tuple[Device | None, MarkCause]],
    decisions: list[MarkDecision],
) -> _CurrentIncident:
    """Return the incident of one target as it is now, without its name and times."""
    placement = situation.placement
    target, injected = subject
    is_graced = not decisions and subject in situation.graced
    default = IncidentState.PENDING if is_graced else IncidentState.OPEN
    states = {decision.state for decision in decisions}
    state = next((state for state in _STATES if state in states), default)
    shown = _shown(decisions, state)
    detail = shown.reason if shown else ""
    mark = _active_mark(causes, decisions)
    write = shown.write if shown and state == IncidentState.WITHHELD else None
    is_being_written = any(decision.is_being_written for decision in decisions)
    removal = situation.removal
    if causes and state not in GRANTED_STATES and _is_removed(causes, removal):
        state = situation.granted if findings else IncidentState.RECOVERING
        problem = removal.problem(causes)
        detail, shown = _removal_text(problem), None
        write = problem.state if problem else None
        is_being_written = problem is None
    elif causes and state not in GRANTED_STATES:
        if shown and mark in shown.request.mark.kind.lesser:
            state, detail = situation.granted, _missing_mark(shown)
        else:
            state, detail, shown, write = *_recovery(situation, causes), None, None
    has_device = any(device is not None for device, _ in causes) or any(
        decision.state == state and decision.request.device is not None for decision in decisions
    )
    node_wide = any(device is None for device, _ in causes) or any(
        decision.state == state and decision.request.device is None for decision in decisions
    )
    scope = (
        f"node {placement.name}"
        if node_wide
        else f"{target_label(target)} of {placement.name}"
        if has_device
        else ""
    )
    if shown and state == IncidentState.DRY_RUN:
        detail = dry_run_message(shown.request.mark, scope, shown.reason)
    findings = sorted(
        findings,
        key=lambda finding: (-finding.health.rank, -finding.action.rank, -finding.age, finding.check),
    )
    worst_finding = findings[0] if findings else None
    jobs, jobs_omitted = limit_jobs(situation.jobs)
    _, first = min(causes, key=lambda item: item[1].since) if causes else (None, None)
    incident = Incident(
        name="",
        node=placement.name,
        uid=placement.uid,
        target=target,
        cause=worst_finding.check if worst_finding else first.check if first else "",
        health=worst_finding.health if worst_finding else (first and first.mark.kind.health) or Health.OK,
        state=state,
        first_seen=0.0,
        last_transition=0.0,
        scope=scope if state != IncidentState.OPEN else "",
        component=next(
            (finding.component for finding in findings if finding.component), first.component if first else ""
        ),
        fault_class=fault_class(worst_finding) if worst_finding else first.fault_class if first else "",
        action=_action(situation, findings, state, injected=injected),
        message=worst_finding.message[:_TEXT] if worst_finding else "",
        detail=detail,
        symptoms=tuple(_symptom(finding) for finding in findings[:_SYMPTOMS]),
        symptoms_omitted=max(0, len(findings) - _SYMPTOMS),
        budget=shown.refusal.limit_message() if shown and shown.refusal else "",
        mark=mark,
        jobs=jobs,
        jobs_omitted=jobs_omitted,
        injected=injected,
        hardware=next((finding.hardware for finding in findings if finding.hardware), None),
        write=write,
    )
    return _CurrentIncident(incident, is_being_written)


def _action(
    situation: NodeSituation, findings: Iterable[ReportedFinding], state: IncidentState, *, injected: bool
) -> Action:
    """Return the strongest action of findings. Without a mark, none of a suppressed check: its findings may
    be wrong, and the incident of the check has what to do.
    """
    ignored = frozenset[str]() if injected or state in _OF_MARKS else situation.shared.suppressed
    actions = (finding.action for finding in findings if finding.check not in ignored)
    return max(actions, key=lambda action: action.rank, default=Action.NONE)


def _is_removed(causes: list[tuple[Device | None, MarkCause]], removal: NodeRemoval) -> bool:
    """Return whether the plan removes all causes of a mark."""
    return all(removal.includes(device, cause) for device, cause in causes)


def _removal_text(problem: WriteProblem | None) -> str:
    """Return the state of the write that removes a mark."""
    return f"the write that removes the mark {problem.message}" if problem else "the mark is being removed"


def _shown(decisions: Iterable[MarkDecision], state: IncidentState) -> MarkDecision | None:
    """Return the decision that explains the state of an incident: of a dry run, one without a restraint if
    any; else one with a reason.
    """
    of_state = [decision for decision in decisions if decision.state == state]
    of_state.sort(key=lambda decision: bool(decision.reason) == (state == IncidentState.DRY_RUN))
    return of_state[0] if of_state else None


def dry_run_message(mark: Mark, scope: str, reason: str) -> str:
    """Return the effect of enforcement, as text. reason: why the mark would be withheld, or empty."""
    effect = mark.kind.effect.format(scope)
    return f"would not {effect}: {reason}" if reason else f"would {effect}"


def _recovery(
    situation: NodeSituation, causes: list[tuple[Device | None, MarkCause]]
) -> tuple[IncidentState, str]:
    waits = [
        situation.waits[cause_key(device, cause)]
        for device, cause in causes
        if not situation.removal.includes(device, cause)
    ]
    messages = dict.fromkeys(wait.message for wait in waits if wait.kind != "soak")
    if not messages:
        passing = "the check passes" if len({cause.check for _, cause in causes}) == 1 else "the checks pass"
        return IncidentState.RECOVERING, f"{passing}; the soak period runs"
    first, *others = messages
    more = f" (and {len(others)} more)" if others else ""
    return situation.granted, f"waits for {first}{more}"


def _active_mark(
    causes: list[tuple[Device | None, MarkCause]], decisions: Iterable[MarkDecision]
) -> Mark | None:
    """Return the most severe mark that is in effect; None for none."""
    marks = {cause.mark for _, cause in causes}
    marks |= {decision.request.mark for decision in decisions if decision.state in GRANTED_STATES}
    return worst(marks)


def _missing_mark(decision: MarkDecision) -> str:
    """Return why a node with a lesser mark does not have the requested one."""
    reason = f": {decision.reason}" if decision.reason else ""
    match decision.state:
        case IncidentState.DRY_RUN:
            withheld = f", and would be withheld{reason}" if reason else ""
            return f"{decision.request.mark} is not enforced{withheld}"
        case state:
            return f"{decision.request.mark} is {state.phrase}{reason}"


def _symptom(finding: ReportedFinding) -> Symptom:
    evidence_texts = tuple(
        f"{evidence.source}: {evidence.message}"[:_TEXT] for evidence in finding.evidence[:_EVIDENCE]
    )
    omitted = len(finding.evidence) - len(evidence_texts) + finding.omitted
    return Symptom(
        finding.check, finding.target, finding.health, finding.message[:_TEXT], evidence_texts, omitted
    )
