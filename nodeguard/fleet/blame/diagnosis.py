"""The diagnosis: from what single nodes show to the shared part that is to blame, or to the check that is not
to be believed. Pure: it is told of votes, and of the time.

The rule and the reasons for its constants stand in docs/domains.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from nodeguard.fleet.blame.ballot import Ballot
from nodeguard.fleet.blame.blamed import Blamed, Candidate, Held
from nodeguard.fleet.blame.choice import chosen, hits
from nodeguard.fleet.blame.doubt import Crowd, doubts
from nodeguard.fleet.blame.past import Past
from nodeguard.fleet.blame.rollout import coincides, concentrates
from nodeguard.fleet.blame.watch import Watch
from nodeguard.fleet.modes import one_of
from nodeguard.fleet.views.members import Members
from nodeguard.model.blame import SILENT, VERSIONS, Blame

# Seconds between two looks while anything is undecided, and while something is only waited for to end.
_SOON, _LATER = 5.0, 60.0


class Diagnosis:
    """What is known of what the nodes of a fleet share, and of who showed what.

    members: the nodes that may vote, with their domains. blamed: by domain. held: by check. second: whether
    another source bears out what a check found on a node.
    """

    def __init__(self, rule: Blame, second: Callable[[str, str], bool]) -> None:
        self.rule = rule
        self.members = Members()
        self.blamed: dict[str, Blamed] = {}
        self.held: dict[str, Held] = {}
        self._second = second
        self._ballots = {kind.name: Ballot(kind, rule, self.members) for kind in rule.classes}
        self._watches: dict[str, Watch] = {}
        self._classes: dict[str, tuple[Ballot, ...]] = {}
        self._cast: dict[str, dict[str, Ballot]] = {}
        self._fresh: dict[str, set[str]] = {kind.name: set() for kind in rule.classes}
        self._hot: dict[str, dict[str, Candidate]] = {kind.name: {} for kind in rule.classes}
        self._stirred: set[str] = set()
        self._clocks: dict[tuple[str, str], float] = {}
        self._doubted: dict[str, float] = {}
        self._crowds: dict[str, Crowd] = {}
        self._changed: dict[tuple[str, str], float] = {}
        self._past = Past(rule)
        self._looked: float | None = None

    def place(self, uid: str, paths: Iterable[str], now: float) -> None:
        """A node that may vote, with its domains; without any, it may not."""
        had = self.members.paths(uid)
        if not self.members.place(uid, paths):
            return
        there = self.members.paths(uid)
        if had and there:
            for path in set(there) - set(had):
                if self.members.view_of(path) in VERSIONS:
                    self._changed[uid, path] = now
        for path in set(had) - set(there):
            self._changed.pop((uid, path), None)
        for ballot in self._ballots.values():
            ballot.moved(uid)
        if not there:
            for watch in self._watches.values():
                watch.drop(uid)

    def gone(self, uid: str, now: float) -> None:
        """A node that is no more."""
        self.place(uid, (), now)
        for ballot in self._ballots.values():
            ballot.leave(uid)

    def vote(self, uid: str, check: str, views: Iterable[str], at: float) -> None:
        """A check fires on a node where it did not, which may be told of in some views."""
        if not self.members.paths(uid):
            return
        watch = self._watches.get(check)
        if watch is None:
            watch = self._watches[check] = Watch(self.rule)
        watch.note(uid, at)
        self._stirred.add(check)
        if self.holds(check, uid):
            return
        views = tuple(views)
        for ballot in self._voting(check):
            if not ballot.where.keys().isdisjoint(views):
                ballot.vote(uid, views, at)
                self._cast.setdefault(check, {})[ballot.kind.name] = ballot
                self._fresh[ballot.kind.name].add(uid)

    def over(self, uid: str, check: str) -> None:
        """It does not fire there any more."""
        watch = self._watches.get(check)
        if watch is not None:
            watch.active.discard(uid)

    def holds(self, check: str, uid: str) -> Held | None:
        """Why nothing is done for a check on a node; None where something may be."""
        held = self.held.get(check)
        if held is not None and (not held.domain or uid in self.members.of(held.domain)):
            return held
        return None

    def fits(self, check: str, kinds: Iterable[str]) -> bool:
        """Whether a check has voted in one of some classes of faults."""
        return not self._cast.get(check, _NO_BALLOTS).keys().isdisjoint(kinds)

    def recall(self, domain: str, name: str, kinds: tuple[str, ...], now: float) -> None:
        """A domain that was blamed before this diagnosis began. Nothing of its votes is known."""
        known = tuple(kind for kind in kinds if kind in self._ballots)
        self.blamed.setdefault(
            domain, Blamed(name, domain, known, now, now, (), self.members.size(domain), recalled=True)
        )

    def recall_held(self, check: str, domain: str, now: float) -> None:
        """A check that was held before this diagnosis began; domain: the version on which it was alone."""
        self.held.setdefault(check, Held(check, now, (), 0, 0.0, domain=domain))

    def doubts(self, check: str) -> bool:
        """Whether a check fires on more nodes than anything explains, and may be held for that soon."""
        return check in self._doubted

    def clear(self, what: str, now: float) -> None:
        """A domain or a check that is in order, on somebody's word."""
        blamed, held = self.blamed.pop(what, None), self.held.pop(what, None)
        if blamed is None and held is None:
            return
        self._past.end(what, now)
        for kind in blamed.kinds if blamed is not None else ():
            for uid in list(self._ballots[kind].all_of(what)):
                self._ballots[kind].leave(uid)
        if held is not None:
            self._watches.pop(what, None)

    def due(self) -> float | None:
        """When to look again though nothing was told: seconds of the clock; None for not at all."""
        if self._looked is None or not (self._clocks or self._doubted or self.blamed or self.held):
            return None
        return self._looked + (_SOON if self._clocks or self._doubted else _LATER)

    def settle(self, now: float) -> bool:
        """Look at what is known. now: seconds of the clock. Returns whether what is said has changed."""
        due = self.due()
        if not self._stirred and (due is None or now < due):
            return False
        said = dict(self.blamed), dict(self.held)
        for ballot in self._ballots.values():
            ballot.forget(now)
        for name, watch in list(self._watches.items()):
            watch.forget(now, learns=name not in self.held)
            if watch.is_idle and name not in self.held:
                del self._watches[name]
        candidates = self._choose(now)
        self._doubt(candidates, now)
        self._hold(now)
        self._blame(candidates, now)
        self._let_go(now)
        self._stirred.clear()
        self._looked = now
        return said != (self.blamed, self.held)

    def _voting(self, check: str) -> tuple[Ballot, ...]:
        found = self._classes.get(check)
        if found is None:
            # That nothing is heard of a node is a class of its own, whatever else any check may show.
            found = self._classes[check] = tuple(
                one
                for one in self._ballots.values()
                if check in one.kind.checks or (check != SILENT and one_of(one.kind.checks)(check))
            )
        return found

    def _choose(self, now: float) -> list[Candidate]:
        """Domains that are to be blamed, once they have settled."""
        picked: list[Candidate] = []
        for kind, ballot in self._ballots.items():
            fresh, self._fresh[kind] = self._fresh[kind], set()
            leaves = self._hot[kind].keys() | {leaf for uid in fresh for leaf in ballot.leaves(uid)}
            if not leaves:
                continue
            found = {**self._going_on(ballot), **hits(ballot, leaves, self.members, now)}
            self._hot[kind] = found
            new = [one for one in found.values() if not self._is_known(one)]
            picked += chosen(new, self._explained(kind), self.rule.nodes) if new else ()
        clocks = {(one.kind, one.domain): now for one in picked}
        for (kind, domain), since in self._clocks.items():
            # A wider one that takes the place of a narrower goes on with its clock.
            for one in picked:
                if one.kind == kind and _is_in(domain, one.domain):
                    clocks[kind, one.domain] = min(since, clocks[kind, one.domain])
        self._clocks = clocks
        return picked

    def _going_on(self, ballot: Ballot) -> dict[str, Candidate]:
        """Of what was hit before, that of which enough nodes have shown it ever since."""
        before = self._hot[ballot.kind.name]
        if not (ballot.kind.lasting and before):
            return {}
        still = self._lasting(ballot.kind.name)
        least = {leaf: max(self.rule.nodes, ballot.kind.share * one.size) for leaf, one in before.items()}
        return {leaf: one for leaf, one in before.items() if len(still & one.voters.keys()) >= least[leaf]}

    def _is_known(self, one: Candidate) -> bool:
        """Whether a candidate is blamed already, or is a part of what is; then its votes are told there."""
        for domain, known in self.blamed.items():
            if one.domain == domain or (_is_in(one.domain, domain) and self._are_alike(one.kind, known)):
                kinds = dict.fromkeys([*known.kinds, one.kind])
                voters = one.voters.keys() | set(known.voters)
                self.blamed[domain] = replace(
                    known, kinds=tuple(kinds), voters=tuple(sorted(voters)), size=self.members.size(domain)
                )
                return True
        return False

    def _are_alike(self, kind: str, known: Blamed) -> bool:
        """Whether a class of faults is told of in the same views as one that a domain is blamed for."""
        views = self._ballots[kind].where.keys()
        return any(self._ballots[other].where.keys() == views for other in known.kinds)

    def _explained(self, kind: str) -> set[str]:
        """Nodes of the domains that are blamed for a class of faults."""
        found: set[str] = set()
        for domain, one in self.blamed.items():
            if kind in one.kinds:
                found |= self.members.of(domain)
        return found

    def _doubt(self, candidates: list[Candidate], now: float) -> None:
        looked = {
            check: self._watches[check]
            for check in self._stirred | self._doubted.keys()
            if check in self._watches and (check not in self.held or self.held[check].domain)
        }
        found = doubts(looked, candidates, self._of, self._explained_of, self.members, now)
        self._doubted = {check: self._doubted.get(check, now) for check in found}
        self._crowds = found

    def _of(self, check: str, one: Candidate) -> bool:
        return one.kind in self._cast.get(check, _NO_BALLOTS)

    def _explained_of(self, check: str) -> set[str]:
        held = self.held.get(check)
        found = set(self.members.of(held.domain)) if held is not None else set()
        for kind in self._cast.get(check, _NO_BALLOTS):
            found |= self._explained(kind)
        return found

    def _hold(self, now: float) -> None:
        """Hold the checks that have been doubted for long enough."""
        for check, since in list(self._doubted.items()):
            if now - since < self.rule.settle:
                continue
            window, limit, who = self._crowds[check]
            self._begin_hold(check, who, window, limit, concentrates(self.members, who), now)
            del self._doubted[check]

    def _begin_hold(
        self, check: str, who: frozenset[str], window: float, limit: int, domain: str, now: float
    ) -> None:
        borne_out = sum(1 for uid in who if self._second(uid, check))
        self.held[check] = Held(
            check=check,
            since=now,
            nodes=tuple(sorted(who)),
            limit=limit,
            within=window,
            real=borne_out >= max(2, self.rule.second * len(who)),
            domain=domain,
            times=self._past.times(check, now) + 1,
        )
        for ballot in self._cast.get(check, _NO_BALLOTS).values():
            for uid in who:
                ballot.leave(uid)

    def _blame(self, candidates: Iterable[Candidate], now: float) -> None:
        for one in candidates:
            waited = now - self._clocks[one.kind, one.domain]
            if waited < self.rule.settle or self._is_weak(one, waited, now):
                continue
            checks = [name for name in self._watches if self._of(name, one) and self._shows(name, one)]
            if any(check in self._doubted or check in self.held for check in checks):
                continue
            self._clocks.pop((one.kind, one.domain))
            version = one.domain if self.members.view_of(one.domain) in VERSIONS else ""
            version = version or coincides(self.members, one, self._changed, now)
            if version:
                for check in checks:
                    self._begin_hold(check, frozenset(one.voters), one.window, 0, version, now)
            elif not self._is_known(one):
                self._say(one, now)

    def _shows(self, check: str, one: Candidate) -> bool:
        return not one.voters.keys().isdisjoint(self._watches[check].latest)

    def _is_weak(self, one: Candidate, waited: float, now: float) -> bool:
        """Whether so few of many nodes show it that they are given more time."""
        ballot = self._ballots[one.kind]
        if not ballot.kind.weak or one.share >= self.rule.weak or self.members.children(one.domain):
            return False
        if waited < self.rule.patience:
            return True
        lately = set(ballot.voters(one.domain, now, self.rule.lately))
        if ballot.kind.lasting:
            lately |= self._lasting(one.kind) & one.voters.keys()
        return len(lately) < self.rule.nodes

    def _say(self, one: Candidate, now: float) -> None:
        """A domain is to blame from now on; what it consists of is not any more."""
        parts = [
            known
            for known in self.blamed.values()
            if _is_in(known.domain, one.domain) and self._are_alike(one.kind, known)
        ]
        for known in parts:
            del self.blamed[known.domain]
        above = self.members.parent(one.domain) or self.members.view_of(one.domain)
        siblings = self.members.children(above) - {one.domain}
        others = set(self._ballots[one.kind].all_of(above)) if "/" in above else set()
        first = min(parts, key=lambda known: known.since, default=None)
        kinds = [kind for known in parts for kind in known.kinds]
        self.blamed[one.domain] = Blamed(
            name=first.name if first else one.domain,
            domain=one.domain,
            kinds=tuple(dict.fromkeys([one.kind, *kinds])),
            since=first.since if first else now,
            began=min(one.voters.values()),
            within=max(one.voters.values()) - min(one.voters.values()),
            voters=tuple(sorted(one.voters)),
            size=one.size,
            siblings=len(siblings),
            elsewhere=len(others - self.members.of(one.domain)),
            times=self._past.times(one.domain, now) + 1,
        )
        self._ballots[one.kind].explained(self.members.of(one.domain))

    def _let_go(self, now: float) -> None:
        for domain, blamed in list(self.blamed.items()):
            waited = self._past.wait(blamed.times)
            if now - blamed.since >= waited and not self._goes_on(blamed, now - waited):
                self.clear(domain, now)
        for check, held in list(self.held.items()):
            watch = self._watches.get(check)
            waited = self._past.wait(held.times)
            if now - held.since < waited:
                continue
            late = sum(1 for at in watch.latest.values() if at > now - waited) if watch else 0
            active = len(watch.active) if watch else 0
            if max(late, active) < max(2, len(held.nodes) / 2):
                self.clear(check, now)

    def _goes_on(self, one: Blamed, since: float) -> bool:
        """Whether enough of a domain's nodes still show what it is blamed for."""
        members = self.members.of(one.domain)
        for kind in one.kinds:
            ballot = self._ballots[kind]
            least = max(2.0, ballot.kind.share / 2 * len(members))
            if sum(1 for at in ballot.all_of(one.domain).values() if at > since) >= least:
                return True
            if ballot.kind.lasting and len(self._lasting(kind) & members) >= least:
                return True
        return False

    def _lasting(self, kind: str) -> set[str]:
        """Nodes that show a class of faults at this moment."""
        found: set[str] = set()
        for check, watch in self._watches.items():
            if kind in self._cast.get(check, _NO_BALLOTS):
                found |= watch.active
        return found


_NO_BALLOTS: dict[str, Ballot] = {}


def _is_in(domain: str, other: str) -> bool:
    """Whether a domain is another, or a part of it."""
    return f"{domain}/".startswith(f"{other}/")
