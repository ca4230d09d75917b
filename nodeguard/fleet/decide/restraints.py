"""What forbids a new mark whatever it costs: pauses, holds, maintenance, suppressed checks, silence. Pure."""

from __future__ import annotations

from nodeguard.fleet.decide.mark_requests import MarkRequest
from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.policy_rules import hold_on_check
from nodeguard.fleet.state.liveness import FROZEN, StaleAgents
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.policy import Policy


def pause_reason(paused: str, policy: Policy) -> str:
    """Return why new marks are paused; empty where they are not. paused: by people, with the reason."""
    return paused or ("paused by the policy file" if policy.pause else "")


def fleet_restraint(paused: str, policy: Policy, silence: StaleAgents) -> str:
    """Return what forbids every new mark; empty for nothing."""
    return pause_reason(paused, policy) or (FROZEN if silence.frozen else "")


def mark_restraint(
    want: MarkRequest,
    seat: NodePlacement,
    paused: str,
    policy: Policy,
    silence: StaleAgents,
    diagnosis: Diagnosis,
) -> str:
    """Return what forbids the mark that a request asks for; empty for nothing. seat: of its node."""
    if why := pause_reason(paused, policy):
        return why
    if held := hold_on_check(policy, want.check):
        return f"hold on check {want.check}: {held}"
    if diagnosis.suppression(want.check, want.uid) is not None:
        return f"check {want.check} is suppressed: see nodeguard status"
    if diagnosis.is_suspected(want.check):
        return f"check {want.check} may be wrong: it fires on more nodes than a failure domain explains"
    if seat.hold:
        return f"hold on the node: {seat.hold}"
    if seat.maintenance:
        return f"the node is under maintenance: {seat.maintenance}"
    if want.uid in silence.stale:
        return "the node's agent does not report any more"
    return FROZEN if silence.frozen else ""
