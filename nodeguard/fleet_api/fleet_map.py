"""The map of the fleet: domains of one topology with their nodes that are not ok, worst first. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import starmap
from typing import Any

from msgspec import Struct

from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.topology.members import path_prefixes
from nodeguard.fleet_api.domain import list_topologies
from nodeguard.fleet_api.node import UNKNOWN, known_health, placements, summarize_nodes
from nodeguard.fleet_api.schema.node import NodeSummary
from nodeguard.model.diagnosis import VERSION_TOPOLOGIES
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.natural_order import natural_order

# The topology of a fleet without topologies; every node has at most one pool.
POOLS = "pool"

# Health of nodes on the map, worst first.
SEVERITIES = (Health.FATAL.value, Health.SUSPECT.value, Health.WARNING.value, UNKNOWN, Health.OK.value)
_RANK = {health: rank for rank, health in enumerate(SEVERITIES)}


class MapPart(Struct, frozen=True):
    """The nodes of a lowest domain that are not ok, worst first, then by name.

    domain: path; a pool's name; empty for nodes without a domain. size: number of all its nodes. degraded:
    path of the domain, or of the nearest one that includes it, that is degraded; empty for none. state: of
    that domain's mark.
    """

    domain: str
    size: int
    faulty: tuple[NodeSummary, ...]
    degraded: str = ""
    state: IncidentState | None = None


class MapGroup(Struct, frozen=True):
    """A domain of the highest level, or a pool. parts: those with a fault, or degraded, worst first. size: as
    of MapPart.
    """

    domain: str
    size: int
    parts: tuple[MapPart, ...]

    @property
    def faulty(self) -> list[NodeSummary]:
        """Return the nodes that are not ok."""
        return [node for part in self.parts for node in part.faulty]


class FleetMap(Struct, frozen=True):
    """The map by one topology, folded: healthy domains are counted in the domain that includes them.

    topologies: those to choose from. groups: with a fault, or degraded, worst first. healthy: the others, by
    name.
    """

    topology: str
    topologies: tuple[str, ...]
    groups: tuple[MapGroup, ...]
    healthy: tuple[MapGroup, ...]


def map_topologies(planner: Planner) -> tuple[str, ...]:
    """Return the topologies by which the map can be shown."""
    return (*(view.topology for view in list_topologies(planner)), POOLS)


def fleet_map(planner: Planner, now: Instant, topology: str = "") -> FleetMap:
    """Return the map of all nodes. topology: by which they are grouped; any other name means the default one:
    that of the first degraded domain, else the first of locations, else pools.
    """
    choices = map_topologies(planner)
    if topology not in choices:
        first = POOLS if choices[0] in VERSION_TOPOLOGIES else choices[0]
        topology = next((path.partition("/")[0] for path in sorted(planner.domain_marks.decisions)), first)
    nodes, stale = placements(planner), planner.state.stale_agents(now).stale
    paths = {
        node.name: node.pool if topology == POOLS else _domain(planner, node.uid, topology) for node in nodes
    }
    not_ok = (node for node in nodes if known_health(planner, node.uid, stale) != Health.OK)
    summaries = defaultdict[str, list[NodeSummary]](list)
    for node in summarize_nodes(planner, not_ok, now):
        summaries[paths[node.node]].append(node)
    parts = defaultdict[str, list[MapPart]](list)
    for path, size in Counter(paths.values()).items():
        highest = path if topology == POOLS else next(iter(path_prefixes(path)), "")
        parts[highest].append(_part(planner, path, size, summaries[path]))
    groups = sorted(starmap(_group, parts.items()), key=_severity)
    faulty = tuple(group for group in groups if group.parts)
    return FleetMap(topology, choices, faulty, tuple(group for group in groups if not group.parts))


def _group(path: str, parts: list[MapPart]) -> MapGroup:
    shown = [part for part in parts if part.faulty or part.state is not None]
    size = sum(part.size for part in parts)
    return MapGroup(path, size, tuple(sorted(shown, key=_severity)))


def _severity(item: MapGroup | MapPart) -> tuple[Any, ...]:
    """Return the sort key: degraded domains, then the worst health, then most nodes of it."""
    parts = item.parts if isinstance(item, MapGroup) else (item,)
    ranks = [_RANK[node.health] for node in item.faulty]
    worst = min(ranks, default=len(SEVERITIES))
    return (
        all(part.state is None for part in parts),
        worst,
        -ranks.count(worst),
        item.domain == "",
        natural_order(item.domain),
    )


def _part(planner: Planner, path: str, size: int, faulty: list[NodeSummary]) -> MapPart:
    above = path
    while above and above not in planner.domain_marks.decisions:
        above = above.rpartition("/")[0]
    state = planner.domain_marks.decisions[above].state if above else None
    worst_first = sorted(faulty, key=lambda node: _RANK[node.health])
    return MapPart(path, size, tuple(worst_first), above, state)


def _domain(planner: Planner, uid: str, topology: str) -> str:
    """Return the lowest domain of a node in a topology; empty for none."""
    paths = (*planner.vote_collector.domain_members.paths(uid), *planner.diagnosis.members.paths(uid))
    within = f"{topology}/"
    return max((path for path in paths if path.startswith(within)), key=len, default="")
