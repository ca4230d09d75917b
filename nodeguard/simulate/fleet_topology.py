"""Topology of a simulated fleet: fabric, racks, power and NVLink domains of its nodes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct

from nodeguard.model.inventory import InventoryNode
from nodeguard.model.policy import TopologyLabels

# Labels of topologies that a policy has to declare; the others have the labels of the built-in topologies.
ROW, RACK, FEED = "example.com/row", "example.com/rack", "example.com/feed"
TOPOLOGY_LABELS = (TopologyLabels("rack", (ROW, RACK)), TopologyLabels("power", (FEED, RACK)))

_SPINE, _LEAF = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"
_CLIQUE = "nvidia.com/gpu.clique"


class TopologySizes(Struct, frozen=True):
    """Sizes of the domains: nodes in a pod, leaf or rack; racks in a row and on a feed.

    pod, leaf: of the fabric. rack: an ordinary one. nvlink_rack: a rack that is one NVLink domain, as an
    NVL72; nvlink_share: of the nodes that are in such racks. A leaf is not a whole number of racks, so that
    the two can be distinguished.
    """

    pod: int = 512
    leaf: int = 32
    rack: int = 10
    nvlink_rack: int = 18
    nvlink_share: float = 0.2
    row: int = 15
    feed: int = 6


DEFAULT_SIZES = TopologySizes()

# Fleets with fewer nodes have smaller domains, so that there are several of each.
_SMALL_FLEET = 128
_SMALL_SIZES = TopologySizes(leaf=8, row=3, feed=2)


class SimulatedTopology(Struct, frozen=True):
    """nodes: each with its labels. domains: indexes of the nodes of each domain, by path."""

    nodes: tuple[InventoryNode, ...]
    domains: Mapping[str, tuple[int, ...]]

    def domains_at(self, topology: str, depth: int) -> tuple[str, ...]:
        """Return the paths of a topology's domains at a depth: 1 for the widest."""
        return tuple(
            path for path in self.domains if path.split("/")[0] == topology and path.count("/") == depth
        )


def default_sizes(count: int) -> TopologySizes:
    """Return the sizes of the domains in a fleet of so many nodes."""
    return _SMALL_SIZES if count < _SMALL_FLEET else DEFAULT_SIZES


def simulated_topology(count: int, sizes: TopologySizes | None = None) -> SimulatedTopology:
    """Return the topology of a fleet of so many nodes, by default with the sizes for such a fleet."""
    sizes = sizes or default_sizes(count)
    nodes, members = [], defaultdict(list)
    for index, (rack, is_nvlink_rack) in enumerate(_racks(count, sizes)):
        pod, leaf = index // sizes.pod, index % sizes.pod // sizes.leaf
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
        if is_nvlink_rack:
            labels[_CLIQUE] = f"c{rack}"
            paths.append(f"nvlink/c{rack}")
        for path in paths:
            members[path].append(index)
        nodes.append(InventoryNode(f"uid-{index}", f"node-{index:05}", labels=labels, gpus=8))
    domains = {path: tuple(indexes) for path, indexes in members.items()}
    return SimulatedTopology(tuple(nodes), domains)


def _racks(count: int, sizes: TopologySizes) -> list[tuple[int, bool]]:
    """Return the rack of each node, and whether that is an NVLink domain."""
    nvlink_racks = int(count * sizes.nvlink_share) // sizes.nvlink_rack
    nvlink_nodes = nvlink_racks * sizes.nvlink_rack
    return [
        (index // sizes.nvlink_rack, True)
        if index < nvlink_nodes
        else (nvlink_racks + (index - nvlink_nodes) // sizes.rack, False)
        for index in range(count)
    ]
