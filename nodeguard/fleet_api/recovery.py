"""Commands for a node of the fleet, typed on a machine that is not the node. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nodeguard.fleet.drains import node_drain_candidates
from nodeguard.fleet.planner import Planner
from nodeguard.judge.formatting import general_remedy
from nodeguard.model.check import Check
from nodeguard.model.drain import DrainMode
from nodeguard.model.finding import Action
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.recovery import Recovery, Site, recovery_commands, resets_together
from nodeguard.model.target import target_kind
from nodeguard.wire.report import Inventory, ReportedFinding


def finding_commands(
    planner: Planner, uid: str, name: str, now: Instant, checks: Mapping[str, Check]
) -> Callable[[ReportedFinding], tuple[str, ...]]:
    """Return the function that gives the commands of a finding of a node; none while its check is suppressed
    there, unless the finding has a mark, as a fact may. checks: by id.
    """
    site = _site(planner, uid, name, now)
    marked = {(cause.check, cause.target) for _, cause in planner.state.marks_in_effect(uid).causes()}

    def commands(finding: ReportedFinding) -> tuple[str, ...]:
        is_suppressed = planner.diagnosis.checks.suppression(finding.check, uid) is not None
        if is_suppressed and (finding.check, finding.target) not in marked:
            return ()
        return recovery_commands(Recovery.of(finding, finding.check, checks), site)

    return commands


def remedy(name: str, action: Action, checks: Mapping[str, Check]) -> str:
    """Return what to do about a finding or an incident of a check; empty if the check is not known, or
    recommends another action.
    """
    check = checks.get(name)
    return general_remedy(check) if check is not None and check.action == action else ""


def incident_commands(
    planner: Planner, incident: Incident, now: Instant, checks: Mapping[str, Check]
) -> tuple[str, ...]:
    """Return the commands of an incident; none if no hardware of one node failed, or if it is over."""
    if not incident.node or incident.injected or incident.state == IncidentState.RESOLVED:
        return ()
    recovery = Recovery.of(incident, incident.cause, checks)
    return recovery_commands(recovery, _site(planner, incident.uid, incident.node, now))


def _site(planner: Planner, uid: str, name: str, now: Instant) -> Site:
    report = planner.reports.get(uid)
    inventory = report.inventory if report else Inventory()
    inventory_node = planner.node(uid)
    is_owned = inventory_node is not None and bool(inventory_node.owner)
    is_kubernetes = planner.granted == IncidentState.MARKED and not is_owned
    can_drain = is_kubernetes and planner.policy.drain.mode != DrainMode.DISABLED
    candidates = node_drain_candidates(planner, uid, now) if can_drain else ()
    return Site(
        node=name,
        scheduler="kubernetes" if is_kubernetes else "",
        on_node=False,
        resets_together=resets_together(
            [component.model for component in inventory.components.values()],
            sum(target_kind(target) == "nvswitch" for target in inventory.components),
        ),
        drainable=frozenset(candidate.resource for candidate in candidates if not candidate.is_whole_node),
    )
