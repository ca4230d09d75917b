"""Statistics of a simulated fleet: nodes out of service, diagnoses, and incidents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodeguard.model.incident import Incident
from nodeguard.model.mark import Mark
from nodeguard.simulate.faults import Fault
from nodeguard.simulate.observer import Observer, keeps_all_work_away
from nodeguard.simulate.shared_faults import SharedFault


class DomainDegraded(Struct, frozen=True):
    """The diagnosis of a degraded domain, and its time in seconds."""

    domain: str
    at: float


class CheckSuppressed(Struct, frozen=True):
    """The suppression of a check, and its time in seconds; see Observer.check_suppressed."""

    check: str
    at: float
    real: bool
    domain: str


class OutcomeCounter(Observer):
    """Counts the outcomes of a simulation.

    justified_seconds, unjustified_seconds: node-seconds in quarantine with a fault and without one.
    quarantines: of nodes; correct_quarantines: of nodes with a fault; shared_fault_quarantines: of nodes with
    a shared fault, by its cause. max_quarantined: nodes at one time. degraded, suppressed: diagnoses in their
    order. incidents: that opened; domain_incidents: those of domains and checks.
    """

    def __init__(self) -> None:
        self.justified_seconds = self.unjustified_seconds = 0.0
        self.quarantines = self.correct_quarantines = 0
        self.max_quarantined = 0
        self.shared_fault_quarantines: Counter[str] = Counter()
        self.degraded: list[DomainDegraded] = []
        self.suppressed: list[CheckSuppressed] = []
        self.incidents = self.domain_incidents = 0
        self._counted_incidents: set[tuple[str, int]] = set()
        self._faults: Counter[int] = Counter()  # by node, without decoys
        self._causes: dict[int, Counter[str]] = {}
        self._quarantined: dict[int, float] = {}  # counted up to this time, by node

    def fault_started(self, fault: Fault, at: float) -> None:
        """See Observer."""
        self._causes.setdefault(fault.node, Counter())[fault.cause] += 1
        self._add_fault(fault, 1, at)

    def fault_ended(self, fault: Fault, at: float) -> None:
        """See Observer."""
        causes = self._causes[fault.node]
        causes[fault.cause] -= 1
        if not causes[fault.cause]:
            del causes[fault.cause]
        self._add_fault(fault, -1, at)

    def marks_changed(self, node: int, now: frozenset[Mark], at: float) -> None:
        """See Observer."""
        was_excluded, is_excluded = node in self._quarantined, keeps_all_work_away(now)
        if is_excluded and not was_excluded:
            self.quarantines += 1
            self.correct_quarantines += bool(self._faults[node])
            causes = self._causes.get(node, ())
            self.shared_fault_quarantines.update(cause for cause in causes if "/" in cause)
            self._quarantined[node] = at
            self.max_quarantined = max(self.max_quarantined, len(self._quarantined))
        elif was_excluded and not is_excluded:
            self._count_time(node, at)
            del self._quarantined[node]

    def incidents_changed(self, incidents: Iterable[Incident]) -> None:
        """See Observer."""
        for incident in incidents:
            key = (incident.name, incident.occurrences)
            if incident.is_open and key not in self._counted_incidents:
                self._counted_incidents.add(key)
                self.incidents += 1
                self.domain_incidents += not incident.uid

    def domain_degraded(self, domain: str, at: float) -> None:
        """See Observer."""
        self.degraded.append(DomainDegraded(domain, at))

    def check_suppressed(self, check: str, at: float, *, real: bool, domain: str) -> None:
        """See Observer."""
        self.suppressed.append(CheckSuppressed(check, at, real, domain))

    def close(self, at: float) -> None:
        """Count the time of nodes that are still quarantined at the end."""
        for node in self._quarantined:
            self._count_time(node, at)

    def _add_fault(self, fault: Fault, change: int, at: float) -> None:
        if not fault.kind.is_fault:
            return
        if fault.node in self._quarantined:
            self._count_time(fault.node, at)
        self._faults[fault.node] += change

    def _count_time(self, node: int, at: float) -> None:
        seconds = at - self._quarantined[node]
        if self._faults[node]:
            self.justified_seconds += seconds
        else:
            self.unjustified_seconds += seconds
        self._quarantined[node] = at


# Seconds after its end in which the diagnosis of a shared fault is still correct: its end has to be seen.
GRACE = 600.0


class DiagnosisScore(Struct, frozen=True):
    """Diagnosed domains compared with the shared faults.

    expected: domains with a shared fault; detected: those of them that were diagnosed; detection_seconds:
    from the fault to the diagnosis, of each. correct, wrong: diagnosed domains with and without a fault.
    """

    expected: int
    detected: int
    detection_seconds: tuple[float, ...]
    correct: int
    wrong: int


def score_diagnosis(degraded: Sequence[DomainDegraded], faults: Sequence[SharedFault]) -> DiagnosisScore:
    """Return the score of diagnoses. Each domain of a fault counts once; a part of a domain that was
    diagnosed before the whole domain belongs to the same diagnosis.
    """
    expected = [(domain, fault) for fault in faults for domain in fault.domains]
    detection_seconds: list[float] = []
    matched: set[int] = set()
    for domain, fault in expected:
        hits = [
            (index, diagnosis)
            for index, diagnosis in enumerate(degraded)
            if diagnosis.domain == domain and fault.start <= diagnosis.at <= fault.end + GRACE
        ]
        matched.update(index for index, _ in hits)
        if hits:
            first = hits[0][1].at
            matched.update(
                index
                for index, diagnosis in enumerate(degraded)
                if diagnosis.domain.startswith(f"{domain}/") and fault.start <= diagnosis.at <= first
            )
            detection_seconds.append(first - fault.start)
    wrong = len({diagnosis.domain for index, diagnosis in enumerate(degraded) if index not in matched})
    detected = len(detection_seconds)
    return DiagnosisScore(len(expected), detected, tuple(detection_seconds), detected, wrong)
