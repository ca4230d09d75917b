"""Operators' clears as actions, and the result of each as the answer to its decision. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from nodeguard.fleet.decide.mark_requests import resource
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.model.action import ActionKind, ActionState, FindingKey, NodeAction
from nodeguard.model.incident import ClearAnswer, Incident, OperatorDecision

# Findings of one clear: an agent remembers as many instructions.
_MAX_FINDINGS = 256

_ANSWERS = {ActionState.SUCCEEDED: ClearAnswer.DONE, ActionState.FAILED: ClearAnswer.REFUSED}


def requested_clear(
    incident: Incident | None, decision: OperatorDecision, report: LatestReport | None, now: float
) -> NodeAction | None:
    """Return the action for an operator's clear of an open incident of a node; None for no such clear: one of
    a domain or a check needs no agent. report: of the node. now: seconds since the epoch.
    """
    if incident is None or not (decision.clear and incident.node and incident.is_open):
        return None
    return NodeAction(
        ActionKind.CLEAR,
        incident.node,
        incident.uid,
        decision.clear,
        int(now),
        incident=incident.name,
        occurrence=_occurrence(incident, decision),
        findings=_findings(incident, report),
    )


def _occurrence(incident: Incident, decision: OperatorDecision) -> int:
    """Return the occurrence that a clear is for; 0 if its time tells."""
    return 0 if decision.cleared_at or incident.occurrences <= 1 else incident.occurrences


def _findings(incident: Incident, report: LatestReport | None) -> tuple[FindingKey, ...]:
    """Return the findings of an incident; for a mark without a finding, its cause. The report has those that
    the incident does not list.
    """
    findings = {FindingKey(symptom.check, symptom.target) for symptom in incident.symptoms} or {
        FindingKey(incident.cause, incident.target)
    }
    for finding, _, injected in report.faults() if report is not None and incident.symptoms_omitted else ():
        if (resource(finding), injected) == (incident.target, incident.injected):
            findings.add(FindingKey(finding.check, finding.target))
    return tuple(sorted(findings)[:_MAX_FINDINGS])


def with_answers(
    decisions: Mapping[str, OperatorDecision],
    actions: Iterable[NodeAction],
    incident: Callable[[str], Incident | None],
) -> dict[str, OperatorDecision]:
    """Return decisions with the results of their clears, as far as they are available."""
    latest: dict[tuple[str, str, int], NodeAction] = {}
    for action in sorted(actions, key=lambda action: action.attempt):
        if action.kind == ActionKind.CLEAR:
            latest[action.incident, action.request, action.occurrence] = action
    return {name: _with_answer(decision, latest, incident(name)) for name, decision in decisions.items()}


def _with_answer(
    decision: OperatorDecision, actions: Mapping[tuple[str, str, int], NodeAction], incident: Incident | None
) -> OperatorDecision:
    if not decision.clear:
        return decision
    occurrence = _occurrence(incident, decision) if incident is not None else 0
    action = actions.get((decision.incident, decision.clear, occurrence))
    if action is None or action.state.is_withdrawn:
        is_waiting = incident is not None and incident.is_open and bool(incident.node)
        return replace(decision, answer=ClearAnswer.WAITING) if is_waiting else decision
    if not action.state.is_finished:
        return replace(decision, answer=ClearAnswer.WAITING)
    answer = _ANSWERS.get(action.state)
    if answer == ClearAnswer.REFUSED and action.carried_out:
        answer = ClearAnswer.PARTLY
    return decision if answer is None else replace(decision, answer=answer, answer_message=action.message)
