"""The condition `NodeguardHealthy` of a Node: what happened there and what to do, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.fleet.heard import Heard
from nodeguard.model.mark import Cause, Mark, Record
from nodeguard.model.node import DETAILS, Condition
from nodeguard.model.slot import NODE, label
from nodeguard.wire.report import Active

_REASONS = {Mark.QUARANTINE: "Quarantined", Mark.SUSPECT: "Suspect"}
_KEPT = {Mark.QUARANTINE: "New work is kept off.", Mark.SUSPECT: "New gang work is kept off."}

# Faults that are described before the rest is counted, and characters of each description.
_SHOWN = 2
_LONGEST = 300


def condition(
    node: str, record: Record, heard: Heard | None, degraded: str, *, has_one: bool
) -> Condition | None:
    """Return the condition that a Node is to have; None for none.

    node: its name. heard: the node's latest report, None where there is none. degraded: what is wrong with
    the first domain that the record names. has_one: whether the Node has a condition of nodeguard's now.
    """
    marks = {cause.mark for cause in record.causes}
    worst = next((mark for mark in Mark if mark in marks), None)
    if worst is None and record.degraded:
        domain = record.degraded[0].domain
        what = (
            f"{degraded or f'{domain} is degraded'}. {_KEPT[Mark.SUSPECT]} The node needs no repair for it."
        )
        return Condition("True", "DomainDegraded", f"{what} {DETAILS}nodeguard explain domain {domain}")
    if worst is None:
        return Condition("True", "Healthy", "no mark is active") if has_one else None
    checks = ", ".join(sorted({cause.check for cause in record.causes}))
    details = f"{DETAILS}nodeguard explain node {node} ({checks[:_LONGEST]})"
    return Condition("False", _REASONS[worst], f"{_happened(record.causes, heard)} {_KEPT[worst]} {details}")


def _happened(causes: Iterable[Cause], heard: Heard | None) -> str:
    """Return what the causes of a mark are, the worst first, and the strongest action that they ask for."""
    found = [(cause, _finding(cause, heard)) for cause in causes]
    found.sort(key=lambda one: (one[0].mark != Mark.QUARANTINE, one[0].since, one[0].check, one[0].target))
    rest = len(found) - _SHOWN
    said = "; ".join(_described(cause, active) for cause, active in found[:_SHOWN])
    more = f"; and {rest} more" if rest > 0 else ""
    actions = [active.action for _, active in found if active is not None]
    do = max(actions, key=lambda one: one.rank, default=None)
    return f"{said}{more}." + (f" To do: {do.words}." if do is not None else "")


def _finding(cause: Cause, heard: Heard | None) -> Active | None:
    findings = heard.findings if heard is not None else ()
    return next((one for one in findings if (one.check, one.target) == (cause.check, cause.target)), None)


def _described(cause: Cause, active: Active | None) -> str:
    """Return one cause in words, with the slot that it is about."""
    slot = label(cause.target)
    if active is None or not active.message:
        return f"{cause.check} on {'the node' if cause.target == NODE else slot}"
    text = active.message[:_LONGEST].rstrip(".")
    return text if cause.target == NODE or slot in text else f"{slot}: {text}"
