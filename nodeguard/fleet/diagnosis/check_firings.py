"""One check on the whole fleet: where it fired lately, and how often it does. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Set
from typing import NamedTuple

from nodeguard.fleet.diagnosis.significance import OnsetRate, poisson_limit
from nodeguard.model.diagnosis import DiagnosisPolicy

_DAY = 86_400.0


class PriorRate(NamedTuple):
    """What is known of a check beforehand. usual: onsets a day, while little is known of the fleet's own.
    began: when anybody began to listen.
    """

    usual: float
    began: float


class UnexplainedFirings(NamedTuple):
    """Nodes on which a check fires. window: seconds within which it began; limit: how many may have it."""

    window: float
    limit: int
    nodes: frozenset[str]


class CheckFirings:
    """One check. active: nodes on which it fires now. latest: when it began last, by node."""

    def __init__(self, rule: DiagnosisPolicy) -> None:
        self.active: set[str] = set()
        self.latest: dict[str, float] = {}
        self._rule = rule
        self._longest = max(rule.windows)
        self._recent: deque[float] = deque()
        self._rate = OnsetRate()

    def record(self, uid: str, at: float) -> None:
        """It fires on a node."""
        self.active.add(uid)
        at = max(at, self.latest.pop(uid, at))
        self.latest[uid] = at  # the latest comes last
        self._recent.append(at)

    def remove_node(self, uid: str) -> None:
        """A node does not count any more."""
        self.active.discard(uid)
        self.latest.pop(uid, None)

    def forget(self, began: float, now: float, *, learns: bool) -> None:
        """Let go of what is too old to matter. learns: whether it was as it usually is. began: when anybody
        began to listen.
        """
        while self._recent and self._recent[0] < now - self._longest:
            if self._recent.popleft() >= began and learns:
                self._rate.count(now)
        while self.latest:
            uid, at = next(iter(self.latest.items()))
            if at >= now - self._longest:
                break
            del self.latest[uid]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known of it but how often it fires."""
        return not (self.active or self.latest or self._recent)

    def limit(self, window: float, before: PriorRate, now: float) -> int:
        """On how many nodes it may fire within a window before that is not chance any more, going by how
        often it did before that window.
        """
        recent = sum(1 for at in self._recent if at > now - window)
        known = min(now - before.began, self._longest) - window
        self._rate.begin(before.began + self._longest)
        seen = sum(1 for at in self._recent if at >= before.began) - recent, max(0.0, known)
        a_second = self._rate.per_node(1, now, max(before.usual, self._rule.often) / _DAY, seen)
        usual = self._rule.caution * max(self._rule.often / _DAY, a_second) * window
        return max(self._rule.held, poisson_limit(round(usual, 3), self._rule.chance) + 1)

    def unexplained(
        self, explained: Set[str], many: Callable[[Collection[str]], int], before: PriorRate, now: float
    ) -> UnexplainedFirings | None:
        """Nodes on which it fires, more than chance has it, and that nothing explains; None where there are
        not so many. many: for how many nodes some are to be taken.
        """
        alone = {uid: at for uid, at in self.latest.items() if uid not in explained}
        if len(alone) < self._rule.held:
            return None
        for window in self._rule.windows:
            # What was there before anybody listened looks as if it began then; and a window is only long
            # beside something longer.
            if now - before.began < 2 * window - self._rule.windows[0]:
                break
            since = now - window
            who = frozenset(uid for uid, at in alone.items() if at > since)
            if len(who) < self._rule.held:
                continue
            limit = self.limit(window, before, now)
            if len(who) >= limit and many(who) >= limit:
                return UnexplainedFirings(window, limit, who)
        return None
