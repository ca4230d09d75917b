"""Degraded domains: observed from their diagnosis on, and cleared when they recover. Pure.

Times are seconds of a clock that never jumps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from math import inf, log

from msgspec.structs import replace

from nodeguard.fleet.diagnosis.likelihood import CLEARLY_LIKELIER, WRONG_LABEL, shared_fault_evidence
from nodeguard.fleet.diagnosis.node_evidence import NodeEvidence, ShownFault
from nodeguard.fleet.diagnosis.results import (
    ALL_REPORTED,
    BEFORE_FIRST_VOTE,
    Candidate,
    DegradedDomain,
    Recurrence,
    clearing_time,
    fewest_children,
    fewest_nodes,
    latest_times,
    most_children,
    nth_largest,
    recovering_since,
)
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.topology.members import is_within


class DegradedDomains:
    """The degraded domains. degraded: by domain."""

    def __init__(self, votes: VoteIndex, evidence: NodeEvidence) -> None:
        self.degraded: dict[str, DegradedDomain] = {}
        self._votes = votes
        self._evidence = evidence
        self._members = evidence.members
        self._recurrence = Recurrence()
        self._nodes: dict[str, Set[str]] = {}  # of each domain, at the latest evaluation
        self._last_shown: dict[str, dict[str, float]] = {}  # by domain and uid

    def open(self, degraded: DegradedDomain) -> None:
        """Record that a domain is degraded, also since before this start, unless it is already."""
        self.degraded.setdefault(degraded.domain, self._with_present_classes(degraded))
        self._nodes.setdefault(degraded.domain, frozenset(self._members.nodes(degraded.domain)))

    def end(self, degraded: DegradedDomain, at: float) -> None:
        """Record that a domain was degraded until a time: earlier votes in it do not count."""
        domain, present = degraded.domain, self.degraded.get(degraded.domain)
        if present is not None and present.since <= at:
            del self.degraded[domain]
        self._recurrence.record_end(domain, degraded.times, at)
        for name in degraded.fault_classes:
            if name in self._votes.votes_by_class:
                self._votes.votes_by_class[name].end(domain, at)

    def withdraw(self, domain: str) -> DegradedDomain:
        """Remove a degraded domain of which a false alarm explains the votes, and return it."""
        return self.degraded.pop(domain)

    def use_present_classes(self) -> None:
        """Follow another rule: degrade the domains for fault classes that it has."""
        for domain, degraded in self.degraded.items():
            self.degraded[domain] = self._with_present_classes(degraded)

    def _with_present_classes(self, degraded: DegradedDomain) -> DegradedDomain:
        """Return a degraded domain with fault classes that exist: if none of its own does, with all that may
        be shared in its topology, as a class may have got another name.
        """
        classes = self._votes.votes_by_class
        present = tuple(name for name in degraded.fault_classes if name in classes)
        of_topology = (name for name, votes in classes.items() if degraded.topology in votes.vote_rules)
        return replace(degraded, fault_classes=present or tuple(of_topology))

    def follow_moves(self, now: float) -> None:
        """Follow the nodes with other domains than before, also those that may not vote. One that left a
        degraded domain is a node of it while it shows the fault: new labels repair nothing.
        """
        before, self._nodes = self._nodes, {}
        self._last_shown = {domain: self._last_shown.get(domain, {}) for domain in self.degraded}
        for domain, degraded in self.degraded.items():
            nodes = self._nodes[domain] = frozenset(self._members.nodes(domain))
            left = {*before[domain], *degraded.moved} - nodes
            voters = {*degraded.voters, *degraded.moved} & nodes
            self.degraded[domain] = replace(
                degraded,
                voters=tuple(sorted(voters)),
                size=self._size(domain, voters),
                moved=self._faulty_nodes(left, degraded, now),
            )

    def explained(self, fault_class: str, except_in: str = "") -> set[str]:
        """Return the nodes of the domains that are degraded for a fault class, except in a domain. Those that
        left such a domain and still show its fault are its nodes, too, and those that may not vote any more.
        """
        nodes: set[str] = set()
        for domain, degraded in self.degraded.items():
            if fault_class in degraded.fault_classes and not is_within(domain, except_in):
                nodes |= self._members.nodes(domain)
                nodes.update(degraded.moved)
        return nodes

    def parts(self, fault_class: str, domain: str) -> list[DegradedDomain]:
        """Return the parts of a domain that are degraded for a fault class."""
        return [
            degraded
            for part, degraded in self.degraded.items()
            if fault_class in degraded.fault_classes and is_within(part, domain)
        ]

    def begin(self, candidate: Candidate, now: float) -> None:
        """Record that a domain is degraded from now on, unless it is already."""
        # Nodes may have left the domain since the candidate was evaluated.
        members = self._votes.members.nodes(candidate.domain)
        voters = {uid: at for uid, at in candidate.voters.items() if uid in members}
        if len(voters) < self._votes.rule.fewest_affected(len(members)):
            return
        candidate = replace(candidate, voters=voters)
        if not self.join(candidate):
            self._diagnose(candidate, now)

    def clear_recovered(self, now: float) -> list[DegradedDomain]:
        """Clear the domains in which hardly any node has shown a fault for long enough; parts of them that
        still show it stay degraded. A restored one waits for the first reports of all agents: until then, its
        nodes show nothing. Returns the cleared domains.
        """
        recovered, parts = list[DegradedDomain](), list[tuple[Candidate, DegradedDomain]]()
        for domain, degraded in list(self.degraded.items()):
            waited = clearing_time(self._votes.rule, degraded.times)
            last_shown = self.last_shown(degraded, now)
            if degraded.restored and now - self._votes.began < ALL_REPORTED:
                continue
            if now - degraded.since >= waited and last_shown <= now - waited:
                parts += [(part, degraded) for part in self._faulty_parts(degraded, now)]
                self.end(degraded, now)
                recovered.append(degraded)
            else:
                since = recovering_since(max(degraded.since, last_shown), now)
                self.degraded[domain] = replace(degraded, recovering_since=since)
        for part, whole in parts:
            self._diagnose(part, now, whole)
        return recovered

    def covering(self, candidate: Candidate) -> DegradedDomain | None:
        """Return the degraded domain that covers a candidate already: itself, or a parent of it."""
        whole = (item for domain, item in self.degraded.items() if is_within(candidate.domain, domain))
        return next(whole, None)

    def join(self, candidate: Candidate) -> bool:
        """Add the votes of a candidate to the degraded domain that covers it. Returns whether any does."""
        degraded = self.covering(candidate)
        if degraded is None:
            return False
        voters = tuple(sorted({*degraded.voters, *candidate.voters}))
        self.degraded[degraded.domain] = replace(
            degraded,
            fault_classes=tuple(dict.fromkeys([*degraded.fault_classes, candidate.fault_class])),
            voters=voters,
            size=self._size(degraded.domain, voters),
            began=min(degraded.began, *candidate.voters.values()),
            restored=False,
        )
        return True

    def _diagnose(self, candidate: Candidate, now: float, whole: DegradedDomain | None = None) -> None:
        """Record that a domain is degraded from now on; its parts are not any more. whole: the parent that
        recovered except for it.
        """
        domain = candidate.domain
        parts = [part for part in self.degraded.values() if is_within(part.domain, domain)]
        for part in parts:
            del self.degraded[part.domain]
        votes, members = self._votes.votes_by_class[candidate.fault_class], self._votes.members
        # The votes in the siblings ended with the whole.
        siblings = members.siblings(domain) if whole is None else ()
        others = set[str]().union(*(votes.voters(sibling, now, candidate.window) for sibling in siblings))
        began = min([*candidate.voters.values(), *(part.began for part in parts)])
        first = min(parts, key=lambda part: part.since, default=None)
        merged = parts if whole is None else [*parts, whole]
        fault_classes = [fault_class for part in merged for fault_class in part.fault_classes]
        replaced = [path for part in merged for path in (part.domain, *part.replaced) if path != domain]
        nodes = self._members.nodes(domain)
        moved = {uid for part in parts for uid in part.moved}
        voters = candidate.voters.keys() | {uid for part in parts for uid in part.voters} | (moved & nodes)
        self.open(
            DegradedDomain(
                name=self._name(first.name if first else domain, candidate.fault_class),
                domain=domain,
                fault_classes=tuple(dict.fromkeys([candidate.fault_class, *fault_classes])),
                since=first.since if first else now,
                began=began,
                within=max(candidate.voters.values()) - began,
                voters=tuple(sorted(voters)),
                size=self._size(domain, voters),
                siblings=len(siblings),
                elsewhere=len(others - members.nodes(domain)),
                times=self._recurrence.times(domain, now, self._votes.rule.recovery.reset_after) + 1,
                replaced=tuple(dict.fromkeys(replaced)),
                moved=tuple(sorted(moved - nodes)),
            )
        )
        votes.set_explained(dict.fromkeys(members.nodes(domain), inf))

    def _size(self, domain: str, voters: Iterable[str]) -> int:
        """Return the number of nodes in the evidence: those that may vote, and those that voted before."""
        return len(self._votes.members.nodes(domain) | frozenset(voters))

    def _name(self, name: str, fault_class: str) -> str:
        """Return a name that no other degraded domain has."""
        is_taken = any(degraded.name == name for degraded in self.degraded.values())
        return f"{name} {fault_class}" if is_taken else name

    def last_shown(self, degraded: DegradedDomain, now: float) -> float:
        """Return when enough nodes of a domain last showed a fault class of it, of a parent also in enough of
        its children; minus infinity for never.

        Call it every few seconds: a fault that ends between two calls was shown at the first. A node counts
        even if it may not vote, for example under a cordon: that does not repair the domain.
        """
        domain = degraded.domain
        votes = self._votes.latest_votes(domain, degraded.fault_classes)
        nodes = {*self._members.nodes(domain), *degraded.moved}
        faults = self._evidence.shown_faults(nodes, degraded, self._votes, now)
        shown = {uid: _last(shown_faults) for uid, shown_faults in faults.items()}
        last_shown = self._last_shown[domain] = latest_times(self._last_shown.get(domain, {}), votes, shown)
        size = max(degraded.size, self._votes.members.size(domain))
        shares = [self._votes.votes_by_class[name].vote_class.share for name in degraded.fault_classes]
        least = min((fewest_nodes(share, size) for share in shares), default=len(last_shown) + 1)
        by_nodes = nth_largest(least, last_shown.values())
        children = self._members.children(domain)
        if not children:
            return by_nodes
        # A node with another path is still in a part of its own.
        parts = [*map(self._members.nodes, children), *({uid} for uid in degraded.moved)]
        times = [max(last_shown[uid] for uid in own) for part in parts if (own := part & last_shown.keys())]
        return min(by_nodes, nth_largest(fewest_children(len(children)), times))

    def _faulty_nodes(self, uids: Iterable[str], degraded: DegradedDomain, now: float) -> tuple[str, ...]:
        """Return the nodes, of some that exist, that show the fault of a domain now."""
        existing = filter(self._evidence.exists, sorted(uids))
        shown = self._evidence.shown_faults(existing, degraded, self._votes, now)
        return tuple(uid for uid, faults in shown.items() if _last(faults) >= now)

    def _faulty_parts(self, degraded: DegradedDomain, now: float) -> Iterator[Candidate]:
        """Yield the parts of a parent domain that still show a fault of it, with the onsets of their nodes,
        which would not vote again. Older faults of single nodes are not the domain's. A part is named only if
        its fault makes them clearly likelier than the share of the other nodes that show it.
        """
        if not (degraded.fault_classes and self._members.children(degraded.domain)):
            return
        nodes = self._members.nodes(degraded.domain)
        shown = self._evidence.shown_faults(nodes, degraded, self._votes, now)
        earliest = degraded.began - BEFORE_FIRST_VOTE
        onsets: dict[str, float] = {}
        for uid, faults in shown.items():
            since = [fault.since for fault in faults if fault.last >= now and earliest <= fault.since < inf]
            if since:
                onsets[uid] = min(since)
        shares = (self._votes.votes_by_class[name].vote_class.share for name in degraded.fault_classes)
        for part in self._parts(degraded.domain, onsets.keys(), min(shares)):
            members = self._members.nodes(part)
            voters = {uid: at for uid, at in onsets.items() if uid in members}
            # A few nodes of the other parts may show it for as long.
            elsewhere = (len(onsets) - len(voters)) / max(1, len(nodes) - len(members))
            evidence = shared_fault_evidence(len(voters), len(members), max(WRONG_LABEL, elsewhere))
            if evidence >= log(CLEARLY_LIKELIER):
                yield Candidate(degraded.fault_classes[0], part, inf, voters, len(members))

    def _parts(self, domain: str, faulty: Set[str], share: float) -> Iterator[str]:
        """Yield the widest domains below a domain in which enough nodes are faulty, of a parent in most of
        its children.
        """
        members = self._members
        for part in members.children(domain):
            nodes, children = members.nodes(part), members.children(part)
            affected = sum(not faulty.isdisjoint(members.nodes(child)) for child in children)
            is_whole = affected >= most_children(len(children)) if children else True
            if is_whole and len(nodes & faulty) >= self._votes.rule.fewest_affected(len(nodes), share):
                yield part
            else:
                yield from self._parts(part, faulty, share)


def _last(faults: Iterable[ShownFault]) -> float:
    """Return when a node last showed any of its faults, in seconds of the monotonic clock."""
    return max(fault.last for fault in faults)
