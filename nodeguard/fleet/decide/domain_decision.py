"""Decisions on degraded domains: which are marked within their own budget, and on which Nodes. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Literal

from msgspec import Struct

from nodeguard.fleet.budget_limits import fleet_limits
from nodeguard.fleet.decide.restraints import UNOBSERVED, RestraintKind
from nodeguard.fleet.diagnosis.results import DegradedDomain
from nodeguard.fleet.state.wall_clock import RecordedAge
from nodeguard.judge.formatting import format_duration
from nodeguard.model.incident import GRANTED_STATES, IncidentState, WriteState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import DegradedMark
from nodeguard.model.policy import Policy

_HOUR = 3_600.0


class DomainDecision(Struct, frozen=True):
    """The decision on a degraded domain. reason: why it is not marked; of a dry run, why the mark would be
    withheld. mark: the mark on its Nodes; None for none. parts: the marks of degraded parts that it replaced;
    a Node keeps them until it gets the mark of the domain. grows: whether Nodes without the mark get it.
    granted_at: when a dry run granted the mark, in seconds since the epoch; else 0. evidence: why the domain
    is degraded; clears_when: the condition that ends it. owner: the team that acts, empty if its fault class
    names none. restraint, write: of a granted mark that is not in
    effect on all of its Nodes, as of MarkDecision. withholds_nodes: whether its nodes wait with it, as only
    the number of new domains in an hour withholds the mark.
    """

    degraded: DegradedDomain
    state: IncidentState
    reason: str = ""
    mark: DegradedMark | None = None
    parts: tuple[DegradedMark, ...] = ()
    grows: bool = True
    granted_at: float = 0.0
    evidence: str = ""
    clears_when: str = ""
    owner: str = ""
    restraint: RestraintKind | Literal[""] = ""
    write: WriteState | None = None
    withholds_nodes: bool = False

    @property
    def is_granted(self) -> bool:
        """Return whether the plan sets the mark, whether or not it is in effect on its Nodes."""
        return self.state in GRANTED_STATES or self.restraint in UNOBSERVED


class DomainContext(Struct, frozen=True):
    """The inputs of the decisions. size: nodes of the fleet. age: of a recorded time. restraint: why every
    new mark is forbidden, empty for none. granted: the state of a mark that is granted.
    """

    policy: Policy
    size: int
    age: RecordedAge
    restraint: str = ""
    granted: IncidentState = IncidentState.MARKED


class ActiveDomainMarks(Struct, frozen=True):
    """Active domain marks: the mark of each domain, and the uids of the Nodes with one. unsupported: uids of
    Nodes with a record of a domain that nothing else supports: each counts as one node, and no more.
    """

    marks: Mapping[str, DegradedMark]
    nodes: frozenset[str]
    unsupported: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, degraded: Iterable[tuple[str, DegradedMark]], claims: Iterable[str] = ()
    ) -> ActiveDomainMarks:
        """Return the marks of Nodes, by uid. Of several for one domain, the mark of most Nodes counts, then
        the earliest. claims: uids of all Nodes with the record of a domain.
        """
        versions: defaultdict[str, Counter[DegradedMark]] = defaultdict(Counter)
        nodes = set()
        for uid, mark in degraded:
            nodes.add(uid)
            versions[mark.domain][mark] += 1
        marks = {
            domain: max(counts, key=lambda mark: (counts[mark], -mark.since))
            for domain, counts in versions.items()
        }
        return cls(marks, frozenset(nodes), frozenset(claims) - nodes)


class _Usage(Struct):
    """The usage of the budget of domain marks. nodes: uids with a mark; unsupported: see ActiveDomainMarks.
    recent: domains marked within the hour.
    """

    nodes: set[str]
    unsupported: frozenset[str]
    recent: int

    def is_within(self, nodes: Set[str] = frozenset()) -> bool:
        """Return whether no other domain is marked than one with these nodes."""
        return self.nodes <= nodes | self.unsupported


def decide_domains(
    degraded: Iterable[DegradedDomain],
    active: ActiveDomainMarks,
    members: Mapping[str, Set[str]],
    context: DomainContext,
    now: Instant,
    already: Iterable[DomainDecision] = (),
) -> tuple[DomainDecision, ...]:
    """Return the decision on each degraded domain: the marked ones first, then the oldest, then those with
    most affected nodes. Domains of topologies that are not enforced come last, as their dry run counts the
    active marks. members: uids of each domain. already: grants of an earlier dry run, which stay.
    """
    policy, granted = context.policy, context.granted
    recent = sum(1 for mark in active.marks.values() if context.age(mark.since) < _HOUR)
    usage = _Usage({*active.nodes, *active.unsupported}, active.unsupported, recent)
    decisions: list[DomainDecision] = []
    dry_run: list[tuple[DegradedDomain, tuple[DegradedMark, ...]]] = []
    # A restart gives all domains without a mark on any Node the same time of diagnosis.
    # Then most affected nodes decide; the name only makes the plan of each replica the same.
    in_order = sorted(
        degraded,
        key=lambda domain: (
            domain.domain not in active.marks,
            domain.since,
            domain.began,
            -len(domain.voters),
            domain.domain,
        ),
    )
    paths = {domain.domain for domain in in_order}
    for domain in in_order:
        nodes = members[domain.domain]
        mark = active.marks.get(domain.domain)
        parts = tuple(
            part for part in active.marks.values() if part.domain not in paths and domain.has_mark(part)
        )
        if mark is not None:
            refusal = _nodes_refusal(context, usage.nodes, nodes, is_first=usage.is_within(nodes))
            grows = domain.topology in policy.diagnosis.enforce and not refusal
            usage.nodes |= nodes if grows else set()
            reason = refusal if nodes - usage.nodes else ""
            decisions.append(DomainDecision(domain, granted, reason, mark, parts, grows))
            continue
        if domain.topology not in policy.diagnosis.enforce:
            dry_run.append((domain, parts))
            continue
        # A domain that replaces its parts is not a new one.
        rate_refusal = "" if parts else _rate_refusal(policy, usage.recent)
        is_first = usage.is_within() or (bool(parts) and usage.is_within(nodes))
        nodes_refusal = _nodes_refusal(context, usage.nodes, nodes, is_first=is_first)
        if reason := context.restraint or rate_refusal or nodes_refusal:
            waits = bool(rate_refusal) and not nodes_refusal
            withheld = DomainDecision(
                domain, IncidentState.WITHHELD, reason, parts=parts, grows=False, withholds_nodes=waits
            )
            decisions.append(withheld)
            continue
        usage.nodes |= nodes
        usage.recent += not parts
        mark = DegradedMark(domain.domain, domain.fault_classes, now.wall, domain.name)
        decisions.append(DomainDecision(domain, granted, mark=mark, parts=parts))
    return (*decisions, *_dry_run(dry_run, usage, members, context, now, already))


def _dry_run(
    degraded: Iterable[tuple[DegradedDomain, tuple[DegradedMark, ...]]],
    usage: _Usage,
    members: Mapping[str, Set[str]],
    context: DomainContext,
    now: Instant,
    already: Iterable[DomainDecision],
) -> Iterator[DomainDecision]:
    """Yield the decisions on domains of topologies that are not enforced. degraded: with the marks of parts
    from before a change of the policy, which stay. usage: the dry run adds its own.
    """
    names = {decision.degraded.name: decision.granted_at for decision in already}
    domains = {decision.degraded.domain for decision in already}
    for domain, parts in sorted(degraded, key=lambda item: item[0].domain not in domains):
        nodes, granted_at = members[domain.domain], names.get(domain.name, now.wall)
        if domain.domain not in domains:
            # A domain that widens is not a new one.
            is_new = domain.name not in names
            reason = context.restraint or (
                _rate_refusal(context.policy, usage.recent, "would reach") if is_new else ""
            )
            reason = reason or _nodes_refusal(context, usage.nodes, nodes, is_first=usage.is_within())
            if reason:
                yield DomainDecision(domain, IncidentState.DRY_RUN, reason, parts=parts)
                continue
        usage.nodes |= nodes
        usage.recent += context.age(granted_at) < _HOUR
        yield DomainDecision(domain, IncidentState.DRY_RUN, parts=parts, granted_at=granted_at)


def _rate_refusal(policy: Policy, recent: int, verb: str = "has reached") -> str:
    """Return why no new domain may be marked; empty if one may. recent: domains marked within the hour."""
    limit = policy.budget.domains
    return (
        f"budget of degraded domains {verb} its limit: {recent} of {limit} new in {format_duration(_HOUR)}"
        if recent >= limit
        else ""
    )


def _nodes_refusal(context: DomainContext, marked: Set[str], nodes: Set[str], *, is_first: bool) -> str:
    """Return why a domain may not be marked; empty if it may. marked: uids in marked domains; nodes: uids of
    the domain. A Node may be in both. is_first: whether no other domain is marked, except
    parts of this one.
    """
    limits = fleet_limits(context.policy.budget, context.size)
    small = "budget of degraded domains too small"
    if len(marked | nodes) <= limits.degraded or (is_first and len(nodes) <= limits.first):
        return ""
    if is_first:
        return f"{small}: the domain has {len(nodes)} nodes, and a single one may have {limits.first}"
    used, added = len(marked), len(nodes - marked)
    return f"{small}: {used} of {limits.degraded} nodes used, and the domain adds {added}"
