"""Domains that are to blame: found, watched until they have settled, and let go when it is over. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Set

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.candidates import choose_candidates, significant_domains
from nodeguard.fleet.diagnosis.recurrence import Recurrence, fewest_nodes
from nodeguard.fleet.diagnosis.results import Candidate, DegradedDomain
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.model.diagnosis import DiagnosisPolicy

# Seconds between two looks at what has been found.
SOON = 5.0


class DegradedDomains:
    """blamed: by domain. clocks: since when another is chosen, by class of faults and path."""

    def __init__(self, rule: DiagnosisPolicy, voting: VoteIndex, past: Recurrence) -> None:
        self.degraded: dict[str, DegradedDomain] = {}
        self.clocks: dict[tuple[str, str], float] = {}
        self._rule = rule
        self._voting = voting
        self._past = past
        self._hot: dict[str, dict[str, Candidate]] = {kind.name: {} for kind in rule.classes}
        self._chose = -SOON

    def take_over(self, other: DegradedDomains) -> None:
        """Go on with what another blames."""
        for domain, one in other.degraded.items():
            kinds = tuple(kind for kind in one.fault_classes if kind in self._voting.votes_by_class)
            self.degraded[domain] = replace(one, fault_classes=kinds)

    def restore(self, domain: str, name: str, kinds: Iterable[str], began: float, now: float) -> None:
        """A domain that was blamed before anything was known here. Nothing of its votes is known."""
        known = tuple(kind for kind in kinds if kind in self._voting.votes_by_class)
        size = self._voting.members.size(domain)
        self.degraded.setdefault(
            domain, DegradedDomain(name, domain, known, now, began, (), size, restored=True)
        )

    def choose(self, held: Container[str], now: float) -> list[Candidate]:
        """Domains that may be to blame, and are once they have settled. held: checks not to be believed."""
        picked: list[Candidate] = []
        # What was found is looked at again now and then; what is new is looked at at once.
        again = now >= self._chose + SOON
        self._chose = now if again else self._chose
        for kind, ballot in self._voting.votes_by_class.items():
            fresh, self._voting.new_voters[kind] = self._voting.new_voters[kind], set()
            leaves = {leaf for uid in fresh for leaf in ballot.lowest_domains(uid)}
            if again:
                leaves |= self._hot[kind].keys()
            if not leaves and not self._hot[kind]:
                continue
            hit = significant_domains(ballot, leaves, self._voting.members, now)
            self._hot[kind] = self._going_on(ballot, leaves, held) | hit
            for one in {one.domain: one for one in hit.values()}.values():
                self._join(one)
            found = {one.domain: one for one in self._hot[kind].values()}
            new = [one for one in found.values() if not self._known(one)]
            picked += choose_candidates(new, self.explained(kind), self._rule.nodes) if new else ()
        clocks = {(one.fault_class, one.domain): now for one in picked}
        for (kind, domain), since in self.clocks.items():
            # A wider one that takes the place of a narrower goes on with its clock.
            for one in picked:
                if one.fault_class == kind and _is_in(domain, one.domain):
                    clocks[kind, one.domain] = min(since, clocks[kind, one.domain])
        self.clocks = clocks
        return picked

    def explained(self, kind: str) -> set[str]:
        """Nodes of the domains that are blamed for a class of faults."""
        found: set[str] = set()
        for domain, one in self.degraded.items():
            if kind in one.fault_classes:
                found |= self._voting.members.nodes(domain)
        return found

    def settled_candidates(self, candidates: Collection[Candidate], now: float) -> Iterator[Candidate]:
        """Those that have been chosen for long enough."""
        for one in candidates:
            waited = now - self.clocks[one.fault_class, one.domain]
            if waited >= self._rule.settle and not self._is_weak(one, waited, now):
                yield one

    def begin(self, one: Candidate, now: float) -> None:
        """A domain is to blame from now on, unless it is so already."""
        self.drop(one)
        if self._known(one):
            self._join(one)
        else:
            self._say(one, now)

    def drop(self, one: Candidate) -> None:
        """A candidate is not waited for any more."""
        self.clocks.pop((one.fault_class, one.domain), None)

    def clear(self, domain: str, now: float) -> None:
        """A domain is not to blame any more."""
        blamed = self.degraded.pop(domain, None)
        if blamed is not None:
            self._past.record_end(domain, now)
            for kind in blamed.fault_classes:
                found = self._hot[kind]
                self._hot[kind] = {leaf: one for leaf, one in found.items() if not _is_in(leaf, domain)}
                ballot = self._voting.votes_by_class[kind]
                for uid in list(ballot.latest_votes(domain)):
                    ballot.withdraw(uid)

    def clear_recovered(self, now: float) -> None:
        """Let go of those of which hardly any node has shown it for long enough."""
        for domain, blamed in list(self.degraded.items()):
            waited = self._past.clearing_time(blamed.times)
            if now - blamed.since >= waited and not self._goes_on(blamed, now - waited):
                self.clear(domain, now)

    def _going_on(self, ballot: FaultVotes, leaves: Set[str], held: Container[str]) -> dict[str, Candidate]:
        """Of what was hit before, all but these leaves; and of them those whose nodes have shown it since."""
        before = self._hot[ballot.vote_class.name]
        found = {leaf: one for leaf, one in before.items() if leaf not in leaves}
        if not (ballot.vote_class.lasting and before.keys() & leaves):
            return found
        still = self._voting.active_nodes(ballot.vote_class.name, held)
        for leaf in before.keys() & leaves:
            one = before[leaf]
            if len(still & one.voters.keys()) >= max(self._rule.nodes, ballot.vote_class.share * one.size):
                found[leaf] = one
        return found

    def _known(self, one: Candidate) -> DegradedDomain | None:
        """The domain that is blamed already for what a candidate shows: itself, or what it is a part of."""
        for domain, known in self.degraded.items():
            if one.domain == domain or (
                _is_in(one.domain, domain) and self._are_alike(one.fault_class, known)
            ):
                return known
        return None

    def _join(self, one: Candidate) -> None:
        """Tell the votes of a candidate where it is blamed already."""
        known = self._known(one)
        if known is not None:
            self.degraded[known.domain] = replace(
                known,
                fault_classes=tuple(dict.fromkeys([*known.fault_classes, one.fault_class])),
                voters=tuple(sorted(one.voters.keys() | set(known.voters))),
                restored=False,
                size=self._voting.members.size(known.domain),
                began=min(known.began, *one.voters.values()),
            )

    def _are_alike(self, kind: str, known: DegradedDomain) -> bool:
        """Whether a class of faults is told of in the same views as one that a domain is blamed for."""
        views = self._voting.votes_by_class[kind].vote_rules.keys()
        return any(
            self._voting.votes_by_class[other].vote_rules.keys() == views for other in known.fault_classes
        )

    def _is_weak(self, one: Candidate, waited: float, now: float) -> bool:
        """Whether so few of many nodes show it that they are given more time."""
        ballot = self._voting.votes_by_class[one.fault_class]
        if (
            not ballot.vote_class.weak
            or one.share >= self._rule.weak
            or self._voting.members.children(one.domain)
        ):
            return False
        if waited < self._rule.patience:
            return True
        lately = set(ballot.voters(one.domain, now, self._rule.lately))
        if ballot.vote_class.lasting:
            lately |= self._voting.active_nodes(one.fault_class) & one.voters.keys()
        return len(lately) < self._rule.nodes

    def _say(self, one: Candidate, now: float) -> None:
        """A domain is to blame from now on; what it consists of is not any more."""
        parts = [
            known
            for known in self.degraded.values()
            if _is_in(known.domain, one.domain) and self._are_alike(one.fault_class, known)
        ]
        for known in parts:
            del self.degraded[known.domain]
        above = self._voting.members.parent(one.domain) or self._voting.members.topology_of(one.domain)
        siblings = self._voting.members.children(above) - {one.domain}
        others = set[str]().union(
            *(
                self._voting.votes_by_class[one.fault_class].voters(sibling, now, one.window)
                for sibling in siblings
            )
        )
        first = min(parts, key=lambda known: known.since, default=None)
        kinds = [kind for known in parts for kind in known.fault_classes]
        self.degraded[one.domain] = DegradedDomain(
            name=self._name(first.name if first else one.domain, one.fault_class),
            domain=one.domain,
            fault_classes=tuple(dict.fromkeys([one.fault_class, *kinds])),
            since=first.since if first else now,
            began=min(one.voters.values()),
            within=max(one.voters.values()) - min(one.voters.values()),
            voters=tuple(sorted(one.voters)),
            size=one.size,
            siblings=len(siblings),
            elsewhere=len(others - self._voting.members.nodes(one.domain)),
            times=self._past.times(one.domain, now) + 1,
        )
        self._voting.votes_by_class[one.fault_class].set_explained(self._voting.members.nodes(one.domain))

    def _name(self, name: str, kind: str) -> str:
        """A name that no other domain has that is to blame."""
        return f"{name} {kind}" if any(one.name == name for one in self.degraded.values()) else name

    def _goes_on(self, one: DegradedDomain, since: float) -> bool:
        """Whether enough of a domain's nodes still show what it is blamed for."""
        members = self._voting.members.nodes(one.domain)
        for kind in one.fault_classes:
            ballot = self._voting.votes_by_class[kind]
            least = fewest_nodes(ballot.vote_class.share, len(members))
            if sum(1 for at in ballot.latest_votes(one.domain).values() if at > since) >= least:
                return True
            if ballot.vote_class.lasting and len(self._voting.active_nodes(kind) & members) >= least:
                return True
        return False


def _is_in(domain: str, other: str) -> bool:
    """Whether a domain is another, or a part of it."""
    return f"{domain}/".startswith(f"{other}/")
