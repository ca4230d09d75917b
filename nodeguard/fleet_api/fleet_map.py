"""The map of the fleet: every node in its failure domain of one topology, faulty ones first. Pure."""

from __future__ import annotations

import re
from collections import defaultdict

from msgspec import Struct

from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.domain import list_topologies
from nodeguard.fleet_api.node import UNKNOWN, list_nodes
from nodeguard.fleet_api.schema.node import NodeSummary
from nodeguard.model.diagnosis import VERSION_TOPOLOGIES
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant

# The topology of a fleet without topologies; every node has at most one pool.
POOLS = "pool"

# Health of nodes on the map, worst first.
SEVERITIES = (Health.FATAL.value, Health.SUSPECT.value, Health.WARNING.value, UNKNOWN, Health.OK.value)
_RANK = {health: rank for rank, health in enumerate(SEVERITIES)}

_DIGITS = re.compile(r"([0-9]{1,18})")


class MapGroup(Struct, frozen=True):
    """The nodes of one domain, worst first, then by name.

    domain: path; a pool's name; empty for nodes without a domain. degraded: path of the domain, or of the
    nearest one that includes it, that is degraded; empty for none. state: of that domain's mark.
    """

    domain: str
    nodes: tuple[NodeSummary, ...]
    degraded: str = ""
    state: IncidentState | None = None

    @property
    def faulty(self) -> int:
        """Return how many nodes are not ok."""
        return sum(1 for node in self.nodes if node.health != Health.OK)


class FleetMap(Struct, frozen=True):
    """The map by one topology. topologies: those to choose from. groups: degraded and faulty ones first."""

    topology: str
    topologies: tuple[str, ...]
    groups: tuple[MapGroup, ...]


def fleet_map(planner: Planner, now: Instant, topology: str = "") -> FleetMap:
    """Return the map of all nodes. topology: by which they are grouped; any other name means the default one:
    that of the first degraded domain, else the first of locations, else pools.
    """
    choices = (*(view.topology for view in list_topologies(planner)), POOLS)
    if topology not in choices:
        first = POOLS if choices[0] in VERSION_TOPOLOGIES else choices[0]
        topology = next((path.partition("/")[0] for path in sorted(planner.domain_marks.decisions)), first)
    nodes = defaultdict[str, list[NodeSummary]](list)
    for node in list_nodes(planner, now).nodes:
        path = node.pool if topology == POOLS else _domain(planner, planner.state.uid(node.node), topology)
        nodes[path].append(node)
    groups = [_group(planner, path, members) for path, members in nodes.items()]
    groups.sort(
        key=lambda group: (
            group.state is None,
            _RANK[group.nodes[0].health],
            -group.faulty if group.nodes[0].health != UNKNOWN else 0,
            group.domain == "",
            natural_order(group.domain),
        )
    )
    return FleetMap(topology, choices, tuple(groups))


def _group(planner: Planner, path: str, members: list[NodeSummary]) -> MapGroup:
    members.sort(key=lambda node: _RANK[node.health])
    above = path
    while above and above not in planner.domain_marks.decisions:
        above = above.rpartition("/")[0]
    state = planner.domain_marks.decisions[above].state if above else None
    return MapGroup(path, tuple(members), above, state)


def _domain(planner: Planner, uid: str, topology: str) -> str:
    """Return the lowest domain of a node in a topology; empty for none."""
    paths = (*planner.vote_collector.domain_members.paths(uid), *planner.diagnosis.members.paths(uid))
    within = f"{topology}/"
    return max((path for path in paths if path.startswith(within)), key=len, default="")


def natural_order(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a sort key by which r2 comes before r10."""
    parts = (part for part in _DIGITS.split(name) if part)
    return tuple((False, int(part), "") if part[0] in "0123456789" else (True, 0, part) for part in parts)
