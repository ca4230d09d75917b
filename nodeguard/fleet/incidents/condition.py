"""The condition `NodeguardHealthy` of a Node: what happened and what to do. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable

from nodeguard.fleet.decide.release import CauseKey, cause_key
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
        return NodeCondition("True", "Healthy", "no mark is active") if before is not None else None
    effect = f"{mark.kind.excluded_work.capitalize()} is kept off."
    if not record.causes:
        domain = record.degraded[0].domain
        message = f"{degraded or f'{domain} is degraded'}. {effect} The node needs no repair for it."
        message = f"{message} {DETAILS_PREFIX}nodeguard describe domain {domain}"
        return NodeCondition("True", mark.kind.condition_reason, message)
    findings = [(cause, _finding(cause, report)) for cause in record.causes]
    findings.sort(key=lambda item: (item[0].mark.rank, item[0].since, item[0].check, item[0].target))
    details = f"nodeguard describe node {node} ({_faults(cause for cause, _ in findings)})."
    # On a node with a hold, a fault that has returned still has its earlier proof.
    unproven = [
        finding for cause, finding in findings if finding is not None or cause_key(None, cause) not in proven
    ]
    message = f"{_happened(findings)} {effect} {DETAILS_PREFIX}{_advice(unproven, details, before)}"
    return NodeCondition("False", mark.kind.condition_reason, message)


def _faults(causes: Iterable[MarkCause]) -> str:
    """Return the checks with their targets in the order of the message; of many, the first and the number."""
    faults = [f"{cause.check} on {_place(cause)}" for cause in causes]
    text = ", ".join(faults)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…, {len(faults)} faults in all"


def _with_action(details: str, action: Action | None) -> str:
    return details if action is None else f"{details} To do: {action.phrase}."


def _advice(findings: list[ReportedFinding | None], details: str, before: NodeCondition | None) -> str:
    """Return the details with the strongest action for the causes of a mark that are not over.

    findings: of these causes. Where one has no finding now, an action that the condition named before for the
    same faults counts, too: no check has reported that the fault is over, and a restart must not change the
    condition.
    """
    recovering = f"{details} {_RECOVERING}"
    if not findings:
        return recovering
    actions = [finding.action for finding in findings if finding is not None]
    if None in findings and before is not None:
        _, _, named = before.message.rpartition(DETAILS_PREFIX)
        if named == recovering and not actions:
            return recovering
        actions += [action for action in Action if named == _with_action(details, action)]
    return _with_action(details, max(actions, key=lambda action: action.rank, default=None))


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
