"""The drains of the whole fleet: candidates, their limits, and failed ones. It only reads the planner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import (
    DrainCandidate,
    drain_candidates,
    drain_request,
    resources,
)
from nodeguard.fleet.act.drain_limits import DrainUse, drain_usage, within_limits
from nodeguard.fleet.act.drain_progress import is_quarantined, manual_drains
from nodeguard.fleet.decide.mark_requests import unconfirmed_requests
from nodeguard.fleet.decide.restraints import operator_restraint, work_restraint
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.policy_rules import drain_after
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.drain import DrainMode, DrainRule, DrainWhen
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.policy import Policy

# The ends of a drain after which pods stayed, or may have stayed.
_FAILED = frozenset({ActionState.FAILED, ActionState.UNKNOWN})


def fleet_drain_candidates(
    planner: Planner, now: Instant, actions: Iterable[NodeAction] = ()
) -> list[DrainCandidate]:
    """Return the candidates of all nodes as of the latest plan: those by the rules of the policy, and those
    of the drains that operators requested. actions: all that are stored. Only the nodes with mark requests
    are looked at, and none while drains are disabled.
    """
    if planner.policy.drain.mode == DrainMode.DISABLED:
        return []
    requested = manual_drains(actions)
    candidates = [
        candidate
        for uid in planner.tracker.decisions
        for candidate in _candidates(planner, planner.policy, uid, now)
        if (uid, candidate.request) not in requested
    ]
    for uid in sorted({uid for uid, _ in requested}):
        manual = node_drain_candidates(planner, uid, now)
        candidates += [candidate for candidate in manual if (uid, candidate.request) in requested]
    return candidates


def node_drain_candidates(planner: Planner, uid: str, now: Instant) -> list[DrainCandidate]:
    """Return the candidates of one node as if the policy had rules to evict for all checks."""
    rules = (DrainRule(DrainWhen.IMMEDIATELY, check="*"),)
    policy = replace(planner.policy, drain=replace(planner.policy.drain, rules=rules))
    return list(_candidates(planner, policy, uid, now))


def _candidates(planner: Planner, policy: Policy, uid: str, now: Instant) -> Iterator[DrainCandidate]:
    """Yield the candidates of one node. policy: has the rules of drains."""
    state = planner.state
    node, placement, report = state.nodes.get(uid), state.placements.get(uid), state.reports.get(uid)
    # The receiver of a webhook that owns a node decides about its work.
    if node is None or node.owner or placement is None or report is None:
        return
    yield from drain_candidates(
        policy,
        planner.tracker.decisions.get(uid, ()),
        placement,
        state.marks_in_effect(uid),
        report,
        partial(planner.restraint, now=now),
        planner.domain_marks.decisions.keys(),
    )


def is_unread(planner: Planner, action: NodeAction) -> bool:
    """Return whether the fault of an action may go on, although it has no candidate: its quarantine and its
    rule do, and its Node has no report yet, a late one, or one in which the fault is not fresh.
    """
    state, policy = planner.state, planner.policy
    node, report = state.nodes.get(action.uid), state.reports.get(action.uid)
    marks = state.drain_marks(action.uid)
    if node is None or node.owner or not is_quarantined(action, marks):
        return False
    if report is None or report.late:
        return any(drain_after(policy, cause.check) is not None for _, cause in marks)
    return any(
        request.mark.kind.drains
        and not request.injected
        and drain_after(policy, request.check) is not None
        and action.request in map(drain_request, resources(request))
        for request in unconfirmed_requests(state.placements[action.uid], report)
    )


def node_restraint(planner: Planner, name: str) -> str:
    """Return why the pods of a node stay, although their gang leaves other nodes; empty for no reason. name:
    of the node.
    """
    state = planner.state
    uid = state.uid(name)
    node, placement = state.nodes.get(uid), state.placements.get(uid)
    if node is not None and node.owner:
        return owner_reason(node)
    if placement is None:
        return ""
    restraint = operator_restraint(placement)
    return work_restraint(placement) if restraint is None else restraint.message


def owner_reason(node: InventoryNode) -> str:
    """Return why nodeguard evicts no pod of a node that a webhook owns."""
    return f"the receiver of webhook {node.owner} decides about its work"


def limited_drains(
    planner: Planner,
    actions: Iterable[NodeAction],
    candidates: Collection[DrainCandidate],
    age: Callable[[NodeAction], float],
    use: Callable[[DrainCandidate], DrainUse] = lambda candidate: DrainUse(candidate.uid),
) -> list[DrainCandidate]:
    """Return the candidates, those beyond a limit with it as their blocker; see within_limits. candidates:
    those with pods that may leave, as any other needs no part of a limit. actions: all that are stored. age:
    seconds since the begin of a drain. use: what a candidate would use of the limits.
    Limits are for new drains: a candidate with a stored drain stays as it is.
    """
    state = planner.state
    drains = [action for action in actions if action.kind == ActionKind.DRAIN]
    stored = {(drain.uid, drain.request) for drain in drains if not drain.is_closed}
    old = [candidate for candidate in candidates if (candidate.uid, candidate.request) in stored]
    new = [candidate for candidate in candidates if (candidate.uid, candidate.request) not in stored]
    usage = drain_usage(drains, age)
    limits = planner.policy.drain.limits
    return old + within_limits(new, usage, limits, state.placements, state.budgets.size, use)


def failed_drains(planner: Planner, actions: Iterable[NodeAction]) -> list[NodeAction]:
    """Return the drains of which pods stayed, or may have stayed, and that need a person, by name of the
    node. actions: all that are stored.
    """
    failed = [
        action
        for action in actions
        if action.kind == ActionKind.DRAIN and action.state in _FAILED and _needs_person(action, planner)
    ]
    return sorted(failed, key=lambda action: (action.node, action.key))


def _needs_person(action: NodeAction, planner: Planner) -> bool:
    """Return whether a failed drain still matters: while its quarantine is active. If that was released
    half-way, the rest of a gang is on other nodes: it matters as long as the action is stored.
    """
    if action.released_at:
        return bool(action.pod_groups) and action.released_at <= action.ended_at
    return is_quarantined(action, planner.state.drain_marks(action.uid))
