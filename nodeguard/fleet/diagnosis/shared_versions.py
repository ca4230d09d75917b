"""Shared versions: the software that some nodes have in common, and which may explain their votes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set
from itertools import chain

from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
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
    """Return the rarest version that nearly all of some nodes have and few others; empty for none."""
    members = votes.members
    common = (
        (members.size(path), VERSION_TOPOLOGIES.index(members.topology_of(path)), path)
        for path in _versions(members, uids)
        if _is_common(members, path, uids)
    )
    return min(common, default=(0, 0, ""))[2]


def have_new_version(votes: VoteIndex, uids: Set[str], now: float) -> bool:
    """Return whether nearly all of some nodes have a version that few others have, and got it recently."""
    received = _received(votes, uids, now).items()
    return any(count * 2 >= len(uids) and _is_common(votes.members, path, uids) for path, count in received)


def received_version(votes: VoteIndex, uids: Collection[str], now: float) -> str:
    """Return the catalogue, agent or driver that nearly all of some nodes got recently, whichever others
    have it; empty for none.
    """
    received = sorted(_received(votes, uids, now).items())
    for topology in _MAKES_FINDINGS:
        for path, count in received:
            if path.partition("/")[0] == topology and count >= _MIN_VOTER_SHARE * len(uids):
                return path
    return ""


def fired_after_receipt(votes: VoteIndex, onsets: Mapping[str, float]) -> set[str]:
    """Return the nodes that received another catalogue or agent shortly before the onset of a check. onsets:
    by uid.
    """
    return {
        uid
        for uid in votes.version_changes.keys() & onsets.keys()
        if not votes.received_before(uid, onsets[uid]).isdisjoint(_MAKES_CHECKS)
    }


def explaining_version(votes: VoteIndex, candidate: Candidate, now: float) -> str:
    """Return the version that explains the votes of a candidate: its domain, or the version that only nodes
    of this domain got recently; empty for none.
    """
    if votes.members.topology_of(candidate.domain) in VERSION_TOPOLOGIES:
        return candidate.domain
    domain, voters = votes.members.nodes(candidate.domain), candidate.voters.keys()
    received = _received(votes, voters, now)
    for path in _versions(votes.members, voters):
        nodes = votes.members.nodes(path)
        if (
            len(nodes & voters) >= _MIN_VOTER_SHARE * len(voters)
            and received[path] * 2 >= len(voters)
            and len(nodes & domain) >= _MIN_OVERLAP * len(nodes)
        ):
            return path
    return ""


def _is_common(members: DomainMembers, version: str, uids: Set[str]) -> bool:
    """Return whether nearly all of some nodes have a version, and few others."""
    size, count = members.size(version), len(members.nodes(version) & uids)
    return (
        count >= _MIN_VOTER_SHARE * len(uids)
        and size <= MAX_FLEET_SHARE * len(members)
        and significance(count, len(uids), size / len(members)) >= _MIN_SIGNIFICANCE
    )


def _received(votes: VoteIndex, uids: Iterable[str], now: float) -> Counter[str]:
    """Return how many of some nodes got each version recently."""
    changes = (votes.version_changes[uid].items() for uid in uids if uid in votes.version_changes)
    return Counter(path for path, at in chain.from_iterable(changes) if now - at < _NEW_SECONDS)


def _versions(members: DomainMembers, uids: Iterable[str]) -> list[str]:
    """Return the versions of some nodes."""
    paths = dict.fromkeys(chain.from_iterable(map(members.paths, uids)))
    return [path for path in paths if members.topology_of(path) in VERSION_TOPOLOGIES]
