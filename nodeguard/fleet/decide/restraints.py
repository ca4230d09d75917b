"""Restraints on new marks besides budgets: pause, hold, maintenance, diagnosis, stale agent. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet.decide.mark_requests import MarkRequest
from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.policy_rules import hold_on_check
from nodeguard.fleet.state.liveness import FROZEN, StaleAgents
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.policy import Policy

# Why a requested mark is not set: a value of the metrics' label `reason`.
RestraintKind = Literal[
    "budget",
    "pause",
    "check-hold",
    "suppressed-check",
    "bad-job-start",
    "withheld-domain",
    "hold",
    "maintenance",
    "stale",
    "frozen",
    "annotation-size",
    "write",
    "no-taint",
    "uncordoned",
]

# The restraints of a mark that is granted, and that is not in effect on its object.
UNOBSERVED: frozenset[str] = frozenset({"write", "no-taint", "uncordoned"})


class Restraint(Struct, frozen=True):
    """A reason that forbids a mark. message: as text."""

    kind: RestraintKind
    message: str


def pause_reason(paused: str, policy: Policy) -> str:
    """Return why new marks are paused; empty if they are not. paused: the reason of the operators' pause."""
    return paused or ("paused by the policy file" if policy.pause else "")


def fleet_restraint(paused: str, policy: Policy, agents: StaleAgents) -> str:
    """Return the reason that forbids every new mark; empty for none."""
    return pause_reason(paused, policy) or (FROZEN if agents.frozen else "")


def mark_restraint(
    request: MarkRequest,
    placement: NodePlacement,
    paused: str,
    policy: Policy,
    agents: StaleAgents,
    diagnosis: Diagnosis,
    withheld: str,
) -> Restraint | None:
    """Return the reason that forbids the requested mark; None if it is allowed. placement: of its node.
    withheld: why it is withheld with the mark of its domain; empty if it is not.
    """
    if reason := pause_reason(paused, policy):
        return Restraint("pause", reason)
    if policy.holds and (hold := hold_on_check(policy, request.check)):
        return Restraint("check-hold", f"check {request.check} is on hold: {hold}")
    if restraint := _diagnosis_restraint(request, diagnosis):
        return restraint
    if withheld:
        return Restraint("withheld-domain", withheld)
    if restraint := operator_restraint(placement):
        return restraint
    if request.uid in agents.stale:
        return Restraint("stale", "the node's agent no longer reports")
    return Restraint("frozen", FROZEN) if agents.frozen else None


def operator_restraint(placement: NodePlacement) -> Restraint | None:
    """Return why an operator wants a node left as it is; None for no reason."""
    if placement.hold:
        return Restraint("hold", f"the node is on hold: {placement.hold}")
    if placement.maintenance:
        return Restraint("maintenance", f"the node is under maintenance: {placement.maintenance}")
    return None


def work_restraint(placement: NodePlacement) -> str:
    """Return why the pods of a node stay, although nothing forbids a mark; empty for no reason. The program
    that plans a maintenance decides about the work.
    """
    if placement.planned_maintenance:
        return f"maintenance of the node is planned: {placement.planned_maintenance}"
    return ""


def _diagnosis_restraint(request: MarkRequest, diagnosis: Diagnosis) -> Restraint | None:
    """Return why the diagnosis forbids a requested mark; None if it does not. Only budgets limit the marks of
    facts: each is true on its node.
    """
    check, uid = request.check, request.uid
    if not request.fact and diagnosis.checks.suppression(check, uid) is not None:
        return Restraint("suppressed-check", f"check {check} is suppressed: see nodeguard status")
    if not request.fact and diagnosis.checks.is_suspected(check, uid):
        reason = f"check {check} may be wrong: it fires on more nodes than a failure domain explains"
        return Restraint("suppressed-check", reason)
    job = diagnosis.jobs.explaining_job(check, uid)
    if not job:
        return None
    shared = f"several nodes of job {job} have had this fault since the job started"
    return Restraint("bad-job-start", f"{shared}: the likely cause is the job, not this node")
