"""The condition `NodeguardHealthy` of a Node: what happened and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nodeguard.executors.kube.condition_reason import (
    DOMAIN_DEGRADED,
    FAULT_REASONS,
    HEALTHY,
    FaultReason,
    reason_class,
)
from nodeguard.model.decision import CauseFacts, HealthFacts
from nodeguard.model.finding import Action
from nodeguard.model.injection import PREFIX
from nodeguard.model.mark import MarkCause, MarkRecord, worst
from nodeguard.model.node import DETAILS_PREFIX, NodeCondition
from nodeguard.model.target import NODE, target_label

# Faults that are described before the rest is counted, and characters of each description, and of the list
# of faults in the details.
_SHOWN = 2
_LONGEST = 300

# Follows the details in place of the action: an operator who has carried it out must not do so again.
_RECOVERING = "No action is needed now: the checks pass, and the soak period runs."


def node_condition(
    node: str, record: MarkRecord, facts: HealthFacts, before: NodeCondition | None
) -> NodeCondition | None:
    """Return the condition for a Node; None for none.

    node: its name. facts: about the record. before: the Node's current condition of nodeguard, None for none.
    """
    mark = worst(record.marks)
    if mark is None:
        return NodeCondition("True", HEALTHY, "no mark is active") if before is not None else None
    effect = f"{mark.kind.excluded_work.capitalize()} is kept off."
    if not record.causes:
        domain = record.degraded[0].domain
        happened = facts.degraded or f"{domain} is degraded"
        repair = f"The node needs no repair for it{f': {facts.owner} acts' if facts.owner else ''}."
        message = f"{happened}. {effect} {repair} {DETAILS_PREFIX}nodeguard describe domain {domain}"
        return NodeCondition("True", DOMAIN_DEGRADED, message)
    faults = sorted(facts.causes or map(CauseFacts, record.causes), key=_order)
    details = f"nodeguard describe node {node} ({_faults(fault.cause for fault in faults)})."
    reason = _reason(faults, before)
    message = f"{_happened(faults)} {effect} {DETAILS_PREFIX}{details}{_advice(reason)}"
    return NodeCondition("False", reason.name, message)


def _reason(faults: Sequence[CauseFacts], before: NodeCondition | None) -> FaultReason:
    """Return the class and the action of the worst cause: the one with the strongest action, then the worst
    mark; a cause that is over has none.

    faults: worst mark first. Where a cause has no finding now, the reason that the condition had before for
    its class counts: no check has reported that the fault is over, and a restart must not change the
    condition.
    """
    previous = FAULT_REASONS.get(before.reason) if before is not None else None
    reasons = []
    for fault in faults:
        kind = reason_class(fault.cause.fault_class)
        # On a node with a hold, a fault that has returned still has its earlier proof.
        if fault.action is not None:
            reasons.append(FaultReason(kind, fault.action))
        elif not fault.is_proven:
            is_same = previous is not None and (previous.recovering or previous.fault == kind)
            reasons.append(previous if previous is not None and is_same else FaultReason(kind))
    recovering = FaultReason(reason_class(faults[0].cause.fault_class), recovering=True)
    return max(reasons, key=lambda reason: reason.action.rank, default=recovering)


def _advice(reason: FaultReason) -> str:
    if reason.recovering:
        return f" {_RECOVERING}"
    return "" if reason.action == Action.NONE else f" To do: {reason.action.phrase}."


def _order(fault: CauseFacts) -> tuple[int, float, str, str]:
    cause = fault.cause
    return cause.mark.rank, cause.since, cause.check, cause.target


def _faults(causes: Iterable[MarkCause]) -> str:
    """Return the checks with their targets in the order of the message; of many, the first and the number."""
    faults = [f"{cause.check} on {_place(cause)}" for cause in causes]
    text = ", ".join(faults)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…, {len(faults)} faults in all"


def _happened(faults: Sequence[CauseFacts]) -> str:
    """Return the causes of a mark as text, the worst first."""
    rest = len(faults) - _SHOWN
    text = "; ".join(map(_described, faults[:_SHOWN]))
    more = f"; and {rest} more" if rest > 0 else ""
    return f"{text}{more}."


def _described(fault: CauseFacts) -> str:
    """Return one cause as text, with its target; that of an injected fault begins with PREFIX."""
    cause = fault.cause
    prefix, target = PREFIX if cause.injected else "", target_label(cause.target)
    if not fault.message:
        return f"{prefix}{cause.check} on {_place(cause)}"
    text = fault.message.removeprefix(PREFIX)[:_LONGEST].rstrip(".")
    return f"{prefix}{text}" if cause.target == NODE or target in text else f"{prefix}{target}: {text}"


def _place(cause: MarkCause) -> str:
    return "the node" if cause.target == NODE else target_label(cause.target)
