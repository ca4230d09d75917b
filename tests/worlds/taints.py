"""The taints of nodeguard in a world: those that are on its Nodes, and those that a budget withholds."""

from __future__ import annotations

from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import Mark
from nodeguard.model.node import PREFIX
from tests.worlds.usage import topologies_of
from tests.worlds.world import World


def taints_of(world: World) -> set[tuple[str, str, str]]:
    """Return nodeguard's taints by Node, that of degraded domains once for each topology, and device rules."""
    taints = {
        (node.name, taint.key.removeprefix(PREFIX), value)
        for node in world.cluster.nodes.values()
        for taint in node.taints
        if taint.key.startswith(PREFIX)
        for value in (topologies_of(node) if taint.key == Mark.DOMAIN_DEGRADED.key else {taint.value})
    }
    return taints | {(rule.node, "device", rule.device) for rule in world.cluster.rules.values()}


def withheld_domain_taints(world: World) -> set[tuple[str, str, str]]:
    """Return the taints of degraded domains that a budget withholds, with the names of their Nodes."""
    members, nodes = world.planner.vote_collector.domain_members, world.cluster.nodes
    return {
        (nodes[uid].name, Mark.DOMAIN_DEGRADED.key.removeprefix(PREFIX), domain.degraded.topology)
        for domain in world.planner.domain_marks.decisions.values()
        if domain.state == IncidentState.WITHHELD and "budget" in domain.reason
        for uid in members.nodes(domain.degraded.domain)
        if uid in nodes
    }
