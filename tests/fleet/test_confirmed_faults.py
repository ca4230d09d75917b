"""Fatal faults that the kernel log and another source confirm: they may use half of a failure domain."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.policy import Budget, CheckLimit, TopologyLabels
from nodeguard.wire.report import ReportedEvidence, ReportedFinding
from tests.fleet.scene import AT_ONCE, Fleet, finding

BUDGET = Budget(1.0, 0.0, 1.0, 0.25, 1.0, check=CheckLimit(10_000, 600.0, 10_000))
POLICY = replace(AT_ONCE, budget=BUDGET, topologies=(TopologyLabels("rack", ("rack",)),))
AGREED = ReportedEvidence("kmsg", "Xid 79"), ReportedEvidence("nvml", "GPU_IS_LOST")


def lost(*evidence: ReportedEvidence) -> ReportedFinding:
    return finding(evidence=evidence)


def marked_of_a_rack(*findings: ReportedFinding, budget: Budget = BUDGET) -> list[int]:
    """The marked nodes of racks of eight, after five nodes of the first rack fail."""
    fleet = Fleet(80, replace(POLICY, budget=budget))
    for number in range(5):
        fleet.report(number, *findings)
    fleet.carry_out()
    marked = fleet.marked()
    fleet.restart()
    fleet.carry_out()
    assert fleet.marked() == marked
    return marked


def test_confirmed_fatal_faults_use_half_of_a_rack() -> None:
    assert len(marked_of_a_rack(lost(*AGREED))) == 4


def test_two_checks_confirm_the_fault_of_one_gpu() -> None:
    log = finding("gpu-xid-fatal", evidence=AGREED[:1])
    assert len(marked_of_a_rack(log, lost(*AGREED[1:]))) == 4
    other = replace(log, target="gpu/0000:3c:00")
    assert len(marked_of_a_rack(other, lost(*AGREED[1:]))) == 2


@pytest.mark.parametrize(
    "evidence",
    [AGREED[:1], AGREED[1:], (AGREED[1], ReportedEvidence("pci", "gone")), (AGREED[0], ReportedEvidence("derived", "x"))],
    ids=["kernel log", "NVML", "two readings", "derived"],
)  # fmt: skip
def test_other_faults_use_a_quarter_of_a_rack(evidence: tuple[ReportedEvidence, ...]) -> None:
    assert len(marked_of_a_rack(lost(*evidence))) == 2


def test_confirmed_suspect_faults_use_a_quarter_of_a_rack() -> None:
    assert len(marked_of_a_rack(finding(evidence=AGREED, health=Health.SUSPECT))) == 2


@pytest.mark.parametrize(
    "budget",
    [
        replace(BUDGET, fleet=0.0375),
        replace(BUDGET, pool=0.0375),
        replace(BUDGET, check=CheckLimit(3, 600.0, 15)),
        replace(BUDGET, check=CheckLimit(5, 600.0, 3)),
    ],
    ids=["fleet", "pool", "new", "active"],
)
def test_all_other_budgets_hold(budget: Budget) -> None:
    assert len(marked_of_a_rack(lost(*AGREED), budget=budget)) == 3


def test_an_unconfirmed_fault_gets_none_of_the_second_quarter() -> None:
    fleet = Fleet(80, POLICY)
    for number in range(3):
        fleet.report(number, lost(*AGREED))
    fleet.report(3, lost(*AGREED[1:]))
    fleet.carry_out()
    assert fleet.marked() == [0, 1, 2]
    (withheld,) = fleet.planner.tracker.decisions["uid-3"]
    assert withheld.reason == "budget of rack/r0 has reached its limit: 3 of 2 nodes marked"


def test_a_small_rack_may_lose_half_of_its_nodes_beside_a_suspect_one() -> None:
    fleet = Fleet(0, POLICY)
    for number in range(40):
        fleet.add(number, labels={"rack": f"r{number // 4}"})
    fleet.report(0, finding(health=Health.SUSPECT))
    fleet.carry_out()
    for number in (1, 2, 3):
        fleet.report(number, lost(*AGREED))
    fleet.carry_out()
    assert fleet.marked() == [0, 1, 2]
