"""Which degraded domains are marked, within a ledger of their own, and what Nodes carry for that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from msgspec import Struct

from nodeguard.fleet.blame.blamed import Blamed
from nodeguard.fleet.budgets import fleet_limits
from nodeguard.judge.words import span
from nodeguard.model.incident import State
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Degraded
from nodeguard.model.policy import Policy

_HOUR = 3_600.0


class Cover(Struct, frozen=True):
    """What becomes of a domain that is to blame. why: in words, where it is not marked. mark: what its Nodes
    carry; None where nothing. grows: whether those get it that do not carry it yet.
    """

    blamed: Blamed
    state: State
    why: str = ""
    mark: Degraded | None = None
    grows: bool = True


class Terms(Struct, frozen=True):
    """On which terms domains are marked. size: nodes of the fleet. bar: what forbids every new mark, empty
    for nothing. granted: the state of a mark that is granted.
    """

    policy: Policy
    size: int
    bar: str = ""
    granted: State = State.MARKED


class Standing(Struct, frozen=True):
    """Marks of domains as they stand: what Nodes carry of each, and on how many."""

    marks: Mapping[str, Degraded]
    nodes: frozenset[str]

    @classmethod
    def of(cls, degraded: Iterable[tuple[str, Degraded]]) -> Standing:
        """From what is remembered on Nodes, by uid."""
        marks: dict[str, Degraded] = {}
        nodes = set()
        for uid, one in degraded:
            nodes.add(uid)
            if one.domain not in marks or one.since < marks[one.domain].since:
                marks[one.domain] = one
        return cls(marks, frozenset(nodes))


def covered(
    blamed: Iterable[Blamed],
    standing: Standing,
    members: Mapping[str, Set[str]],
    terms: Terms,
    now: Instant,
) -> tuple[Cover, ...]:
    """What becomes of every domain that is to blame, the first first. members: of each."""
    policy, granted = terms.policy, terms.granted
    nodes = set(standing.nodes)
    late = sum(1 for one in standing.marks.values() if now.wall - one.since < _HOUR)
    found = []
    for one in sorted(blamed, key=lambda one: (one.since, one.domain)):
        mark = standing.marks.get(one.domain)
        if mark is not None:
            own = members[one.domain]
            full = _full(terms, len(nodes | own), len(own), alone=nodes <= own)
            grows = one.view in policy.blame.enforce and not full
            nodes |= own if grows else set()
            found.append(Cover(one, granted, full if own - nodes else "", mark, grows))
            continue
        if one.view not in policy.blame.enforce:
            found.append(Cover(one, State.DRY_RUN))
            continue
        narrow = next((each for each in standing.marks.values() if each.name == one.name), None)
        all_of = nodes | members[one.domain]
        why = terms.bar
        if not why and narrow is None and late >= policy.budget.domains:
            most = policy.budget.domains
            why = f"budget of degraded domains used up: {late} of {most} new in {span(_HOUR)}"
        alone = not nodes or narrow is not None
        why = why or _full(terms, len(all_of), len(members[one.domain]), alone=alone)
        if why:
            found.append(Cover(one, State.WITHHELD, why, narrow, grows=False))
            continue
        nodes, late = all_of, late + (narrow is None)
        found.append(Cover(one, granted, mark=Degraded(one.domain, one.kinds, now.wall, one.name)))
    return tuple(found)


def _full(terms: Terms, after: int, own: int, *, alone: bool) -> str:
    """Return why a domain may not be marked; empty where it may. after: nodes in marked domains with it; own:
    of these, its own. alone: whether no other domain is marked.
    """
    limits = fleet_limits(terms.policy.budget, terms.size)
    small = "budget of degraded domains too small"
    if after <= limits.degraded or (alone and own <= limits.first):
        return ""
    if alone:
        return f"{small}: the domain has {own} nodes, and a single one may have {limits.first}"
    return f"{small}: {after - own} of {limits.degraded} nodes used, and the domain adds {own}"
