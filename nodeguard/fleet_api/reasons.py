"""Reasons of decisions without the details of one node, so that those of many can be counted. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet_api.schema.capacity import ReasonCount
from nodeguard.model.incident import IncidentState, WriteState

# Reasons that are shown; the others are counted.
_SHOWN = 3

_TEXTS = {
    "stale": "the node's agent no longer reports",
    "annotation-size": "the record of the node's marks is full",
}
# Why a mark is not in effect, for one node or several.
_KINDS = {
    "annotation-size": _TEXTS["annotation-size"],
    "budget": "a budget has reached its limit",
    "pause": "new marks are paused",
    "frozen": "new marks are frozen",
    "check-hold": "the check is on hold",
    "suppressed-check": "the check is suppressed",
    "bad-job-start": "the start of a job is the likely cause",
    "withheld-domain": "the mark of the domain is withheld",
    "hold": "the node is on hold",
    "maintenance": "the node is under maintenance",
    "stale": "the node's agent no longer reports",
    "write": "the mark could not be written",
    "no-taint": "the policy sets no taint",
    "uncordoned": "an operator uncordoned the node",
}
_WRITES = {
    WriteState.REFUSED: "the write is refused by the API server",
    WriteState.PENDING: "the write is pending",
    WriteState.NOT_ACCEPTED: "waiting for the webhook that owns the node to accept it",
}


def short_reason(decision: MarkDecision) -> str:
    """Return why a mark is not set, without what differs between nodes; empty without a reason."""
    refusal = decision.refusal
    if decision.restraint == "budget" and refusal is not None:
        verb = "would reach" if decision.state == IncidentState.DRY_RUN else "has reached"
        return f"{refusal.budget} {verb} its limit ({refusal.amount})"
    if decision.state == IncidentState.PENDING:
        return "being written" if decision.is_being_written else "grace period"
    if decision.restraint == "write" and decision.write is not None:
        return _WRITES[decision.write]
    return _TEXTS.get(decision.restraint, decision.reason)


def reason_kind(decision: MarkDecision) -> str:
    """Return why a mark is not in effect, in a few words without names."""
    if decision.state == IncidentState.DRY_RUN:
        return "the check is not enforced"
    if decision.state == IncidentState.PENDING:
        return "the mark is being written" if decision.is_being_written else "the grace period has not ended"
    if decision.write == WriteState.NOT_ACCEPTED:
        return "the webhook that owns the node has not accepted the mark"
    return _KINDS.get(decision.restraint, "the mark is withheld")


def exhausted_budget(decision: MarkDecision) -> str:
    """Return the budget that refuses a mark, with its limit; empty if none does."""
    return decision.refusal.limit_message() if decision.refusal is not None else ""


def count_reasons(
    decisions: Iterable[MarkDecision], reason_of: Callable[[MarkDecision], str] = short_reason
) -> tuple[tuple[ReasonCount, ...], ReasonCount]:
    """Return the most frequent reasons of decisions, and the sum of all others: its text is their number."""
    marks: dict[str, int] = defaultdict(int)
    nodes: dict[str, set[str]] = defaultdict(set)
    for decision in decisions:
        reason = reason_of(decision)
        marks[reason] += 1
        nodes[reason].add(decision.request.uid)
    order = sorted(marks, key=lambda reason: (-marks[reason], reason))
    counts = [ReasonCount(reason, marks[reason], len(nodes[reason])) for reason in order]
    rest = counts[_SHOWN:]
    uids = {uid for reason in order[_SHOWN:] for uid in nodes[reason]}
    others = f"{len(rest)} more reason{'' if len(rest) == 1 else 's'}" if rest else ""
    return tuple(counts[:_SHOWN]), ReasonCount(others, sum(item.marks for item in rest), len(uids))
