"""Which degraded domains are marked, within a ledger of their own, and what Nodes carry for that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from msgspec import Struct

from nodeguard.fleet.budget_limits import fleet_limits
from nodeguard.fleet.diagnosis.results import DegradedDomain
from nodeguard.judge.formatting import format_duration
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import DegradedMark
from nodeguard.model.policy import Policy

_HOUR = 3_600.0


class DomainDecision(Struct, frozen=True):
    """What becomes of a domain that is to blame. why: in words, where it is not marked; of a dry run, what
    would withhold the mark. mark: what its Nodes carry; None where nothing. grows: whether those get it that
    do not carry it yet. granted_at: when a dry run granted the mark, in seconds since the epoch; else 0.
    """

    degraded: DegradedDomain
    state: IncidentState
    reason: str = ""
    mark: DegradedMark | None = None
    grows: bool = True
    granted_at: float = 0.0


class DomainContext(Struct, frozen=True):
    """On which terms domains are marked. size: nodes of the fleet. bar: what forbids every new mark, empty
    for nothing. granted: the state of a mark that is granted.
    """

    policy: Policy
    size: int
    restraint: str = ""
    granted: IncidentState = IncidentState.MARKED


class ActiveDomainMarks(Struct, frozen=True):
    """Marks of domains as they stand: what Nodes carry of each, and on how many."""

    marks: Mapping[str, DegradedMark]
    nodes: frozenset[str]

    @classmethod
    def of(cls, degraded: Iterable[tuple[str, DegradedMark]]) -> ActiveDomainMarks:
        """From what is remembered on Nodes, by uid."""
        marks: dict[str, DegradedMark] = {}
        nodes = set()
        for uid, one in degraded:
            nodes.add(uid)
            if one.domain not in marks or one.since < marks[one.domain].since:
                marks[one.domain] = one
        return cls(marks, frozenset(nodes))


def decide_domains(
    blamed: Iterable[DegradedDomain],
    standing: ActiveDomainMarks,
    members: Mapping[str, Set[str]],
    terms: DomainContext,
    now: Instant,
    already: Iterable[DomainDecision] = (),
) -> tuple[DomainDecision, ...]:
    """What becomes of every domain that is to blame, the first first; those of views that are not enforced
    come last, as their dry run counts what is marked. members: of each. already: what a dry run granted
    before: that stays so.
    """
    policy, granted = terms.policy, terms.granted
    nodes = set(standing.nodes)
    late = sum(1 for one in standing.marks.values() if now.wall - one.since < _HOUR)
    found: list[DomainDecision] = []
    dry_run: list[DegradedDomain] = []
    for one in sorted(blamed, key=lambda one: (one.since, one.domain)):
        mark = standing.marks.get(one.domain)
        if mark is not None:
            own = members[one.domain]
            full = _full(terms, nodes, own, alone=nodes <= own)
            grows = one.topology in policy.diagnosis.enforce and not full
            nodes |= own if grows else set()
            found.append(DomainDecision(one, granted, full if own - nodes else "", mark, grows))
            continue
        if one.topology not in policy.diagnosis.enforce:
            dry_run.append(one)
            continue
        narrow = next((each for each in standing.marks.values() if each.name == one.name), None)
        own = members[one.domain]
        why = terms.restraint or ("" if narrow is not None else _too_many(policy, late))
        why = why or _full(terms, nodes, own, alone=not nodes or narrow is not None)
        if why:
            found.append(DomainDecision(one, IncidentState.WITHHELD, why, narrow, grows=False))
            continue
        nodes, late = nodes | own, late + (narrow is None)
        found.append(
            DomainDecision(one, granted, mark=DegradedMark(one.domain, one.fault_classes, now.wall, one.name))
        )
    return (*found, *_dry_run(dry_run, nodes, late, members, terms, now, already))


def _dry_run(
    blamed: Iterable[DegradedDomain],
    nodes: set[str],
    late: int,
    members: Mapping[str, Set[str]],
    terms: DomainContext,
    now: Instant,
    already: Iterable[DomainDecision],
) -> Iterator[DomainDecision]:
    """Yield what would become of domains whose views are not enforced. nodes, late: nodes in domains that are
    marked, and how many of these domains are new, to which the dry run adds its own.
    """
    names = {cover.degraded.name: cover.granted_at for cover in already}
    domains = {cover.degraded.domain for cover in already}
    for one in sorted(blamed, key=lambda one: one.domain not in domains):
        own, at = members[one.domain], names.get(one.name, now.wall)
        if one.domain not in domains:
            # A domain that widens is not a new one.
            late_words = "" if one.name in names else _too_many(terms.policy, late, "would be used up")
            why = terms.restraint or late_words
            why = why or _full(terms, nodes, own, alone=not nodes)
            if why:
                yield DomainDecision(one, IncidentState.DRY_RUN, why)
                continue
        nodes, late = nodes | own, late + (now.wall - at < _HOUR)
        yield DomainDecision(one, IncidentState.DRY_RUN, granted_at=at)


def _too_many(policy: Policy, late: int, verb: str = "used up") -> str:
    """Return why no new domain may be marked; empty where one may. late: how many were lately."""
    most = policy.budget.domains
    return (
        f"budget of degraded domains {verb}: {late} of {most} new in {format_duration(_HOUR)}"
        if late >= most
        else ""
    )


def _full(terms: DomainContext, nodes: Set[str], own: Set[str], *, alone: bool) -> str:
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
