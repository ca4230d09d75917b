"""Whether it is a version, rather than a place, that many nodes share. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from nodeguard.fleet.diagnosis.results import Candidate
from nodeguard.fleet.diagnosis.significance import significance
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.model.diagnosis import VERSION_TOPOLOGIES

# So large a share counts as all; a version of so much of the fleet sets nobody apart; and one as large as a
# domain, but for this, is the same nodes.
_NEARLY = 0.9
_MOST = 0.8
_ALIKE = 0.6

# The exponent of the bound on chance, one in a thousand, from which on a version has more than its share.
_RARE = 6.9

# Seconds for which a version is new on a node.
_NEW = 86_400.0


def common_version(members: DomainMembers, who: Iterable[str]) -> str:
    """The version that nearly all of some nodes have, few others for that to be chance; empty for none."""
    who = frozenset(who)
    best: tuple[int, int, str] | None = None
    for path, many in _versions(members, who).items():
        size = members.size(path)
        if many < _NEARLY * len(who) or size > _MOST * len(members):
            continue
        if significance(many, len(who), size / len(members)) < _RARE:
            continue
        rank = (size, VERSION_TOPOLOGIES.index(members.topology_of(path)), path)
        best = rank if best is None or rank < best else best
    return best[2] if best else ""


def new_version(
    members: DomainMembers, one: Candidate, changed: Mapping[tuple[str, str], float], now: float
) -> str:
    """The version that came lately to just the nodes of a domain that may be to blame; empty for none."""
    domain = members.nodes(one.domain)
    for path, many in _versions(members, one.voters).items():
        has = members.nodes(path)
        new = sum(1 for uid in one.voters if now - changed.get((uid, path), -_NEW) < _NEW)
        if (
            many >= _NEARLY * len(one.voters)
            and new * 2 >= len(one.voters)
            and len(has & domain) >= _ALIKE * len(has)
        ):
            return path
    return ""


def _versions(members: DomainMembers, who: Iterable[str]) -> Counter[str]:
    return Counter(
        path for uid in who for path in members.paths(uid) if members.topology_of(path) in VERSION_TOPOLOGIES
    )
