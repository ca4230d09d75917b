"""What nodes share, told: one domain in full, and in short those that there is anything of. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set

from nodeguard.fleet.blame.blamed import Blamed, Tally
from nodeguard.fleet.domains.covering import Cover
from nodeguard.fleet.domains.incidents import named
from nodeguard.fleet.domains.words import until_cleared, why_blamed
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.ages import age
from nodeguard.fleet_api.domain_forms import (
    ClassTold,
    DomainLine,
    DomainList,
    DomainPage,
    OthersTold,
    VoteTold,
)
from nodeguard.fleet_api.forms import VERSION
from nodeguard.fleet_api.views import held, view_of, views
from nodeguard.model.incident import State
from nodeguard.model.instant import Instant, rfc3339

# Domains of one answer, votes and children of one page, and names that are named of more.
MOST = 1000
_VOTES = 64
_CHILDREN = 16
_NAMES = 8


def meant(planner: Planner, name: str) -> tuple[str, ...]:
    """The domains that a name may mean: the one of that path, else all whose path ends with it."""
    known = _everything(planner)
    if name in known:
        return (name,)
    return tuple(sorted(path for path in known if path.endswith(f"/{name}"))) if name else ()


def domains(planner: Planner, now: Instant, *, every: bool = False) -> DomainList:
    """The views, and the domains that are to blame, then those that show something. every: others, too."""
    stirring = planner.diagnosis.voting.stirring(now.mono)
    found = _everything(planner) if every else stirring.keys() | planner.diagnosis.blamed.keys()
    lines = [_line(planner, one, stirring) for one in found]
    lines.sort(key=lambda one: (one.state is None, -one.voters / max(1, one.members), one.domain))
    told = tuple(lines[:MOST])
    return DomainList(
        VERSION, rfc3339(now.wall), views(planner), told, len(lines) - len(told), held(planner, now)
    )


def blamed(planner: Planner, now: Instant, most: int) -> tuple[DomainLine, ...]:
    """The first few domains that are to blame, those that are not marked before all."""
    stirring = planner.diagnosis.voting.stirring(now.mono) if planner.covers else {}
    order = (State.WITHHELD, State.DRY_RUN, State.MARKED, State.ADVISED)
    lines = [_line(planner, path, stirring) for path in planner.covers]
    lines.sort(key=lambda one: (order.index(one.state or State.MARKED), one.domain))
    return tuple(lines[:most])


def domain(planner: Planner, path: str, now: Instant) -> DomainPage:
    """Everything of the domain of a path."""
    diagnosis, rule = planner.diagnosis, planner.policy.blame
    blamed, cover = diagnosis.blamed.get(path), _cover(planner, path)
    members, stirring = _members(planner, path), diagnosis.voting.stirring(now.mono)
    tallies = diagnosis.voting.tallies(path, now.mono)
    kinds = blamed.kinds if blamed else tuple(one.kind for one in tallies if one.voters)
    votes = _votes(blamed, diagnosis.voting.votes(path, kinds), tallies) | _held_on(planner, path)
    siblings = _siblings(planner, path)
    began = now.wall - (now.mono - blamed.began) if blamed else 0.0
    since = now.wall - (now.mono - blamed.since) if blamed else 0.0
    parent = diagnosis.members.parent(path)
    children = sorted(
        (_line(planner, one, stirring) for one in _children(planner, path)),
        key=lambda one: (one.state is None, -one.voters, one.domain),
    )
    return DomainPage(
        version=VERSION,
        at=rfc3339(now.wall),
        domain=path,
        view=view_of(planner, diagnosis.members.view_of(path)),
        state=cover.state if cover else None,
        why=cover.why if cover else "",
        kinds=blamed.kinds if blamed else (),
        since=rfc3339(since) if blamed else "",
        age=age(now, since) if blamed else 0.0,
        began=rfc3339(began) if blamed and not blamed.recalled else "",
        began_age=age(now, began) if blamed and not blamed.recalled else 0.0,
        times=blamed.times if blamed else 0,
        says=why_blamed(blamed, rule) if blamed else "",
        until=until_cleared(blamed, rule) if blamed else "",
        incident=named(blamed.name) if blamed else "",
        marked=sum(
            1
            for uid in members
            if any(one.domain == path for one in planner.roster.observed(uid).node.degraded)
        ),
        members=len(members),
        voting=diagnosis.members.size(path),
        others=tuple(_others(planner, members)),
        classes=tuple(
            ClassTold(one.kind, one.says, one.window, len(one.voters), one.by_share, one.by_chance, one.needs)
            for one in tallies
        ),
        votes=tuple(_told(planner, votes, kinds, now)),
        votes_more=max(0, len(votes) - _VOTES),
        siblings=len(siblings),
        siblings_members=sum(diagnosis.members.size(one) for one in siblings),
        siblings_voters=_elsewhere(planner, siblings, kinds, now),
        parent=_line(planner, parent, stirring) if parent else None,
        children=tuple(children[:_CHILDREN]),
        children_more=max(0, len(children) - _CHILDREN),
        held=tuple(one for one in held(planner, now) if one.domain == path),
    )


def _everything(planner: Planner) -> Set[str]:
    return {*planner.witness.everyone.domains(), *planner.diagnosis.members.domains()}


def _members(planner: Planner, path: str) -> Set[str]:
    """All nodes of a domain. Those that may not vote are of no version."""
    return planner.witness.everyone.of(path) | planner.diagnosis.members.of(path)


def _children(planner: Planner, path: str) -> Set[str]:
    return planner.witness.everyone.children(path) | planner.diagnosis.members.children(path)


def _siblings(planner: Planner, path: str) -> Set[str]:
    members = planner.diagnosis.members
    return _children(planner, members.parent(path) or members.view_of(path)) - {path}


def _cover(planner: Planner, path: str) -> Cover | None:
    """What becomes of a domain that is to blame; the latest plan may tell of one that is not any more."""
    return planner.covers.get(path) if path in planner.diagnosis.blamed else None


def _line(planner: Planner, path: str, stirring: Mapping[str, int]) -> DomainLine:
    blamed, cover = planner.diagnosis.blamed.get(path), _cover(planner, path)
    return DomainLine(
        path,
        len(_members(planner, path)),
        stirring.get(path, 0),
        cover.state if cover else None,
        blamed.kinds if blamed else (),
        cover.why if cover else "",
    )


def _votes(
    blamed: Blamed | None, remembered: Mapping[str, float], tallies: Iterable[Tally]
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
    watches = planner.diagnosis.voting.watches
    found: dict[str, float | None] = {}
    for check, one in planner.diagnosis.held.items():
        if one.domain == path:
            latest = watches[check].latest if check in watches else {}
            found.update((uid, latest.get(uid)) for uid in one.nodes)
    return found


def _elsewhere(planner: Planner, siblings: Iterable[str], kinds: Iterable[str], now: Instant) -> int:
    """On how many nodes of other domains the same is seen now."""
    found: set[str] = set()
    for one in siblings:
        for tally in planner.diagnosis.voting.tallies(one, now.mono):
            if tally.kind in kinds:
                found |= tally.voters.keys()
    return len(found)


def _told(
    planner: Planner, votes: Mapping[str, float | None], kinds: tuple[str, ...], now: Instant
) -> Iterator[VoteTold]:
    for uid, at in list(votes.items())[:_VOTES]:
        seat = planner.roster.seats.get(uid)
        if seat is None:
            continue
        sight = planner.witness.sight(uid, kinds)
        wall = now.wall_of(at) if at is not None else 0.0
        yield VoteTold(
            seat.name,
            rfc3339(wall) if at is not None else "",
            age(now, wall) if at is not None else 0.0,
            sight.check if sight else "",
            sight.target.removeprefix(seat.name).removeprefix(", ") or "node" if sight else "",
            sight.message if sight else "",
        )


def _others(planner: Planner, members: Set[str]) -> Iterator[OthersTold]:
    """Members that do not vote, or are not like the rest, by why."""
    found: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for uid in members:
        seat = planner.roster.seats.get(uid)
        if seat is None:
            continue
        if seat.out:
            found["cordoned by people", False].append(seat.name)
        elif seat.maintenance:
            found["under maintenance", False].append(seat.name)
        elif uid not in planner.last:
            found["never heard", False].append(seat.name)
        elif uid in planner.silence.silent:
            found["silent", True].append(seat.name)
        if seat.hold:
            found["held, so nothing is changed on them", True].append(seat.name)
    for (why, votes), names in sorted(found.items()):
        yield OthersTold(why, votes, len(names), tuple(sorted(names)[:_NAMES]))
