"""Invariants of the drain candidates of every plan."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from nodeguard.fleet.drains import fleet_drain_candidates
from nodeguard.fleet.policy_rules import hold_on_check
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION, Mark
from tests.worlds.requirement import require
from tests.worlds.usage import domains_of

if TYPE_CHECKING:
    from tests.worlds.world import World


def check_drains(world: World, stale: Collection[str], *, is_frozen: bool) -> None:
    """Check that work leaves only hardware that is quarantined and has a real fault that is fatal now, and that it stays
    while anything forbids a drain. stale: uids of the nodes with a stale agent.
    """
    for candidate in fleet_drain_candidates(world.planner, world.now()):
        what, node = f"{candidate.node} {candidate.resource}", world.cluster.nodes.get(candidate.uid)
        report = world.aggregator.accepted.get(candidate.uid)
        require(node is not None and report is not None, "only a Node with a report is drained", what)
        assert node is not None
        assert report is not None
        fatal = {
            finding.check
            for finding in report.findings
            if (finding.health, finding.data_status) == (Health.FATAL, DataStatus.FRESH)
        }
        require(
            fatal.issuperset(candidate.checks), "only work on fatal faults leaves", what, candidate.checks
        )
        keeps_away = Mark.QUARANTINE.key in {taint.key for taint in node.taints} or node.unschedulable
        has_rule = any(rule.uid == node.uid for rule in world.cluster.rules.values())
        require(keeps_away or has_rule, "only quarantined hardware is drained", what)
        world.counts["blocked drain" if candidate.blocker else "drain"] += 1
        if candidate.blocker:
            continue
        require(not world.paused and not world.policy.pause, "no drain during a pause", what)
        require(not is_frozen, "no drain while too many agents are stale", what)
        require(node.uid not in stale, "no drain of a node with a stale agent", what)
        reasons = {HOLD_ANNOTATION, MAINTENANCE_ANNOTATION} & node.annotations.keys()
        require(not reasons, "no drain of a Node on hold or in maintenance", what, reasons)
        checks = world.planner.diagnosis.checks
        free = [
            check
            for check in candidate.checks
            if hold_on_check(world.policy, check) is None
            and checks.suppression(check, node.uid) is None
            and not checks.is_suspected(check, node.uid)
        ]
        require(free, "no drain by checks that are on hold, suppressed or suspected", what, candidate.checks)
        degraded = set(domains_of(node)) & world.planner.domain_marks.decisions.keys()
        require(not degraded, "no drain in a degraded domain", what, degraded)
