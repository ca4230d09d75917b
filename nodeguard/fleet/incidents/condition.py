"""The condition `NodeguardHealthy` of a Node: what happened and what to do. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable

from nodeguard.fleet.decide.release import CauseKey, cause_key
from nodeguard.fleet.incidents.condition_reason import (
    DOMAIN_DEGRADED,
    FAULT_REASONS,
    HEALTHY,
    FaultReason,
    reason_class,
)
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.model.finding import Action
from nodeguard.model.injection import PREFIX
from nodeguard.model.mark import MarkCause, MarkRecord, worst
from nodeguard.model.node import DETAILS_PREFIX, NodeCondition
from nodeguard.model.target import NODE, target_label
from nodeguard.wire.report import ReportedFinding

# Faults that are described before the rest is counted, and characters of each description, and of the list
# of faults in the details.
_SHOWN = 2
_LONGEST = 300

# Follows the details in place of the action: an operator who has carried it out must not do so again.
_RECOVERING = "No action is needed now: the checks pass, and the soak period runs."


def node_condition(
    node: str,
    record: MarkRecord,
    report: LatestReport | None,
    proven: Container[CauseKey],
    degraded: str,
    before: NodeCondition | None,
) -> NodeCondition | None:
    """Return the condition for a Node; None for none.

    node: its name. report: the node's latest report, None if there is none. proven: the causes that are over
    and in their soak period. degraded: message about the first domain of the record. before: the Node's
    current condition of nodeguard, None for none.
    """
    mark = worst(record.marks)
    if mark is None:
        return NodeCondition("True", HEALTHY, "no mark is active") if before is not None else None
    effect = f"{mark.kind.excluded_work.capitalize()} is kept off."
    if not record.causes:
        domain = record.degraded[0].domain
        message = f"{degraded or f'{domain} is degraded'}. {effect} The node needs no repair for it."
        message = f"{message} {DETAILS_PREFIX}nodeguard describe domain {domain}"
        return NodeCondition("True", DOMAIN_DEGRADED, message)
    findings = [(cause, _finding(cause, report)) for cause in record.causes]
    findings.sort(key=lambda item: (item[0].mark.rank, item[0].since, item[0].check, item[0].target))
    details = f"nodeguard describe node {node} ({_faults(cause for cause, _ in findings)})."
    reason = _reason(findings, proven, before)
    message = f"{_happened(findings)} {effect} {DETAILS_PREFIX}{details}{_advice(reason)}"
    return NodeCondition("False", reason.name, message)


def _reason(
    findings: list[tuple[MarkCause, ReportedFinding | None]],
    proven: Container[CauseKey],
    before: NodeCondition | None,
) -> FaultReason:
    """Return the class and the action of the worst cause: the one with the strongest action, then the worst
    mark; a cause that is over has none.

    findings: of each cause, worst mark first. Where a cause has no finding now, the reason that the condition
    had before for its class counts: no check has reported that the fault is over, and a restart must not
    change the condition.
    """
    previous = FAULT_REASONS.get(before.reason) if before is not None else None
    reasons = []
    for cause, finding in findings:
        fault = reason_class(cause.fault_class)
        # On a node with a hold, a fault that has returned still has its earlier proof.
        if finding is not None:
            reasons.append(FaultReason(fault, finding.action))
        elif cause_key(None, cause) not in proven:
            is_same = previous is not None and (previous.recovering or previous.fault == fault)
            reasons.append(previous if previous is not None and is_same else FaultReason(fault))
    recovering = FaultReason(reason_class(findings[0][0].fault_class), recovering=True)
    return max(reasons, key=lambda reason: reason.action.rank, default=recovering)


def _advice(reason: FaultReason) -> str:
    if reason.recovering:
        return f" {_RECOVERING}"
    return "" if reason.action == Action.NONE else f" To do: {reason.action.phrase}."


def _faults(causes: Iterable[MarkCause]) -> str:
    """Return the checks with their targets in the order of the message; of many, the first and the number."""
    faults = [f"{cause.check} on {_place(cause)}" for cause in causes]
    text = ", ".join(faults)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…, {len(faults)} faults in all"


def _happened(findings: list[tuple[MarkCause, ReportedFinding | None]]) -> str:
    """Return the causes of a mark as text, the worst first."""
    rest = len(findings) - _SHOWN
    text = "; ".join(_described(cause, finding) for cause, finding in findings[:_SHOWN])
    more = f"; and {rest} more" if rest > 0 else ""
    return f"{text}{more}."


def _finding(cause: MarkCause, report: LatestReport | None) -> ReportedFinding | None:
    faults = report.faults() if report is not None else ()
    return next(
        (
            fault.finding
            for fault in faults
            if (fault.finding.check, fault.finding.target) == (cause.check, cause.target)
        ),
        None,
    )


def _described(cause: MarkCause, finding: ReportedFinding | None) -> str:
    """Return one cause as text, with its target; that of an injected fault begins with PREFIX."""
    prefix, target = PREFIX if cause.injected else "", target_label(cause.target)
    if finding is None or not finding.message:
        return f"{prefix}{cause.check} on {_place(cause)}"
    text = finding.message.removeprefix(PREFIX)[:_LONGEST].rstrip(".")
    return f"{prefix}{text}" if cause.target == NODE or target in text else f"{prefix}{target}: {text}"


def _place(cause: MarkCause) -> str:
    return "the node" if cause.target == NODE else target_label(cause.target)
