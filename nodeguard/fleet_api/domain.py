"""What nodes share, told: one domain in full, and in short those that there is anything of. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set

from nodeguard.fleet.decide.domain_decision import DomainDecision
from nodeguard.fleet.diagnosis.explanation import clearing_message, degraded_message, suppressed_message
from nodeguard.fleet.diagnosis.results import DegradedDomain, VoteTally
from nodeguard.fleet.incidents.domain_incidents import shared_incident_name
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.topology.topologies import MissingLabel
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
from nodeguard.fleet_api.service_state import age
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES, VERSION_TOPOLOGIES
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant, rfc3339

_LACKING_NAMES = 8


def list_topologies(planner: Planner) -> tuple[TopologyView, ...]:
    """Every view that has domains, those of places first."""
    counts, lacking = count_domains(planner), planner.state.topologies.missing_labels()
    known = [view for view in (*LOCATION_TOPOLOGIES, *VERSION_TOPOLOGIES) if view in counts]
    others = sorted(counts.keys() - {*LOCATION_TOPOLOGIES, *VERSION_TOPOLOGIES})
    return tuple(_view(planner, view, counts[view], lacking) for view in (*known, *others))


def describe_topology(planner: Planner, view: str) -> TopologyView:
    """One view."""
    return _view(
        planner, view, count_domains(planner).get(view, 0), planner.state.topologies.missing_labels()
    )


def _view(
    planner: Planner, view: str, many: int, lacking: Mapping[tuple[str, str], MissingLabel]
) -> TopologyView:
    lacks = tuple(
        MissingLabelView(key, lack.nodes, lack.names[:_LACKING_NAMES])
        for (of, key), lack in lacking.items()
        if of == view
    )
    return TopologyView(view, many, planner.state.topologies.label_keys().get(view, ()), lacks)


def count_domains(planner: Planner) -> dict[str, int]:
    """How many domains each view has."""
    counts: dict[str, int] = {}
    paths = {*planner.vote_collector.domain_members.domains(), *planner.diagnosis.members.domains()}
    for path in paths:
        view = path.partition("/")[0]
        counts[view] = counts.get(view, 0) + 1
    return counts


def suppressed_checks(planner: Planner, now: Instant) -> tuple[SuppressedCheckView, ...]:
    """The checks that are held, the first first."""
    found = sorted(planner.diagnosis.suppressed_checks.values(), key=lambda one: (one.since, one.check))
    told = []
    for one in found:
        since = now.wall_of(one.since)
        told.append(
            SuppressedCheckView(
                one.check,
                one.domain,
                rfc3339(since),
                age(now, since),
                len(one.nodes),
                suppressed_message(one),
            )
        )
    return tuple(told)


# Domains of one answer, votes and children of one page, and names that are named of more.
MAX_DOMAINS = 1000
_VOTES = 64
_CHILDREN = 16
_LACKING_NAMES = 8


def domains_named(planner: Planner, name: str) -> tuple[str, ...]:
    """The domains that a name may mean: the one of that path, else all whose path ends with it."""
    known = _everything(planner)
    if name in known:
        return (name,)
    return tuple(sorted(path for path in known if path.endswith(f"/{name}"))) if name else ()


def list_domains(planner: Planner, now: Instant, *, include_healthy: bool = False) -> DomainList:
    """The views, and the domains that are to blame, then those that show something. every: others, too."""
    stirring = planner.diagnosis.voting.affected_domains(now.mono)
    found = (
        _everything(planner)
        if include_healthy
        else stirring.keys() | planner.diagnosis.degraded_domains.keys()
    )
    lines = [_line(planner, one, stirring) for one in found]
    lines.sort(key=lambda one: (one.state is None, -one.voters / max(1, one.members), one.domain))
    told = tuple(lines[:MAX_DOMAINS])
    return DomainList(
        VERSION,
        rfc3339(now.wall),
        list_topologies(planner),
        told,
        len(lines) - len(told),
        suppressed_checks(planner, now),
    )


def degraded_domains(planner: Planner, now: Instant, most: int) -> tuple[DomainSummary, ...]:
    """The first few domains that are to blame, those that are not marked before all."""
    stirring = planner.diagnosis.voting.affected_domains(now.mono) if planner.domain_decisions else {}
    order = (IncidentState.WITHHELD, IncidentState.DRY_RUN, IncidentState.MARKED, IncidentState.ADVISED)
    lines = [_line(planner, path, stirring) for path in planner.domain_decisions]
    lines.sort(key=lambda one: (order.index(one.state or IncidentState.MARKED), one.domain))
    return tuple(lines[:most])


def describe_domain(planner: Planner, path: str, now: Instant) -> DomainView:
    """Everything of the domain of a path."""
    diagnosis, rule = planner.diagnosis, planner.policy.diagnosis
    blamed, cover = diagnosis.degraded_domains.get(path), _cover(planner, path)
    members, stirring = _members(planner, path), diagnosis.voting.affected_domains(now.mono)
    tallies = diagnosis.voting.tallies(path, now.mono)
    kinds = blamed.fault_classes if blamed else tuple(one.fault_class for one in tallies if one.voters)
    votes = _votes(blamed, diagnosis.voting.latest_votes(path, kinds), tallies) | _held_on(planner, path)
    siblings = _siblings(planner, path)
    began = now.wall - (now.mono - blamed.began) if blamed else 0.0
    since = now.wall - (now.mono - blamed.since) if blamed else 0.0
    parent = diagnosis.members.parent(path)
    children = sorted(
        (_line(planner, one, stirring) for one in _children(planner, path)),
        key=lambda one: (one.state is None, -one.voters, one.domain),
    )
    return DomainView(
        version=VERSION,
        at=rfc3339(now.wall),
        domain=path,
        topology=describe_topology(planner, diagnosis.members.topology_of(path)),
        state=cover.state if cover else None,
        reason=cover.reason if cover else "",
        fault_classes=blamed.fault_classes if blamed else (),
        since=rfc3339(since) if blamed else "",
        age=age(now, since) if blamed else 0.0,
        began=rfc3339(began) if blamed and not blamed.restored else "",
        began_age=age(now, began) if blamed and not blamed.restored else 0.0,
        times_degraded=blamed.times if blamed else 0,
        evidence=degraded_message(blamed, rule) if blamed else "",
        clears_when=clearing_message(blamed, rule) if blamed else "",
        incident=shared_incident_name(blamed.name) if blamed else "",
        marked=sum(
            1
            for uid in members
            if any(one.domain == path for one in planner.state.observed_marks(uid).node.degraded)
        ),
        members=len(members),
        voting=diagnosis.members.size(path),
        member_groups=tuple(_others(planner, members)),
        classes=tuple(
            FaultClassView(
                one.fault_class,
                one.description,
                one.window,
                len(one.voters),
                one.by_share,
                one.by_chance,
                one.required,
            )
            for one in tallies
        ),
        votes=tuple(_told(planner, votes, kinds, now)),
        votes_omitted=max(0, len(votes) - _VOTES),
        siblings=len(siblings),
        siblings_members=sum(diagnosis.members.size(one) for one in siblings),
        siblings_voters=_elsewhere(planner, siblings, kinds, now),
        parent=_line(planner, parent, stirring) if parent else None,
        children=tuple(children[:_CHILDREN]),
        children_omitted=max(0, len(children) - _CHILDREN),
        suppressed_checks=tuple(one for one in suppressed_checks(planner, now) if one.domain == path),
    )


def _everything(planner: Planner) -> Set[str]:
    return {*planner.vote_collector.domain_members.domains(), *planner.diagnosis.members.domains()}


def _members(planner: Planner, path: str) -> Set[str]:
    """All nodes of a domain. Those that may not vote are of no version."""
    return planner.vote_collector.domain_members.nodes(path) | planner.diagnosis.members.nodes(path)


def _children(planner: Planner, path: str) -> Set[str]:
    return planner.vote_collector.domain_members.children(path) | planner.diagnosis.members.children(path)


def _siblings(planner: Planner, path: str) -> Set[str]:
    members = planner.diagnosis.members
    return _children(planner, members.parent(path) or members.topology_of(path)) - {path}


def _cover(planner: Planner, path: str) -> DomainDecision | None:
    """What becomes of a domain that is to blame; the latest plan may tell of one that is not any more."""
    return planner.domain_decisions.get(path) if path in planner.diagnosis.degraded_domains else None


def _line(planner: Planner, path: str, stirring: Mapping[str, int]) -> DomainSummary:
    blamed, cover = planner.diagnosis.degraded_domains.get(path), _cover(planner, path)
    return DomainSummary(
        path,
        len(_members(planner, path)),
        stirring.get(path, 0),
        cover.state if cover else None,
        blamed.fault_classes if blamed else (),
        cover.reason if cover else "",
    )


def _votes(
    blamed: DegradedDomain | None, remembered: Mapping[str, float], tallies: Iterable[VoteTally]
) -> dict[str, float | None]:
    """Who shows it, and when each did, None where that is forgotten; the first comes first."""
    found: dict[str, float | None] = {}
    for uid in blamed.voters if blamed else ():
        found[uid] = remembered.get(uid)
    for tally in tallies:
        found.update((uid, remembered[uid]) for uid in tally.voters if uid in remembered)
    return dict(sorted(found.items(), key=lambda one: (one[1] is None, one[1] or 0.0, one[0])))


def _held_on(planner: Planner, path: str) -> dict[str, float | None]:
    """Where the checks fire that are held on a version alone, and when each began there."""
    watches = planner.diagnosis.voting.firings
    found: dict[str, float | None] = {}
    for check, one in planner.diagnosis.suppressed_checks.items():
        if one.domain == path:
            latest = watches[check].latest if check in watches else {}
            found.update((uid, latest.get(uid)) for uid in one.nodes)
    return found


def _elsewhere(planner: Planner, siblings: Iterable[str], kinds: Iterable[str], now: Instant) -> int:
    """On how many nodes of other domains the same is seen now."""
    found: set[str] = set()
    for one in siblings:
        for tally in planner.diagnosis.voting.tallies(one, now.mono):
            if tally.fault_class in kinds:
                found |= tally.voters.keys()
    return len(found)


def _told(
    planner: Planner, votes: Mapping[str, float | None], kinds: tuple[str, ...], now: Instant
) -> Iterator[VoteView]:
    for uid, at in list(votes.items())[:_VOTES]:
        seat = planner.state.placements.get(uid)
        if seat is None:
            continue
        sight = planner.vote_collector.symptom(uid, kinds)
        wall = now.wall_of(at) if at is not None else 0.0
        yield VoteView(
            seat.name,
            rfc3339(wall) if at is not None else "",
            age(now, wall) if at is not None else 0.0,
            sight.check if sight else "",
            sight.target.removeprefix(seat.name).removeprefix(", ") or "node" if sight else "",
            sight.message if sight else "",
        )


def _others(planner: Planner, members: Set[str]) -> Iterator[MemberGroupView]:
    """Members that do not vote, or are not like the rest, by why."""
    found: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for uid in members:
        seat = planner.state.placements.get(uid)
        if seat is None:
            continue
        if seat.cordoned_by_user:
            found["cordoned by people", False].append(seat.name)
        elif seat.maintenance:
            found["under maintenance", False].append(seat.name)
        elif uid not in planner.last_reports:
            found["never heard", False].append(seat.name)
        elif uid in planner.stale_agents.stale:
            found["silent", True].append(seat.name)
        if seat.hold:
            found["held, so nothing is changed on them", True].append(seat.name)
    for (why, votes), names in sorted(found.items()):
        yield MemberGroupView(why, votes, len(names), tuple(sorted(names)[:_LACKING_NAMES]))
