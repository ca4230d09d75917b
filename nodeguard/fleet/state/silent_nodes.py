"""The nodes with stale agents, and how many of them nothing explains, updated node by node. Pure.

The cost follows the changes: a fleet of which all agents are silent costs no more than one that reports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Set

from msgspec import Struct

# A domain explains its stale agents if it has at least so many nodes, and at least this share is stale.
_MEMBERS = 3
_SILENT = 0.8


class Unexplained(Struct, frozen=True):
    """How many stale agents no domain explains. down: of those, the number on nodes that are down.
    maybe_down: the same with the nodes without a report since the start: they may have been down for long.
    """

    count: int
    down: int
    maybe_down: int


class SilentNodes:
    """The nodes with stale agents. nodes: their uids; unexplained: those in no domain that explains it, as of
    the latest `count_unexplained`; down: those that are not ready, or stale for long, of these.
    """

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.unexplained: set[str] = set()
        self.down: set[str] = set()
        self._down_nodes: set[str] = set()
        self._domains: dict[str, tuple[str, ...]] = {}  # of each node with a stale agent
        self._members: defaultdict[str, set[str]] = defaultdict(set)
        self._explaining: set[str] = set()
        # Domains with another number of nodes or of stale agents since the latest count.
        self._changed: set[str] = set()

    def add(self, uid: str, domains: tuple[str, ...], *, ready: bool) -> None:
        """Add a node with a stale agent, and the domains that it is in. ready: whether its kubelet is."""
        self.nodes.add(uid)
        if not ready:
            self._down_nodes.add(uid)
        self._domains[uid] = domains
        for domain in domains:
            self._members[domain].add(uid)
        self._changed.update(domains)
        self._examine(uid)

    def set_down(self, uid: str) -> None:
        """Count a node as one that is down."""
        self._down_nodes.add(uid)
        self._examine(uid)

    def discard(self, uid: str) -> None:
        """Remove a node, if it is there."""
        if uid not in self.nodes:
            return
        for nodes in (self.nodes, self.unexplained, self.down, self._down_nodes):
            nodes.discard(uid)
        domains = self._domains.pop(uid)
        for domain in domains:
            self._members[domain].discard(uid)
        self._changed.update(domains)

    def record_resized(self, domains: tuple[str, ...]) -> None:
        """Record that domains have another number of nodes."""
        self._changed.update(domain for domain in domains if domain in self._members)

    def count_unexplained(self, size: Callable[[str], int], unreported: Set[str]) -> Unexplained:
        """Return how many of the nodes are in no domain that explains it. size: returns the number of nodes
        of a domain. unreported: nodes without any report since the start.
        """
        for domain in self._changed:
            count, nodes = len(self._members[domain]), size(domain)
            explains = nodes >= _MEMBERS and count >= _SILENT * nodes
            if explains != (domain in self._explaining):
                (self._explaining.add if explains else self._explaining.discard)(domain)
                for uid in self._members[domain]:
                    self._examine(uid)
            if not count:
                del self._members[domain]
        self._changed.clear()
        maybe_down = self.down | (self.unexplained & unreported)
        return Unexplained(len(self.unexplained), len(self.down), len(maybe_down))

    def _examine(self, uid: str) -> None:
        if self._explaining.isdisjoint(self._domains[uid]):
            self.unexplained.add(uid)
            if uid in self._down_nodes:
                self.down.add(uid)
        else:
            self.unexplained.discard(uid)
            self.down.discard(uid)
