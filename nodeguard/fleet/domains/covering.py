"""Which degraded domains are marked, within a ledger of their own, and what Nodes carry for that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

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
    """What becomes of a domain that is to blame. why: in words, where it is not marked; of a dry run, what
    would withhold the mark. mark: what its Nodes carry; None where nothing. grows: whether those get it that
    do not carry it yet. granted_at: when a dry run granted the mark, in seconds since the epoch; else 0.
    """

    blamed: Blamed
    state: State
    why: str = ""
    mark: Degraded | None = None
    grows: bool = True
    granted_at: float = 0.0


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
    already: Iterable[Cover] = (),
) -> tuple[Cover, ...]:
    """What becomes of every domain that is to blame, the first first; those of views that are not enforced
    come last, as their dry run counts what is marked. members: of each. already: what a dry run granted
    before: that stays so.
    """
    policy, granted = terms.policy, terms.granted
    nodes = set(standing.nodes)
    late = sum(1 for one in standing.marks.values() if now.wall - one.since < _HOUR)
    found: list[Cover] = []
    dry_run: list[Blamed] = []
    for one in sorted(blamed, key=lambda one: (one.since, one.domain)):
        mark = standing.marks.get(one.domain)
        if mark is not None:
            own = members[one.domain]
            full = _full(terms, nodes, own, alone=nodes <= own)
            grows = one.view in policy.blame.enforce and not full
            nodes |= own if grows else set()
            found.append(Cover(one, granted, full if own - nodes else "", mark, grows))
            continue
        if one.view not in policy.blame.enforce:
            dry_run.append(one)
            continue
        narrow = next((each for each in standing.marks.values() if each.name == one.name), None)
        own = members[one.domain]
        why = terms.bar or ("" if narrow is not None else _too_many(policy, late))
        why = why or _full(terms, nodes, own, alone=not nodes or narrow is not None)
        if why:
            found.append(Cover(one, State.WITHHELD, why, narrow, grows=False))
            continue
        nodes, late = nodes | own, late + (narrow is None)
        found.append(Cover(one, granted, mark=Degraded(one.domain, one.kinds, now.wall, one.name)))
    return (*found, *_dry_run(dry_run, nodes, late, members, terms, now, already))


def _dry_run(
    blamed: Iterable[Blamed],
    nodes: set[str],
    late: int,
    members: Mapping[str, Set[str]],
    terms: Terms,
    now: Instant,
    already: Iterable[Cover],
) -> Iterator[Cover]:
    """Yield what would become of domains whose views are not enforced. nodes, late: nodes in domains that are
    marked, and how many of these domains are new, to which the dry run adds its own.
    """
    names = {cover.blamed.name: cover.granted_at for cover in already}
    domains = {cover.blamed.domain for cover in already}
    for one in sorted(blamed, key=lambda one: one.domain not in domains):
        own, at = members[one.domain], names.get(one.name, now.wall)
        if one.domain not in domains:
            # A domain that widens is not a new one.
            late_words = "" if one.name in names else _too_many(terms.policy, late, "would be used up")
            why = terms.bar or late_words
            why = why or _full(terms, nodes, own, alone=not nodes)
            if why:
                yield Cover(one, State.DRY_RUN, why)
                continue
        nodes, late = nodes | own, late + (now.wall - at < _HOUR)
        yield Cover(one, State.DRY_RUN, granted_at=at)


def _too_many(policy: Policy, late: int, verb: str = "used up") -> str:
    """Return why no new domain may be marked; empty where one may. late: how many were lately."""
    most = policy.budget.domains
    return f"budget of degraded domains {verb}: {late} of {most} new in {span(_HOUR)}" if late >= most else ""


def _full(terms: Terms, nodes: Set[str], own: Set[str], *, alone: bool) -> str:
    """Return why a domain may not be marked; empty where it may. nodes: those in marked domains; own: those
    of the domain, some of which may be in others that are marked. alone: whether no other domain is marked.
    """
    limits = fleet_limits(terms.policy.budget, terms.size)
    small = "budget of degraded domains too small"
    if len(nodes | own) <= limits.degraded or (alone and len(own) <= limits.first):
        return ""
    if alone:
        return f"{small}: the domain has {len(own)} nodes, and a single one may have {limits.first}"
    return f"{small}: {len(nodes)} of {limits.degraded} nodes used, and the domain adds {len(own - nodes)}"
