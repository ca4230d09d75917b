"""The condition `NodeguardHealthy` of a Node: what happened there and what to do, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.model.finding import Action
from nodeguard.model.mark import Mark, MarkCause, MarkRecord
from nodeguard.model.node import DETAILS_PREFIX, NodeCondition
from nodeguard.model.target import NODE, target_label
from nodeguard.wire.report import ReportedFinding

_REASONS = {Mark.QUARANTINE: "Quarantined", Mark.SUSPECT: "Suspect"}
_KEPT = {Mark.QUARANTINE: "New work is kept off.", Mark.SUSPECT: "New gang work is kept off."}

# Faults that are described before the rest is counted, and characters of each description, and of the list
# of faults in the details.
_SHOWN = 2
_LONGEST = 300


def node_condition(
    node: str, record: MarkRecord, heard: LatestReport | None, degraded: str, before: NodeCondition | None
) -> NodeCondition | None:
    """Return the condition that a Node is to have; None for none.

    node: its name. heard: the node's latest report, None where there is none. degraded: what is wrong with
    the first domain that the record names. before: the Node's condition of nodeguard's now, None for none.
    """
    marks = {cause.mark for cause in record.causes}
    worst = next((mark for mark in Mark if mark in marks), None)
    if worst is None and record.degraded:
        domain = record.degraded[0].domain
        what = (
            f"{degraded or f'{domain} is degraded'}. {_KEPT[Mark.SUSPECT]} The node needs no repair for it."
        )
        return NodeCondition(
            "True", "DomainDegraded", f"{what} {DETAILS_PREFIX}nodeguard describe domain {domain}"
        )
    if worst is None:
        return NodeCondition("True", "Healthy", "no mark is active") if before is not None else None
    found = [(cause, _finding(cause, heard)) for cause in record.causes]
    found.sort(key=lambda one: (one[0].mark != Mark.QUARANTINE, one[0].since, one[0].check, one[0].target))
    details = f"nodeguard describe node {node} ({_faults(cause for cause, _ in found)})."
    action = _action([active for _, active in found], details, before)
    what = f"{_happened(found)} {_KEPT[worst]} {DETAILS_PREFIX}{_with_action(details, action)}"
    return NodeCondition("False", _REASONS[worst], what)


def _faults(causes: Iterable[MarkCause]) -> str:
    """Return each check with its slot, in the order of the message; of very many the first, and how many."""
    faults = [f"{cause.check} on {_place(cause)}" for cause in causes]
    text = ", ".join(faults)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…, {len(faults)} faults in all"


def _with_action(details: str, action: Action | None) -> str:
    return details if action is None else f"{details} To do: {action.phrase}."


def _action(
    findings: list[ReportedFinding | None], details: str, before: NodeCondition | None
) -> Action | None:
    """Return the strongest action that the findings of a mark's causes ask for; None where none is known.

    Where a cause has no finding now, an action that the condition named before for the same faults counts,
    too: the fault is not proven to be over, and the condition does not change with each restart.
    """
    actions = [finding.action for finding in findings if finding is not None]
    if None in findings and before is not None:
        _, _, named = before.message.rpartition(DETAILS_PREFIX)
        actions += [action for action in Action if named == _with_action(details, action)]
    return max(actions, key=lambda action: action.rank, default=None)


def _happened(found: list[tuple[MarkCause, ReportedFinding | None]]) -> str:
    """Return what the causes of a mark are, the worst first."""
    rest = len(found) - _SHOWN
    said = "; ".join(_described(cause, active) for cause, active in found[:_SHOWN])
    more = f"; and {rest} more" if rest > 0 else ""
    return f"{said}{more}."


def _finding(cause: MarkCause, heard: LatestReport | None) -> ReportedFinding | None:
    findings = heard.findings if heard is not None else ()
    return next((one for one in findings if (one.check, one.target) == (cause.check, cause.target)), None)


def _described(cause: MarkCause, active: ReportedFinding | None) -> str:
    """Return one cause in words, with the slot that it is about."""
    slot = target_label(cause.target)
    if active is None or not active.message:
        return f"{cause.check} on {_place(cause)}"
    text = active.message[:_LONGEST].rstrip(".")
    return text if cause.target == NODE or slot in text else f"{slot}: {text}"


def _place(cause: MarkCause) -> str:
    return "the node" if cause.target == NODE else target_label(cause.target)
