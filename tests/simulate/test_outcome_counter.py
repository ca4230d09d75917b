from __future__ import annotations

from nodeguard.model.mark import Mark
from nodeguard.simulate.faults import Fault
from nodeguard.simulate.outcome_counter import DomainDegraded, OutcomeCounter, score_diagnosis
from nodeguard.simulate.shared_faults import SharedFault

OUT = frozenset({Mark.QUARANTINE})


def test_quarantine_is_justified_while_the_node_has_a_fault() -> None:
    counter = OutcomeCounter()
    fault = Fault(10.0, 50.0, 1, "gpu-lost", 0, "fabric/p0/leaf1")
    counter.fault_started(fault, 10.0)
    counter.marks_changed(1, OUT, 20.0)
    counter.fault_ended(fault, 50.0)
    counter.marks_changed(2, OUT, 55.0)
    counter.marks_changed(1, frozenset(), 60.0)
    counter.close(65.0)
    assert (counter.justified_seconds, counter.unjustified_seconds) == (30.0, 20.0)
    assert (counter.quarantines, counter.correct_quarantines, counter.max_quarantined) == (2, 1, 2)
    assert counter.shared_fault_quarantines == {"fabric/p0/leaf1": 1}


def test_a_diagnosis_is_correct_during_a_shared_fault() -> None:
    faults = [
        SharedFault("two leaves at once", ("fabric/p0/leaf1", "fabric/p1/leaf0"), 100.0, 1000.0, ()),
        SharedFault("rack power", ("power/feed0/r1",), 5000.0, 6000.0, ()),
    ]
    diagnoses = [
        DomainDegraded("power/feed0/r1", 50.0),
        DomainDegraded("fabric/p0/leaf1", 130.0),
        DomainDegraded("fabric/p0/leaf1", 900.0),
        DomainDegraded("fabric/p9", 950.0),
    ]
    score = score_diagnosis(diagnoses, faults)
    assert (score.expected, score.detected, score.detection_seconds, score.correct, score.wrong) == (
        3,
        1,
        (30.0,),
        1,
        2,
    )
