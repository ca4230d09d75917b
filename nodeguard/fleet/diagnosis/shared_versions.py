"""Shared versions: the software that some nodes have in common, and which may explain their votes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Set
from itertools import chain
from math import inf

from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.diagnosis.votes import AFTER_RECEIPT, BEFORE_RECEIPT
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

# Topologies of the versions that evaluate checks; and of those that may make one wrong on a fact, the
# likeliest first.
_MAKES_CHECKS = ("catalogue", "agent")
_MAKES_FINDINGS = (*_MAKES_CHECKS, "driver")


def common_version(votes: VoteIndex, uids: Set[str]) -> str:
    """Return the version that nearly all of some nodes have and few others; empty for none."""
    return next(iter(_common_versions(votes.members, uids)), "")


def have_new_version(votes: VoteIndex, uids: Set[str], now: float) -> bool:
    """Return whether nearly all of some nodes have a version that few others have, and got it recently."""
    return any(_is_new(votes, path, uids, now) for path in _common_versions(votes.members, uids))


def received_version(votes: VoteIndex, uids: Collection[str], now: float) -> str:
    """Return the catalogue, agent or driver that nearly all of some nodes got recently, whichever others
    have it; empty for none.
    """
    changes = votes.version_changes.items()
    counts = Counter(path for (uid, path), at in changes if uid in uids and now - at < _NEW_SECONDS)
    for topology in _MAKES_FINDINGS:
        for path, count in sorted(counts.items()):
            if path.partition("/")[0] == topology and count >= _MIN_VOTER_SHARE * len(uids):
                return path
    return ""


def fired_after_receipt(votes: VoteIndex, onsets: Mapping[str, float]) -> set[str]:
    """Return the nodes that received another catalogue or agent shortly before the onset of a check. onsets:
    by uid.
    """
    received, members = votes.version_changes, votes.members
    return {
        uid
        for uid, at in onsets.items()
        for path in members.paths(uid)
        if members.topology_of(path) in _MAKES_CHECKS
        and -BEFORE_RECEIPT <= at - received.get((uid, path), inf) <= AFTER_RECEIPT
    }


def explaining_version(votes: VoteIndex, candidate: Candidate, now: float) -> str:
    """Return the version that explains the votes of a candidate: its domain, or the version that only nodes
    of this domain got recently; empty for none.
    """
    if votes.members.topology_of(candidate.domain) in VERSION_TOPOLOGIES:
        return candidate.domain
    domain = votes.members.nodes(candidate.domain)
    for path, count in _versions(votes.members, candidate.voters.keys()).items():
        nodes = votes.members.nodes(path)
        if (
            count >= _MIN_VOTER_SHARE * len(candidate.voters)
            and _is_new(votes, path, candidate.voters, now)
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


def _is_new(votes: VoteIndex, version: str, uids: Collection[str], now: float) -> bool:
    """Return whether at least half of some nodes got a version recently."""
    changed_at = (votes.version_changes.get((uid, version), -inf) for uid in uids)
    return sum(now - at < _NEW_SECONDS for at in changed_at) * 2 >= len(uids)


def _versions(members: DomainMembers, uids: Set[str]) -> dict[str, int]:
    """Return how many of some nodes have each version."""
    paths = dict.fromkeys(chain.from_iterable(map(members.paths, uids)))
    versions = (path for path in paths if members.topology_of(path) in VERSION_TOPOLOGIES)
    return {path: len(members.nodes(path) & uids) for path in versions}
