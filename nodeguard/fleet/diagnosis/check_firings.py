"""Firings of one check in the fleet: on which nodes it fired recently, and at which usual rate. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from itertools import takewhile
from math import inf
from operator import itemgetter
from typing import NamedTuple

from nodeguard.fleet.diagnosis.results import SuppressedCheck
from nodeguard.fleet.diagnosis.significance import OnsetRate, poisson_limit
from nodeguard.fleet.diagnosis.votes import FaultVotes
from nodeguard.fleet.state.topology.members import DomainMembers
from nodeguard.fleet.state.wall_clock import CLOCK_TOLERANCE
from nodeguard.model.diagnosis import DiagnosisPolicy

_DAY = 86_400.0
_TIME = itemgetter(0)  # of an onset


class UnexplainedFirings(NamedTuple):
    """Nodes with firings that nothing explains. window: seconds within which the check began to fire; usual:
    number of nodes on which it usually does so; limit: their maximum by chance.
    """

    window: float
    usual: float
    limit: int
    nodes: frozenset[str]


class CheckFirings:
    """The firings of one check. active: nodes on which it fires now. latest: its last onset, by node.
    unobserved: nodes with a latest onset that may be older, as their agent had only just started.
    kernel_confirmed: nodes where the kernel log and another source agree on the latest onset.

    topologies, classes: in which it may vote. only_warns: whether all of its findings were warnings, which
    may last longer than their cause; None without any.

    suppressed: its suppression; None if it has none. remaining: nodes on which it stays suppressed while it
    fires there: after the episode, or with another version than the suppressed one. ended: when earlier
    suppressions ended, by domain, empty for all nodes.
    """

    def __init__(self, rule: DiagnosisPolicy, nodes: DomainMembers) -> None:
        """nodes: all by domain, also those that may not vote."""
        self.active: set[str] = set()
        self.latest: dict[str, float] = {}
        self.unobserved: set[str] = set()
        self.kernel_confirmed: set[str] = set()
        self.topologies: frozenset[str] = frozenset()
        self.classes: Mapping[str, FaultVotes] = {}
        self.only_warns: bool | None = None
        self.suppressed: SuppressedCheck | None = None
        self.remaining: set[str] = set()
        self.ended: dict[str, float] = {}
        self.rule = rule
        self._nodes = nodes
        self._unconfirmed: list[tuple[float, str]] = []  # recent onsets, sorted: time and node
        self._rate = OnsetRate()
        self._complete_since = -inf  # no earlier onset is remembered

    @property
    def _longest(self) -> float:
        return max(self.rule.suppression.windows)

    def record(self, uid: str, at: float, *, observed: bool = True) -> None:
        """Record that the check fires on a node. observed: see `unobserved`."""
        self.active.add(uid)
        self.unobserved.discard(uid)
        if not observed:
            self.unobserved.add(uid)
        self.kernel_confirmed.discard(uid)
        at = max(at, self.latest.pop(uid, at))
        self.latest[uid] = at  # the latest comes last
        self._discard(at, uid)
        insort(self._unconfirmed, (at, uid))

    def record_cleared(self, uid: str) -> None:
        """Record that the check does not fire on a node any more."""
        self.active.discard(uid)
        self.remaining.discard(uid)

    def remove_node(self, uid: str) -> None:
        """Remove a node that does not count any more."""
        self.active.discard(uid)
        self.latest.pop(uid, None)
        self.kernel_confirmed.discard(uid)

    def record_kernel_confirmation(self, uid: str) -> None:
        """Record that the kernel log and another source agree on the latest onset of a node."""
        if uid in self.active:
            self.kernel_confirmed.add(uid)
            self._discard(self.latest.get(uid, 0.0), uid)

    def forget_onset(self, uid: str) -> None:
        """Forget the onset on a node on which it still fires."""
        self._discard(self.latest.pop(uid, 0.0), uid)

    def forget_onsets(self, until: float, domain: str = "") -> list[str]:
        """Forget onsets on the nodes of a domain, empty for all, up to a time, also earlier ones of a node.
        The usual rate stays, and the nodes on which it fires: neither these onsets nor this time count for
        it. Returns the nodes without any onset now.
        """
        self._complete_since = max(until, self._complete_since)
        self._rate.skip(until + self._longest)
        self._unconfirmed = [
            (at, uid) for at, uid in self._unconfirmed if at > until or not self._is_in(uid, domain)
        ]
        over = [uid for uid, at in self.latest.items() if at <= until and self._is_in(uid, domain)]
        for uid in over:
            self.forget_onset(uid)
        return over

    def has_ended(self, uid: str, at: float) -> bool:
        """Return whether an onset on a node is from before the end of a suppression there."""
        return any(at <= end and self._is_in(uid, domain) for domain, end in self.ended.items())

    def suppression(self, uid: str) -> SuppressedCheck | None:
        """Return the suppression of the check on a node; None if it is not suppressed there."""
        return self.suppressed if self.is_in_scope(uid) and uid not in self.kernel_confirmed else None

    def is_in_scope(self, uid: str) -> bool:
        """Return whether a node is one of those on which the check is suppressed: see `scope`."""
        if uid in self.remaining or self.suppressed is None or self.suppressed.recovered:
            return uid in self.remaining
        return self._is_in(uid, self.suppressed.domain)

    @property
    def scope(self) -> Set[str] | None:
        """Return the nodes on which the check is suppressed; None for all."""
        if self.suppressed is None or self.suppressed.recovered:
            return self.remaining
        domain = self.suppressed.domain
        return self._nodes.nodes(domain) | self.remaining if domain else None

    def confine(self, uid: str, at: float) -> bool:
        """Add a node to those on which the suppression stays, if the check fires on it since before that was
        confined. at: the onset. Returns whether it is one of them.
        """
        if self.suppressed is None or self.suppressed.confined_at is None:
            return False
        began = at <= self.suppressed.confined_at + CLOCK_TOLERANCE
        if not began or not self._is_in(uid, self.suppressed.domain):
            return False
        self.remaining.add(uid)
        return True

    def _is_in(self, uid: str, domain: str) -> bool:
        """Return whether a node is in a domain, empty for all nodes."""
        return not domain or uid in self._nodes.nodes(domain)

    def forget(self, began: float, now: float) -> None:
        """Forget onsets that are too old. Unless the check is suppressed, the unconfirmed ones, and the time,
        count towards the usual rate. began: when the diagnosis started.
        """
        learns = self.suppressed is None
        gone = now - self._longest
        if not learns:
            self._rate.skip(max(now, began + self._longest))
        old = bisect_left(self._unconfirmed, gone, key=_TIME)
        for at, _ in self._unconfirmed[:old]:
            if at >= began and learns:
                self._rate.count(now)
        del self._unconfirmed[:old]
        for uid, _ in list(takewhile(lambda onset: onset[1] < gone, self.latest.items())):
            del self.latest[uid]
        self.ended = {domain: at for domain, at in self.ended.items() if at >= gone}
        self.unobserved &= self.latest.keys()
        self.kernel_confirmed = {
            uid for uid in self.kernel_confirmed if uid in self.active or uid in self.latest
        }
        if self.is_idle:
            self._rate, self._complete_since = OnsetRate(), -inf

    def _discard(self, at: float, uid: str) -> None:
        """Remove an onset from the unconfirmed ones, if it is one of them."""
        place = bisect_left(self._unconfirmed, (at, uid))
        if self._unconfirmed[place : place + 1] == [(at, uid)]:
            del self._unconfirmed[place]

    @property
    def is_idle(self) -> bool:
        """Return whether the check has no recent firing and is not suppressed."""
        return not (self.active or self.latest or self._unconfirmed or self.suppressed)

    def _prior_rate(self) -> float:
        """Return the prior rate of the unconfirmed onsets: of one node a day."""
        classes = [votes.vote_class for votes in self.classes.values()]
        if self.only_warns:
            return max((item.daily_rate for item in classes), default=_WARNING_RATE)
        return max((item.daily_rate for item in classes if item.normal_operation), default=_FAULT_RATE)

    def _usual_count(self, window: float, fleet: int, began: float, now: float) -> float:
        """Return on how many nodes it usually fires within a window, with the margin: from the earlier rate
        of unconfirmed onsets, as faults with a proof do not hide false alarms.
        """
        since = max(began, self._complete_since)
        observed = min(now - since, self._longest) - window
        self._rate.begin(began + self._longest)
        first = bisect_left(self._unconfirmed, since, key=_TIME)
        earlier = bisect_right(self._unconfirmed, now - window, lo=first, key=_TIME) - first
        daily_onsets = self.rule.suppression.usual_daily_onsets
        prior_rate = max(self._prior_rate() * fleet, daily_onsets) / _DAY
        rate = self._rate.per_node(1, now, prior_rate, (earlier, max(0.0, observed)))
        # Three decimals: the limits of equal counts are remembered.
        return round(self.rule.rate_margin * max(daily_onsets / _DAY, rate) * window, 3)

    def unexplained(
        self,
        explained: Set[str],
        are_independent: Callable[[Collection[str], int], bool],
        fleet: int,
        began: float,
        now: float,
    ) -> Iterator[UnexplainedFirings]:
        """Yield, for each window, the nodes on which it fires more often than by chance and without an
        explanation. A fault that the kernel log confirms is no false alarm.

        are_independent: returns whether some nodes count as at least so many independent ones.
        fleet: number of nodes that may vote. began: when the diagnosis started.
        """
        excluded = self.kernel_confirmed.union(explained)
        unexplained = {uid: at for uid, at in self.latest.items() if uid not in excluded}
        if len(unexplained) < self.rule.suppression.min_nodes:
            return
        for window in self.rule.suppression.windows:
            # A longer window needs as long a past. In the shortest, the findings of agents that started with
            # the aggregator seem to begin at the start. Few of them begin to fire with the others.
            is_early = now - began < window
            if is_early and window > self.rule.suppression.windows[0]:
                break
            since = now - window
            nodes = frozenset(uid for uid, at in unexplained.items() if at > since)
            if is_early and len(nodes & self.unobserved) * 2 >= len(nodes):
                nodes -= self.unobserved
            if len(nodes) < self.rule.suppression.min_nodes:
                continue
            usual = self._usual_count(window, fleet, began, now)
            by_chance = poisson_limit(usual, self.rule.suppression.significance)
            limit = max(self.rule.suppression.min_nodes, by_chance + 1)
            if len(nodes) >= limit and are_independent(nodes, limit):
                yield UnexplainedFirings(window, usual, limit, nodes)


# Onsets of one check on one node a day, until the fleet's own rate is known: of a fault, as links fail in a
# training run on 16,384 GPUs (The Llama 3 herd of models, table 5: 35 interruptions by the network in 54 days
# on 2,048 nodes); and of a warning without a fault class of its own.
_FAULT_RATE, _WARNING_RATE = 0.0005, 0.02
