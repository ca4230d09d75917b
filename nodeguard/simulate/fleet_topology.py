"""Where the nodes of a simulated fleet sit: fabric, racks, power and NVLink domains. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct

from nodeguard.model.node import Node
from nodeguard.model.policy import TopologyLabels

# Labels of views that no platform labels by itself; the others are those of the built-in views.
ROW, RACK, FEED = "example.com/row", "example.com/rack", "example.com/feed"
TOPOLOGY_LABELS = (TopologyLabels("rack", (ROW, RACK)), TopologyLabels("power", (FEED, RACK)))

_SPINE, _LEAF = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"
_CLIQUE = "nvidia.com/gpu.clique"


class TopologySizes(Struct, frozen=True):
    """How many nodes there are to a group; racks to a row and to a feed.

    pod, leaf: of the fabric. rack: an ordinary one. tray_rack: a rack that is one NVLink domain, as of an
    NVL72; trays: the share of nodes that sit in such racks. A rack is no part of a leaf or a whole number of
    them, so that the two can be told apart.
    """

    pod: int = 512
    leaf: int = 32
    rack: int = 10
    tray_rack: int = 18
    trays: float = 0.2
    row: int = 15
    feed: int = 6


DEFAULT_SIZES = TopologySizes()


class SimulatedTopology(Struct, frozen=True):
    """nodes: each with its labels. domains: numbers of the nodes in each domain, by its path. of: the paths
    of each node.
    """

    nodes: tuple[Node, ...]
    domains: Mapping[str, tuple[int, ...]]
    node_domains: tuple[tuple[str, ...], ...]

    def domains_at(self, view: str, depth: int) -> tuple[str, ...]:
        """Paths of the domains of a view so many steps below it: 1 for the widest."""
        return tuple(one for one in self.domains if one.split("/")[0] == view and one.count("/") == depth)


def simulated_topology(count: int, sizes: TopologySizes = DEFAULT_SIZES) -> SimulatedTopology:
    """Where so many nodes sit."""
    nodes, members = [], defaultdict(list)
    of = []
    for number, (rack, nvlink) in enumerate(_racks(count, sizes)):
        pod, leaf = number // sizes.pod, number % sizes.pod // sizes.leaf
        row, feed = rack // sizes.row, rack // sizes.feed
        labels = {
            _SPINE: f"p{pod}",
            _LEAF: f"leaf{leaf}",
            ROW: f"row{row}",
            RACK: f"r{rack}",
            FEED: f"feed{feed}",
        }
        paths = [
            f"fabric/p{pod}",
            f"fabric/p{pod}/leaf{leaf}",
            f"rack/row{row}",
            f"rack/row{row}/r{rack}",
            f"power/feed{feed}",
            f"power/feed{feed}/r{rack}",
        ]
        if nvlink:
            labels[_CLIQUE] = f"c{rack}"
            paths.append(f"nvlink/c{rack}")
        for path in paths:
            members[path].append(number)
        of.append(tuple(paths))
        nodes.append(Node(f"node-{number:05}", f"uid-{number}", labels=labels, gpus=8))
    return SimulatedTopology(tuple(nodes), {path: tuple(some) for path, some in members.items()}, tuple(of))


def _racks(count: int, sizes: TopologySizes) -> list[tuple[int, bool]]:
    """The rack of each node, and whether it is an NVLink domain."""
    whole = int(count * sizes.trays) // sizes.tray_rack
    trays = whole * sizes.tray_rack
    return [
        (number // sizes.tray_rack, True)
        if number < trays
        else (whole + (number - trays) // sizes.rack, False)
        for number in range(count)
    ]
