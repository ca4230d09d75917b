"""Checks that are not to be believed: they fire where nothing explains it, more than chance has it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set

from msgspec.structs import replace

from nodeguard.fleet.blame.blamed import Candidate, Held
from nodeguard.fleet.blame.doubt import doubts
from nodeguard.fleet.blame.past import Past
from nodeguard.fleet.blame.rollout import concentrates
from nodeguard.fleet.blame.voting import Voting
from nodeguard.fleet.blame.watch import Crowd
from nodeguard.model.blame import Blame

# Seconds after which all nodes have been heard that are.
_HEARD = 60.0


class Holds:
    """held: by check. doubted: since when, by check; those are held soon, unless something explains them."""

    def __init__(self, rule: Blame, voting: Voting, past: Past, second: Callable[[str, str], bool]) -> None:
        self.held: dict[str, Held] = {}
        self.doubted: dict[str, float] = {}
        self._rule = rule
        self._voting = voting
        self._past = past
        self._second = second
        self._crowds: dict[str, Crowd] = {}

    def of(self, check: str, uid: str) -> Held | None:
        """Why nothing is done for a check on a node; None where something may be."""
        held = self.held.get(check)
        if held is not None and (not held.domain or uid in self._voting.members.of(held.domain)):
            return held
        return None

    def recall(self, check: str, domain: str, now: float) -> None:
        """A check that was held before anything was known here; domain: the version on which it was alone."""
        self.held.setdefault(check, Held(check, now, (), 0, 0.0, domain=domain))

    def succeed(self, other: Holds) -> None:
        """Go on with what another holds."""
        self.held.update(other.held)

    def doubt(
        self, candidates: Collection[Candidate], explained: Callable[[str], Set[str]], now: float
    ) -> None:
        """Which checks are in doubt. candidates: domains that may be to blame; explained: nodes of those that
        are, for a class of faults.
        """
        voting = self._voting
        looked = [
            check
            for check in voting.stirred | self.doubted.keys()
            if check in voting.watches and (check not in self.held or self.held[check].domain)
        ]

        def known(check: str) -> set[str]:
            held = self.held.get(check)
            found = set(voting.members.of(held.domain)) if held is not None else set()
            return found.union(*(explained(kind) for kind in voting.cast(check)))

        self._crowds = doubts(looked, voting, candidates, known, now)
        self.doubted = {check: self.doubted.get(check, now) for check in self._crowds}

    def hold(self, now: float) -> None:
        """Hold the checks that have been in doubt for long enough."""
        for check, since in list(self.doubted.items()):
            if now - since >= self._rule.settle:
                crowd = self._crowds[check]
                domain = concentrates(self._voting.members, crowd.who)
                self.begin(check, crowd.who, crowd.window, domain, now, crowd.limit)
                del self.doubted[check]

    def begin(
        self, check: str, who: Iterable[str], window: float, domain: str, now: float, limit: int = 0
    ) -> None:
        """Hold a check that fires on some nodes. domain: the version on which alone, empty for everywhere."""
        who = sorted(who)
        borne_out = sum(1 for uid in who if self._second(uid, check))
        self.held[check] = Held(
            check=check,
            since=now,
            nodes=tuple(who),
            limit=limit,
            within=window,
            real=borne_out >= max(2, self._rule.second * len(who)),
            domain=domain,
            times=self._past.times(check, now) + 1,
        )
        watch = self._voting.watches.get(check)
        self._voting.withdraw(check, list(watch.latest) if watch is not None and not domain else who)

    def clear(self, check: str, now: float) -> None:
        """A check is believed again."""
        if self.held.pop(check, None) is not None:
            self._past.end(check, now)
            self._voting.watches.pop(check, None)

    def let_go(self, now: float) -> None:
        """Believe those again that have been quiet for long enough."""
        for check, one in list(self.held.items()):
            held, watch = one, self._voting.watches.get(check)
            waited = self._past.wait(held.times)
            if not held.nodes and watch is not None and now - held.since >= _HEARD:
                # Whoever shows what is only recalled is whom it is about.
                held = self.held[check] = replace(one, nodes=tuple(sorted(watch.active)))
            if now - held.since < waited:
                continue
            late, still = 0, set[str]()
            if watch is not None:
                late = sum(1 for at in watch.latest.values() if at > now - waited)
                still = watch.active & set(held.nodes)
            if max(late, len(still)) < max(2, len(held.nodes) / 2):
                self.clear(check, now)
