"""Firings of one check in the fleet: on which nodes it fired recently, and at which usual rate. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Set
from math import inf
from operator import itemgetter
from typing import NamedTuple

from nodeguard.fleet.diagnosis.significance import OnsetRate, poisson_limit
from nodeguard.fleet.diagnosis.votes import AFTER_RECEIPT, VoteContext

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
    """

    def __init__(self, context: VoteContext) -> None:
        self.active: set[str] = set()
        self.latest: dict[str, float] = {}
        self.unobserved: set[str] = set()
        self.kernel_confirmed: set[str] = set()
        self._context = context
        self._unconfirmed: list[tuple[float, str]] = []  # recent onsets, sorted: time and node
        self._rate = OnsetRate()
        self._complete_since = -inf  # no earlier onset is remembered

    @property
    def _longest(self) -> float:
        return max(self._context.rule.suppression.windows)

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

    def forget_onsets(self, until: float, is_over: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Forget onsets up to a time, also earlier ones of a node. The usual rate stays, and the nodes on
        which it fires: neither these onsets nor this time count for it.

        is_over: returns whether the onsets of a node are among them; by default all are. Returns the nodes
        without any onset now.
        """
        self._complete_since = max(until, self._complete_since)
        self._rate.skip(until + self._longest)
        self._unconfirmed = [
            onset for onset in self._unconfirmed if onset[0] > until or not is_over(onset[1])
        ]
        over = [uid for uid, at in self.latest.items() if at <= until and is_over(uid)]
        for uid in over:
            self.forget_onset(uid)
        return over

    def forget(self, now: float, *, learns: bool) -> None:
        """Forget onsets that are too old. learns: whether the unconfirmed ones, and the time, count towards
        the usual rate.
        """
        began, gone = self._context.began, now - self._longest
        if not learns:
            self._rate.skip(max(now, began + self._longest))
        old = bisect_left(self._unconfirmed, gone, key=_TIME)
        for at, _ in self._unconfirmed[:old]:
            if at >= began and learns:
                self._rate.count(now)
        del self._unconfirmed[:old]
        while self.latest:
            uid, at = next(iter(self.latest.items()))
            if at >= gone:
                break
            del self.latest[uid]
        self.unobserved &= self.latest.keys()
        self.kernel_confirmed = {
            uid for uid in self.kernel_confirmed if uid in self.active or uid in self.latest
        }

    def _discard(self, at: float, uid: str) -> None:
        """Remove an onset from the unconfirmed ones, if it is one of them."""
        place = bisect_left(self._unconfirmed, (at, uid))
        if self._unconfirmed[place : place + 1] == [(at, uid)]:
            del self._unconfirmed[place]

    @property
    def is_idle(self) -> bool:
        """Return whether the check has no recent firing: then only its usual rate remains."""
        return not (self.active or self.latest or self._unconfirmed)

    def _usual_count(self, window: float, prior: float, now: float) -> float:
        """Return on how many nodes it usually fires within a window, with the margin: from the earlier rate
        of unconfirmed onsets, as faults with a proof do not hide false alarms.
        """
        rule, began = self._context.rule, self._context.began
        since = max(began, self._complete_since)
        observed = min(now - since, self._longest) - window
        self._rate.begin(began + self._longest)
        first = bisect_left(self._unconfirmed, since, key=_TIME)
        earlier = bisect_right(self._unconfirmed, now - window, lo=first, key=_TIME) - first
        daily_onsets = rule.suppression.usual_daily_onsets
        prior_rate = max(prior, daily_onsets) / _DAY
        rate = self._rate.per_node(1, now, prior_rate, (earlier, max(0.0, observed)))
        # Three decimals: the limits of equal counts are remembered.
        return round(rule.rate_margin * max(daily_onsets / _DAY, rate) * window, 3)

    def unexplained(
        self, explained: Set[str], prior: float, now: float, after_receipt: Set[str]
    ) -> Iterator[UnexplainedFirings]:
        """Yield, for each window, the nodes on which it fires more often than by chance and without an
        explanation. A fault that the kernel log confirms is no false alarm.

        after_receipt: nodes with a new version that may make it fire. Fewer of them are enough.
        prior: unconfirmed onsets a day, while the fleet's own rate is not measured.
        """
        excluded = self.kernel_confirmed.union(explained)
        unexplained = {uid: at for uid, at in self.latest.items() if uid not in excluded}
        policy = self._context.rule.suppression
        if len(unexplained) < policy.min_nodes_after_receipt:
            return
        received = frozenset(after_receipt & unexplained.keys() - self.unobserved)
        counted = [(AFTER_RECEIPT, policy.min_nodes_after_receipt, received)]
        onsets, count = sorted(unexplained.values()), 0
        for window in policy.windows:
            # A longer window needs as long a past. In the shortest, the findings of agents that started with
            # the aggregator seem to begin at the start. Few of them begin to fire with the others.
            is_early = now - self._context.began < window
            if is_early and window > policy.windows[0]:
                break
            since, previous_count = now - window, count
            count = len(onsets) - bisect_right(onsets, since)
            # The same nodes within a longer time prove less.
            if count == previous_count:
                continue
            nodes = frozenset(uid for uid, at in unexplained.items() if at > since)
            if is_early and len(nodes & self.unobserved) * 2 >= len(nodes):
                nodes -= self.unobserved
            counted.append((window, policy.min_nodes, nodes))
        for window, least, nodes in counted:
            if len(nodes) < least:
                continue
            usual = self._usual_count(window, prior, now)
            by_chance = poisson_limit(usual, policy.significance)
            limit = max(least, by_chance + 1)
            if len(nodes) >= limit:
                yield UnexplainedFirings(window, usual, limit, nodes)
