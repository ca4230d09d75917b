"""What became of a simulated fleet: what was out, and why, what was blamed, and what was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodeguard.model.incident import Incident
from nodeguard.simulate.shared import Planted
from nodeguard.simulate.troubles import Trouble
from nodeguard.simulate.watcher import CLEAN, Standing, Watcher


class Blame(Struct, frozen=True):
    """A domain that was blamed from one moment on."""

    domain: str
    at: float


class Held(Struct, frozen=True):
    """A check that was held from one moment on; see Watcher.held."""

    check: str
    at: float
    real: bool
    domain: str


class Account(Watcher):
    """Counts what is heard.

    needed, needless: node-seconds out while something was broken there, and while nothing was. quarantines:
    nodes newly out; rightly: of these, those where something was broken; of: by the cause of a shared fault,
    those that had it. most: nodes out at one time; idle: at most of those, where nothing was broken.
    """

    def __init__(self) -> None:
        self.needed = self.needless = 0.0
        self.quarantines = self.rightly = self.most = self.idle = 0
        self.of: Counter[str] = Counter()
        self.blames: list[Blame] = []
        self.holds: list[Held] = []
        self.incidents = self.domains = 0
        self._known: set[tuple[str, int]] = set()
        self._broken: Counter[int] = Counter()
        self._causes: dict[int, Counter[str]] = {}
        self._out: dict[int, float] = {}
        self._standing: dict[int, Standing] = {}

    def begins(self, trouble: Trouble, at: float) -> None:
        """See Watcher."""
        self._causes.setdefault(trouble.node, Counter())[trouble.cause] += 1
        self._break(trouble, 1, at)

    def ends(self, trouble: Trouble, at: float) -> None:
        """See Watcher."""
        left = self._causes[trouble.node]
        left[trouble.cause] -= 1
        if not left[trouble.cause]:
            del left[trouble.cause]
        self._break(trouble, -1, at)

    def marked(self, node: int, now: Standing, at: float) -> None:
        """See Watcher."""
        before = self._standing.pop(node, CLEAN)
        if now != CLEAN:
            self._standing[node] = now
        if now.quarantine and not before.quarantine:
            self.quarantines += 1
            self.rightly += bool(self._broken[node])
            self.of.update(cause for cause in self._causes.get(node, ()) if "/" in cause)
            self._out[node] = at
            self.most = max(self.most, len(self._out))
            self.idle = max(self.idle, sum(1 for one in self._out if not self._broken[one]))
        elif before.quarantine and not now.quarantine:
            self._settle(node, at)
            del self._out[node]

    def told(self, incidents: Iterable[Incident]) -> None:
        """See Watcher."""
        for one in incidents:
            if one.is_open and (one.name, one.times) not in self._known:
                self._known.add((one.name, one.times))
                self.incidents += 1
                self.domains += not one.uid

    def blamed(self, domain: str, at: float) -> None:
        """See Watcher."""
        self.blames.append(Blame(domain, at))

    def held(self, check: str, at: float, *, real: bool, domain: str) -> None:
        """See Watcher."""
        self.holds.append(Held(check, at, real, domain))

    def close(self, at: float) -> None:
        """The end, for what is still out."""
        for node in self._out:
            self._settle(node, at)

    def _break(self, trouble: Trouble, by: int, at: float) -> None:
        if not trouble.kind.real:
            return
        if trouble.node in self._out:
            self._settle(trouble.node, at)
        self._broken[trouble.node] += by

    def _settle(self, node: int, at: float) -> None:
        spent = at - self._out[node]
        if self._broken[node]:
            self.needed += spent
        else:
            self.needless += spent
        self._out[node] = at


# Seconds after its end for which a shared fault may still be blamed: it has to be seen that it is over.
GRACE = 600.0


class Match(Struct, frozen=True):
    """What was blamed, beside what there was.

    found: of the domains that should have been, those that were; took: seconds from the fault to the blame,
    of each. right, wrong: domains that were blamed, and should or should not have been.
    """

    planted: int
    found: int
    took: tuple[float, ...]
    right: int
    wrong: int


def matched(blames: Sequence[Blame], there: Sequence[Planted]) -> Match:
    """What was blamed, beside the shared faults that there were. Each domain of a fault counts once; a part
    that widened into it is the same blame, told early.
    """
    due = [(domain, one) for one in there for domain in one.domains]
    took: list[float] = []
    used: set[int] = set()
    for domain, one in due:
        hits = [
            (at, blame)
            for at, blame in enumerate(blames)
            if blame.domain == domain and one.at <= blame.at <= one.until + GRACE
        ]
        used.update(at for at, _ in hits)
        if hits:
            last = hits[0][1].at
            used.update(
                at
                for at, blame in enumerate(blames)
                if blame.domain.startswith(f"{domain}/") and one.at <= blame.at <= last
            )
            took.append(hits[0][1].at - one.at)
    wrong = len({blame.domain for at, blame in enumerate(blames) if at not in used})
    return Match(len(due), len(took), tuple(took), len(took), wrong)
