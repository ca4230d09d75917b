"""Rollouts: whether the nodes with a fault share a version rather than a location. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import VERSION_TOPOLOGIES

# The share of nodes that counts as all; the share of the fleet above which a version distinguishes no nodes;
# and the overlap above which a version and a domain are the same nodes.
_NEARLY = 0.9
_MOST = 0.8
_ALIKE = 0.6

# Minimum exponent of the bound on chance, one in a thousand, for a version with more than its share.
_RARE = 6.9

# Seconds for which a version is new on a node.
_NEW = 86_400.0


def common_version(members: DomainMembers, uids: Iterable[str]) -> str:
    """Return the version that nearly all of some nodes have and few others; empty for none."""
    uids = frozenset(uids)
    best: tuple[int, int, str] | None = None
    for path, count in _versions(members, uids).items():
        size = members.size(path)
        if count < _NEARLY * len(uids) or size > _MOST * len(members):
            continue
        if significance(count, len(uids), size / len(members)) < _RARE:
            continue
        rank = (size, VERSION_TOPOLOGIES.index(members.topology_of(path)), path)
        best = rank if best is None or rank < best else best
    return best[2] if best else ""


def new_version(
    members: DomainMembers, candidate: Candidate, changed: Mapping[tuple[str, str], float], now: float
) -> str:
    """Return the version that only the nodes of a candidate domain got recently; empty for none."""
    domain = members.nodes(candidate.domain)
    for path, count in _versions(members, candidate.voters).items():
        nodes = members.nodes(path)
        changes = sum(1 for uid in candidate.voters if now - changed.get((uid, path), -_NEW) < _NEW)
        if (
            count >= _NEARLY * len(candidate.voters)
            and changes * 2 >= len(candidate.voters)
            and len(nodes & domain) >= _ALIKE * len(nodes)
        ):
            return path
    return ""


def _versions(members: DomainMembers, uids: Iterable[str]) -> Counter[str]:
    return Counter(
        path for uid in uids for path in members.paths(uid) if members.topology_of(path) in VERSION_TOPOLOGIES
    )
