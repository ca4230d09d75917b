"""Shared versions: the software that some nodes have in common, and which may explain their votes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set
from itertools import chain

from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.state.topology.members import DomainMembers
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


def common_version(members: DomainMembers, uids: Iterable[str]) -> str:
    """Return the version that nearly all of some nodes have and few others; empty for none."""
    return next(iter(_common_versions(members, frozenset(uids))), "")


def recent_version(
    members: DomainMembers, uids: Iterable[str], changed: Mapping[tuple[str, str], float], now: float
) -> str:
    """Return the version that nearly all of some nodes have and few others, if they got it recently; empty
    for none. changed: when nodes got another version, by uid and version.
    """
    uids = frozenset(uids)
    for path in _common_versions(members, uids):
        if _is_new(path, uids, changed, now):
            return path
    return ""


def received_version(uids: Collection[str], changed: Mapping[tuple[str, str], float], now: float) -> str:
    """Return the catalogue, agent or driver that nearly all of some nodes got recently, whichever others
    have it; empty for none. changed: see recent_version.
    """
    counts = Counter(path for (uid, path), at in changed.items() if uid in uids and now - at < _NEW_SECONDS)
    for topology in _MAKES_FINDINGS:
        for path, count in sorted(counts.items()):
            if path.partition("/")[0] == topology and count >= _MIN_VOTER_SHARE * len(uids):
                return path
    return ""


def new_version(
    members: DomainMembers, candidate: Candidate, changed: Mapping[tuple[str, str], float], now: float
) -> str:
    """Return the version that only the nodes of a candidate domain got recently; empty for none."""
    domain = members.nodes(candidate.domain)
    for path, count in _versions(members, frozenset(candidate.voters)).items():
        nodes = members.nodes(path)
        if (
            count >= _MIN_VOTER_SHARE * len(candidate.voters)
            and _is_new(path, candidate.voters, changed, now)
            and len(nodes & domain) >= _MIN_OVERLAP * len(nodes)
        ):
            return path
    return ""


def _common_versions(members: DomainMembers, uids: Set[str]) -> list[str]:
    """Return the versions that nearly all of some nodes have and few others, the rarest first."""
    found: list[tuple[int, int, str]] = []
    for path, count in _versions(members, uids).items():
        size = members.size(path)
        if (
            count >= _MIN_VOTER_SHARE * len(uids)
            and size <= MAX_FLEET_SHARE * len(members)
            and significance(count, len(uids), size / len(members)) >= _MIN_SIGNIFICANCE
        ):
            found.append((size, VERSION_TOPOLOGIES.index(members.topology_of(path)), path))
    return [path for _, _, path in sorted(found)]


def _is_new(
    version: str, uids: Collection[str], changed: Mapping[tuple[str, str], float], now: float
) -> bool:
    """Return whether at least half of some nodes got a version recently."""
    changes = sum(1 for uid in uids if now - changed.get((uid, version), -_NEW_SECONDS) < _NEW_SECONDS)
    return changes * 2 >= len(uids)


def _versions(members: DomainMembers, uids: Set[str]) -> dict[str, int]:
    """Return how many of some nodes have each version."""
    paths = dict.fromkeys(chain.from_iterable(map(members.paths, uids)))
    versions = (path for path in paths if members.topology_of(path) in VERSION_TOPOLOGIES)
    return {path: len(members.nodes(path) & uids) for path in versions}
