"""Views of topologies, failure domains and suppressed checks, from the plan. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.messages import fault_class_named, suppressed_message
from nodeguard.fleet.diagnosis.results import DegradedDomain, VoteTally
from nodeguard.fleet.incidents.domain_incidents import shared_incident_name
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.topology.topologies import MissingLabel
from nodeguard.fleet_api.job_outcomes import job_outcomes
from nodeguard.fleet_api.schema.domain import (
    DomainList,
    DomainSummary,
    DomainView,
    FaultClassView,
    MemberGroupView,
    MissingLabelView,
    SuppressedCheckView,
    TopologyView,
    VoteView,
)
from nodeguard.fleet_api.schema.status import VERSION
from nodeguard.fleet_api.service_state import ServiceState, age
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES, VERSION_TOPOLOGIES, Guidance
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant, rfc3339

_LACKING_NAMES = 8


def list_topologies(planner: Planner) -> tuple[TopologyView, ...]:
    """Return every topology that has domains, physical ones first."""
    counts, lacking = count_domains(planner), planner.state.topologies.missing_labels()
    names = [name for name in (*LOCATION_TOPOLOGIES, *VERSION_TOPOLOGIES) if name in counts]
    others = sorted(counts.keys() - {*LOCATION_TOPOLOGIES, *VERSION_TOPOLOGIES})
    return tuple(_view(planner, name, counts[name], lacking) for name in (*names, *others))


def describe_topology(planner: Planner, name: str) -> TopologyView:
    """Return one topology. name: such as `rack`."""
    return _view(
        planner, name, count_domains(planner).get(name, 0), planner.state.topologies.missing_labels()
    )


def _view(
    planner: Planner, name: str, domains: int, lacking: Mapping[tuple[str, str], MissingLabel]
) -> TopologyView:
    missing = tuple(
        MissingLabelView(key, lack.nodes, lack.names[:_LACKING_NAMES], lack.placeholders)
        for (topology, key), lack in lacking.items()
        if topology == name
    )
    return TopologyView(name, domains, planner.state.topologies.label_keys().get(name, ()), missing)


def count_domains(planner: Planner) -> Counter[str]:
    """Return the number of domains by topology."""
    return Counter(path.partition("/")[0] for path in _all_domains(planner))


def suppressed_checks(planner: Planner, now: Instant) -> tuple[SuppressedCheckView, ...]:
    """Return the suppressed checks, oldest first."""
    suppressed = sorted(
        planner.diagnosis.suppressed_checks.values(), key=lambda check: (check.since, check.check)
    )
    return tuple(
        SuppressedCheckView(
            check.check,
            check.domain,
            rfc3339(now.wall_of(check.since)),
            age(now, now.wall_of(check.since)),
            len(check.nodes),
            suppressed_message(check),
        )
        for check in suppressed
    )


# Limits of a response: domains, votes, children, and names of nodes.
MAX_DOMAINS = 1000
_VOTES = 64
_CHILDREN = 16
_NAMES = 8


def domains_named(planner: Planner, name: str) -> tuple[str, ...]:
    """Return the paths that a name matches: the domain of that path, else all that end with it."""
    paths = _all_domains(planner)
    if name in paths:
        return (name,)
    return tuple(sorted(path for path in paths if path.endswith(f"/{name}"))) if name else ()


def list_domains(planner: Planner, now: Instant, *, include_healthy: bool = False) -> DomainList:
    """Return topologies and domains: degraded ones first, then those that show a fault.

    include_healthy: add the domains that show none.
    """
    active = planner.diagnosis.voting.affected_domains(now.mono)
    paths = (
        _all_domains(planner)
        if include_healthy
        else active.keys() | planner.diagnosis.degraded_domains.keys()
    )
    summaries = [_summary(planner, path, active) for path in paths]
    summaries.sort(
        key=lambda domain: (domain.state is None, -domain.voters / max(1, domain.members), domain.domain)
    )
    shown = tuple(summaries[:MAX_DOMAINS])
    return DomainList(
        VERSION,
        rfc3339(now.wall),
        list_topologies(planner),
        shown,
        len(summaries) - len(shown),
        suppressed_checks(planner, now),
    )


def degraded_domains(planner: Planner, now: Instant, limit: int) -> tuple[DomainSummary, ...]:
    """Return the first `limit` degraded domains, those without a mark first."""
    active = planner.diagnosis.voting.affected_domains(now.mono) if planner.domain_marks.decisions else {}
    order = (
        IncidentState.WITHHELD,
        IncidentState.DRY_RUN,
        IncidentState.PENDING,
        IncidentState.MARKED,
        IncidentState.ADVISED,
    )
    summaries = [_summary(planner, path, active) for path in planner.domain_marks.decisions]
    summaries.sort(key=lambda domain: (order.index(domain.state or IncidentState.MARKED), domain.domain))
    return tuple(summaries[:limit])


def describe_domain(planner: Planner, service: ServiceState, path: str, now: Instant) -> DomainView:
    """Return the view of the domain of a path."""
    diagnosis = planner.diagnosis
    degraded, decision = diagnosis.degraded_domains.get(path), planner.domain_marks.decision(path)
    members, active = _members(planner, path), diagnosis.voting.affected_domains(now.mono)
    tallies = diagnosis.voting.tallies(path, now.mono)
    fault_classes = (
        degraded.fault_classes if degraded else tuple(tally.fault_class for tally in tallies if tally.voters)
    )
    votes = _votes(degraded, diagnosis.voting.latest_votes(path, fault_classes), tallies) | _suppressed_votes(
        planner, path
    )
    siblings = _siblings(planner, path)
    first_vote = now.wall_of(degraded.began) if degraded else 0.0
    since = now.wall_of(degraded.since) if degraded else 0.0
    parent = diagnosis.members.parent(path)
    incident = planner.incident(shared_incident_name(degraded.name)) if degraded else None
    children = sorted(
        (_summary(planner, child, active) for child in _children(planner, path)),
        key=lambda child: (child.state is None, -child.voters, child.domain),
    )
    return DomainView(
        version=VERSION,
        at=rfc3339(now.wall),
        domain=path,
        topology=describe_topology(planner, diagnosis.members.topology_of(path)),
        state=decision.state if decision else None,
        reason=decision.reason if decision else "",
        fault_classes=degraded.fault_classes if degraded else (),
        since=rfc3339(since) if degraded else "",
        age=age(now, since) if degraded else 0.0,
        began=rfc3339(first_vote) if degraded and not degraded.restored else "",
        began_age=age(now, first_vote) if degraded and not degraded.restored else 0.0,
        times_degraded=degraded.times if degraded else 0,
        evidence=decision.evidence if decision else "",
        clears_when=decision.clears_when if decision else "",
        incident=shared_incident_name(degraded.name) if degraded else "",
        marked=sum(
            1
            for uid in members
            if any(mark.domain == path for mark in planner.state.marks_in_effect(uid).node.degraded)
        ),
        members=len(members),
        voting=diagnosis.members.size(path),
        member_groups=tuple(_member_groups(planner, members)),
        classes=tuple(
            FaultClassView(
                tally.fault_class,
                tally.description,
                tally.window,
                len(tally.voters),
                tally.by_share,
                tally.by_chance,
                tally.required,
            )
            for tally in tallies
        ),
        votes=tuple(_vote_views(planner, votes, fault_classes, now)),
        votes_omitted=max(0, len(votes) - _VOTES),
        siblings=len(siblings),
        siblings_members=sum(diagnosis.members.size(sibling) for sibling in siblings),
        siblings_voters=_sibling_voters(planner, siblings, fault_classes, now),
        parent=_summary(planner, parent, active) if parent else None,
        children=tuple(children[:_CHILDREN]),
        children_omitted=max(0, len(children) - _CHILDREN),
        suppressed_checks=tuple(check for check in suppressed_checks(planner, now) if check.domain == path),
        jobs=incident.jobs if incident else (),
        jobs_omitted=incident.jobs_omitted if incident else 0,
        job_outcomes=job_outcomes(incident.jobs, "", service, now, since=incident.first_seen)
        if incident
        else (),
        guidance=guidance(planner, path, degraded.fault_classes if degraded else ()),
        diagnosed_at=rfc3339(first_vote + degraded.within) if degraded and degraded.voters else "",
        diagnosed_voters=len(degraded.voters) + len(degraded.moved) if degraded else 0,
        diagnosed_members=degraded.size + len(degraded.moved) if degraded else 0,
        showing_now=sum(
            planner.vote_collector.symptom(uid, degraded.fault_classes) is not None
            for uid in (*degraded.voters, *degraded.moved)
        )
        if degraded
        else 0,
    )


def guidance(planner: Planner, path: str, fault_classes: Sequence[str]) -> Guidance | None:
    """Return what people do about a degraded domain, and when nodeguard ends it; None for nothing."""
    advice = class_guidance(planner, fault_classes)
    decision = planner.domain_marks.decision(path)
    if advice is None or decision is None:
        return advice
    return with_end(advice, f"when {decision.clears_when}")


def class_guidance(planner: Planner, fault_classes: Sequence[str]) -> Guidance | None:
    """Return what people do about the first of the fault classes of a domain; None for nothing."""
    fault_class = fault_class_named(planner.diagnosis.rule, fault_classes)
    return fault_class.guidance if fault_class is not None else None


def with_end(advice: Guidance, when: str) -> Guidance:
    """Return guidance with the time at which nodeguard ends a diagnosis, such as `30 min later`."""
    return replace(advice, end=f"{advice.end} nodeguard ends it {when}.")


def _all_domains(planner: Planner) -> Set[str]:
    """Return the paths of all domains, also of degraded ones that all nodes have left."""
    diagnosis = planner.diagnosis
    return {
        *planner.vote_collector.domain_members.domains(),
        *diagnosis.members.domains(),
        *diagnosis.degraded_domains,
    }


def _members(planner: Planner, path: str) -> Set[str]:
    """Return all nodes of a domain, and those that left it and still show its fault. Nodes that may not vote
    belong to no version.
    """
    diagnosis = planner.diagnosis
    degraded = diagnosis.degraded_domains.get(path)
    nodes = planner.vote_collector.domain_members.nodes(path) | diagnosis.members.nodes(path)
    return nodes | set(degraded.moved) if degraded else nodes


def _children(planner: Planner, path: str) -> Set[str]:
    return planner.vote_collector.domain_members.children(path) | planner.diagnosis.members.children(path)


def _siblings(planner: Planner, path: str) -> Set[str]:
    members = planner.diagnosis.members
    return _children(planner, members.parent(path) or members.topology_of(path)) - {path}


def _summary(planner: Planner, path: str, active: Mapping[str, int]) -> DomainSummary:
    degraded, decision = planner.diagnosis.degraded_domains.get(path), planner.domain_marks.decision(path)
    return DomainSummary(
        path,
        len(_members(planner, path)),
        active.get(path, 0),
        decision.state if decision else None,
        degraded.fault_classes if degraded else (),
        decision.reason if decision else "",
    )


def _votes(
    degraded: DegradedDomain | None, remembered: Mapping[str, float], tallies: Iterable[VoteTally]
) -> dict[str, float | None]:
    """Return when each node showed the fault, None where that is no longer known; earliest first."""
    votes: dict[str, float | None] = {}
    for uid in degraded.voters if degraded else ():
        votes[uid] = remembered.get(uid)
    for tally in tallies:
        votes.update((uid, remembered[uid]) for uid in tally.voters if uid in remembered)
    return dict(sorted(votes.items(), key=lambda vote: (vote[1] is None, vote[1] or 0.0, vote[0])))


def _suppressed_votes(planner: Planner, path: str) -> dict[str, float | None]:
    """Return the nodes of checks that are suppressed on this version only, with the time of its finding."""
    firings = planner.diagnosis.voting.firings
    votes: dict[str, float | None] = {}
    for check, suppressed in planner.diagnosis.suppressed_checks.items():
        if suppressed.domain == path:
            latest = firings[check].latest if check in firings else {}
            votes.update((uid, latest.get(uid)) for uid in suppressed.nodes)
    return votes


def _sibling_voters(
    planner: Planner, siblings: Iterable[str], fault_classes: Iterable[str], now: Instant
) -> int:
    """Return how many nodes of other domains show the same fault classes now."""
    voters: set[str] = set()
    for sibling in siblings:
        for tally in planner.diagnosis.voting.tallies(sibling, now.mono):
            if tally.fault_class in fault_classes:
                voters |= tally.voters.keys()
    return len(voters)


def _vote_views(
    planner: Planner, votes: Mapping[str, float | None], fault_classes: tuple[str, ...], now: Instant
) -> Iterator[VoteView]:
    for uid, at in list(votes.items())[:_VOTES]:
        placement = planner.state.placements.get(uid)
        if placement is None:
            continue
        symptom = planner.vote_collector.symptom(uid, fault_classes)
        wall = now.wall_of(at) if at is not None else 0.0
        yield VoteView(
            placement.name,
            rfc3339(wall) if at is not None else "",
            age(now, wall) if at is not None else 0.0,
            symptom.check if symptom else "",
            symptom.target.removeprefix(placement.name).removeprefix(", ") or "node" if symptom else "",
            symptom.message if symptom else "",
        )


def _member_groups(planner: Planner, members: Set[str]) -> Iterator[MemberGroupView]:
    """Yield the members that do not vote or differ from the others, by reason."""
    groups: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for uid in members:
        placement = planner.state.placements.get(uid)
        if placement is None:
            continue
        if placement.cordoned_by_user:
            groups["cordoned by an operator", False].append(placement.name)
        elif placement.maintenance:
            groups["under maintenance", False].append(placement.name)
        elif uid not in planner.last_reports:
            groups["no report since this aggregator started", False].append(placement.name)
        elif uid in planner.stale_agents.stale:
            groups["stale", True].append(placement.name)
        if placement.hold:
            groups["on hold: nodeguard changes nothing on them", True].append(placement.name)
    for (reason, can_vote), names in sorted(groups.items()):
        yield MemberGroupView(reason, can_vote, len(names), tuple(sorted(names)[:_NAMES]))
