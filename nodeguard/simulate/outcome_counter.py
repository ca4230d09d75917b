"""What became of a simulated fleet: what was out, and why, what was blamed, and what was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodeguard.model.incident import Incident
from nodeguard.simulate.faults import Fault
from nodeguard.simulate.observer import UNMARKED, NodeMarkState, Observer
from nodeguard.simulate.shared_faults import SharedFault


class DomainDegraded(Struct, frozen=True):
    """A domain that was blamed from one moment on."""

    domain: str
    at: float


class CheckSuppressed(Struct, frozen=True):
    """A check that was held from one moment on; see Watcher.held."""

    check: str
    at: float
    real: bool
    domain: str


class OutcomeCounter(Observer):
    """Counts what is heard.

    needed, needless: node-seconds out while something was broken there, and while nothing was. quarantines:
    nodes newly out; rightly: of these, those where something was broken; of: by the cause of a shared fault,
    those that had it. most: nodes out at one time; idle: at most of those, where nothing was broken.
    """

    def __init__(self) -> None:
        self.justified_seconds = self.unjustified_seconds = 0.0
        self.quarantines = self.correct_quarantines = self.max_quarantined = self.max_healthy_quarantined = 0
        self.shared_fault_quarantines: Counter[str] = Counter()
        self.degraded: list[DomainDegraded] = []
        self.suppressed: list[CheckSuppressed] = []
        self.incidents = self.domain_incidents = 0
        self._known: set[tuple[str, int]] = set()
        self._broken: Counter[int] = Counter()
        self._causes: dict[int, Counter[str]] = {}
        self._out: dict[int, float] = {}
        self._standing: dict[int, NodeMarkState] = {}

    def fault_started(self, trouble: Fault, at: float) -> None:
        """See Watcher."""
        self._causes.setdefault(trouble.node, Counter())[trouble.cause] += 1
        self._break(trouble, 1, at)

    def fault_ended(self, trouble: Fault, at: float) -> None:
        """See Watcher."""
        left = self._causes[trouble.node]
        left[trouble.cause] -= 1
        if not left[trouble.cause]:
            del left[trouble.cause]
        self._break(trouble, -1, at)

    def marks_changed(self, node: int, now: NodeMarkState, at: float) -> None:
        """See Watcher."""
        before = self._standing.pop(node, UNMARKED)
        if now != UNMARKED:
            self._standing[node] = now
        if now.quarantine and not before.quarantine:
            self.quarantines += 1
            self.correct_quarantines += bool(self._broken[node])
            self.shared_fault_quarantines.update(
                cause for cause in self._causes.get(node, ()) if "/" in cause
            )
            self._out[node] = at
            self.max_quarantined = max(self.max_quarantined, len(self._out))
            self.max_healthy_quarantined = max(
                self.max_healthy_quarantined, sum(1 for one in self._out if not self._broken[one])
            )
        elif before.quarantine and not now.quarantine:
            self._settle(node, at)
            del self._out[node]

    def incidents_changed(self, incidents: Iterable[Incident]) -> None:
        """See Watcher."""
        for one in incidents:
            if one.is_open and (one.name, one.occurrences) not in self._known:
                self._known.add((one.name, one.occurrences))
                self.incidents += 1
                self.domain_incidents += not one.uid

    def domain_degraded(self, domain: str, at: float) -> None:
        """See Watcher."""
        self.degraded.append(DomainDegraded(domain, at))

    def check_suppressed(self, check: str, at: float, *, real: bool, domain: str) -> None:
        """See Watcher."""
        self.suppressed.append(CheckSuppressed(check, at, real, domain))

    def close(self, at: float) -> None:
        """The end, for what is still out."""
        for node in self._out:
            self._settle(node, at)

    def _break(self, trouble: Fault, by: int, at: float) -> None:
        if not trouble.kind.is_fault:
            return
        if trouble.node in self._out:
            self._settle(trouble.node, at)
        self._broken[trouble.node] += by

    def _settle(self, node: int, at: float) -> None:
        spent = at - self._out[node]
        if self._broken[node]:
            self.justified_seconds += spent
        else:
            self.unjustified_seconds += spent
        self._out[node] = at


# Seconds after its end for which a shared fault may still be blamed: it has to be seen that it is over.
GRACE = 600.0


class DiagnosisScore(Struct, frozen=True):
    """What was blamed, beside what there was.

    found: of the domains that should have been, those that were; took: seconds from the fault to the blame,
    of each. right, wrong: domains that were blamed, and should or should not have been.
    """

    expected: int
    detected: int
    detection_seconds: tuple[float, ...]
    correct: int
    wrong: int


def score_diagnosis(blames: Sequence[DomainDegraded], there: Sequence[SharedFault]) -> DiagnosisScore:
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
            if blame.domain == domain and one.start <= blame.at <= one.end + GRACE
        ]
        used.update(at for at, _ in hits)
        if hits:
            last = hits[0][1].at
            used.update(
                at
                for at, blame in enumerate(blames)
                if blame.domain.startswith(f"{domain}/") and one.start <= blame.at <= last
            )
            took.append(hits[0][1].at - one.start)
    wrong = len({blame.domain for at, blame in enumerate(blames) if at not in used})
    return DiagnosisScore(len(due), len(took), tuple(took), len(took), wrong)
