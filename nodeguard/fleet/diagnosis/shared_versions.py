"""Shared versions: the software that some nodes have in common, and which may explain their votes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Set
from itertools import chain
from math import inf

from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.state.topology.members import DomainMembers, is_within, path_prefixes
from nodeguard.model.diagnosis import VERSION_TOPOLOGIES

# The share of nodes that counts as all; the share of the fleet above which a version distinguishes no nodes;
# and the overlap above which a version and a domain are the same nodes.
_MIN_VOTER_SHARE = 0.9
MAX_FLEET_SHARE = 0.8
_MIN_OVERLAP = 0.6

# Minimum exponent of the bound on chance, one in a thousand, for a version with more than its share.
_MIN_SIGNIFICANCE = 6.9

# Seconds for which a version is new on a node: a fault that begins later is more likely another one.
_NEW_SECONDS = 14_400.0

# Topologies of the versions that may make a check wrong on a fact, the likeliest first.
_MAKES_FINDINGS = ("catalogue", "agent", "driver")


class SharedVersions:
    """The versions of all nodes, with the time at which each node received another one. members: the nodes
    that may vote, with their domains.
    """

    def __init__(self, members: DomainMembers) -> None:
        self._members = members
        # The latest versions of each topology, by uid; minus infinity for those of the first report.
        self._received: dict[str, dict[str, float]] = {}

    def record(self, uid: str, versions: Iterable[str], now: float) -> None:
        """Record the versions of a node, also of one that may not vote. versions: their domains. Without one
        of a topology, for example while a driver is replaced, the latest version stays.
        """
        # The last prefix is the path itself, as a string that all nodes share.
        reported = tuple(path_prefixes(path)[-1] for path in versions)
        before = self._received.get(uid, {})
        if reported == tuple(before):
            return
        topology_of = self._members.topology_of
        topologies, earlier = set(map(topology_of, reported)), set(map(topology_of, before))
        self._received[uid] = {
            path: before.get(path, now if topology_of(path) in earlier else -inf) for path in reported
        } | {path: at for path, at in before.items() if topology_of(path) not in topologies}

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists."""
        self._received.pop(uid, None)

    def received_at(self, uid: str, version: str) -> float:
        """Return when a node got a version in place of another one; minus infinity for never."""
        return self._received.get(uid, {}).get(version, -inf)

    def common(self, uids: Iterable[str]) -> str:
        """Return the version that nearly all of some nodes have and few others; empty for none."""
        return next(iter(self._common(frozenset(uids))), "")

    def recent(self, uids: Iterable[str], now: float) -> str:
        """Return the version that nearly all of some nodes have and few others, if they got it recently;
        empty for none.
        """
        nodes = frozenset(uids)
        return next((path for path in self._common(nodes) if self._is_new(path, nodes, now)), "")

    def received(self, uids: Collection[str], now: float) -> str:
        """Return the catalogue, agent or driver that nearly all of some nodes got recently, whichever others
        have it; empty for none.
        """
        received = chain.from_iterable(self._received.get(uid, {}).items() for uid in uids)
        counts = Counter(path for path, at in received if now - at < _NEW_SECONDS)
        for topology in _MAKES_FINDINGS:
            for path, count in sorted(counts.items()):
                if is_within(path, topology) and count >= _MIN_VOTER_SHARE * len(uids):
                    return path
        return ""

    def explaining(self, candidate: Candidate, now: float) -> str:
        """Return the version that explains the votes of a candidate: its domain, or the version that only
        nodes of that domain got recently; empty for none.
        """
        if self._members.topology_of(candidate.domain) in VERSION_TOPOLOGIES:
            return candidate.domain
        domain = self._members.nodes(candidate.domain)
        for path, count in self._counts(frozenset(candidate.voters)).items():
            nodes = self._members.nodes(path)
            if (
                count >= _MIN_VOTER_SHARE * len(candidate.voters)
                and self._is_new(path, candidate.voters, now)
                and len(nodes & domain) >= _MIN_OVERLAP * len(nodes)
            ):
                return path
        return ""

    def _common(self, uids: Set[str]) -> list[str]:
        """Return the versions that nearly all of some nodes have and few others, the rarest first."""
        found: list[tuple[int, int, str]] = []
        fleet = len(self._members)
        for path, count in self._counts(uids).items():
            size = self._members.size(path)
            if (
                count >= _MIN_VOTER_SHARE * len(uids)
                and size <= MAX_FLEET_SHARE * fleet
                and significance(count, len(uids), size / fleet) >= _MIN_SIGNIFICANCE
            ):
                found.append((size, VERSION_TOPOLOGIES.index(self._members.topology_of(path)), path))
        return [path for _, _, path in sorted(found)]

    def _is_new(self, version: str, uids: Collection[str], now: float) -> bool:
        """Return whether at least half of some nodes got a version recently."""
        return sum(now - self.received_at(uid, version) < _NEW_SECONDS for uid in uids) * 2 >= len(uids)

    def _counts(self, uids: Set[str]) -> Counter[str]:
        """Return how many of some nodes have each version."""
        paths = chain.from_iterable(map(self._members.paths, uids))
        return Counter(path for path in paths if self._members.topology_of(path) in VERSION_TOPOLOGIES)
