"""One check on the whole fleet: where it fired lately, and how often it does. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Set

from nodeguard.fleet.blame.chance import ceiling
from nodeguard.fleet.blame.rate import Rate
from nodeguard.model.blame import Blame

_DAY = 86_400.0


class Watch:
    """One check. active: nodes on which it fires now. latest: when it began last, by node."""

    def __init__(self, rule: Blame) -> None:
        self.active: set[str] = set()
        self.latest: dict[str, float] = {}
        self._rule = rule
        self._longest = max(rule.windows)
        self._recent: deque[float] = deque()
        self._rate = Rate(rule.often / _DAY)

    def note(self, uid: str, at: float) -> None:
        """It fires on a node."""
        self.active.add(uid)
        at = max(at, self.latest.pop(uid, at))
        self.latest[uid] = at  # the latest comes last
        self._recent.append(at)

    def drop(self, uid: str) -> None:
        """A node does not count any more."""
        self.active.discard(uid)
        self.latest.pop(uid, None)

    def forget(self, now: float, *, learns: bool) -> None:
        """Let go of what is too old to matter. learns: whether it was as it usually is."""
        while self._recent and self._recent[0] < now - self._longest:
            self._recent.popleft()
            if learns:
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

    def limit(self, window: float, began: float, now: float) -> int:
        """On how many nodes it may fire within a window before that is not chance any more, going by how
        often it did before that window. began: when anybody began to listen.
        """
        recent = sum(1 for at in self._recent if at > now - window)
        known = min(now - began, self._longest) - window
        self._rate.begin(began + self._longest)
        a_second = self._rate.of_each(1, now, len(self._recent) - recent, max(0.0, known))
        usual = self._rule.caution * max(self._rule.often / _DAY, a_second) * window
        return max(self._rule.held, ceiling(round(usual, 3), self._rule.chance) + 1)

    def crowd(
        self, explained: Set[str], began: float, now: float
    ) -> tuple[float, int, frozenset[str]] | None:
        """Nodes on which it fires, more than chance has it, and that nothing explains: within which window,
        how many it may be, and who. None where there are not so many. began: see limit.
        """
        alone = {uid: at for uid, at in self.latest.items() if uid not in explained}
        if len(alone) < self._rule.held:
            return None
        for window in self._rule.windows:
            # What was there before anybody listened looks as if it began then; and a window is only long
            # beside something longer.
            if now - began < 2 * window - self._rule.windows[0]:
                break
            since = now - window
            who = frozenset(uid for uid, at in alone.items() if at > since)
            if len(who) >= self._rule.held and len(who) >= (limit := self.limit(window, began, now)):
                return window, limit, who
        return None
