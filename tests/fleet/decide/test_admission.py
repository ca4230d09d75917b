from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.model.policy import Budget, CheckLimit, GracePeriods, Policy, TopologyLabels
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding


def test_the_most_severe_requests_come_first_and_the_rest_is_withheld_with_a_reason() -> None:
    fleet = Fleet(40, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    for number in range(4):
        fleet.report(number, finding(age=100.0 - number))
    fleet.report(4, finding(age=1.0), finding("gpu-ecc", age=1.0))
    fleet.report(5, finding(health=Health.SUSPECT, age=1000.0))
    fleet.carry_out()
    assert fleet.marked() == [0, 4]
    assert fleet.reasons() == {"fleet budget has reached its limit: 2 of 2 nodes marked"}


def test_a_check_marks_five_nodes_at_once_and_fifteen_in_all() -> None:
    fleet = Fleet(7500 // 10, replace(AT_ONCE, budget=replace(WIDE, check=CheckLimit())))
    for number in range(100):
        fleet.report(number, finding())
    counts = []
    for _ in range(6):
        fleet.carry_out()
        counts.append(len(fleet.marked()))
        fleet.after(300.0)
    assert counts == [5, 5, 10, 10, 15, 15]


def test_a_released_mark_still_counts_as_new() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, check=CheckLimit(1, 600.0, 15))))
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    fleet.report(1, finding())
    fleet.carry_out()
    fleet.restart()
    fleet.carry_out()
    assert fleet.marked() == []
    fleet.after(601.0)
    fleet.carry_out()
    assert fleet.marked() == [1]


def test_a_domain_has_its_own_budget() -> None:
    views = (TopologyLabels("rack", ("rack",)),)
    fleet = Fleet(32, replace(AT_ONCE, topologies=views, budget=replace(WIDE, domain=0.25)))
    for number in range(8):
        fleet.report(number, finding())
    fleet.carry_out()
    assert len(fleet.marked()) == 2
    assert "budget of rack/r0 has reached its limit: 2 of 2 nodes marked" in {
        decision.reason for found in fleet.planner.tracker.decisions.values() for decision in found
    }


def test_a_node_cordoned_by_an_operator_uses_no_budget() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.change(0, unschedulable=True)
    for number in range(3):
        fleet.report(number, finding())
    fleet.carry_out()
    assert len(fleet.marked()) == 2
    assert 0 in fleet.marked()
    fleet.report(0)
    fleet.carry_out()
    assert fleet.nodes["uid-0"].unschedulable


def test_a_renamed_check_frees_no_budget() -> None:
    budget = Budget(1.0, 0.0, 1.0, 1.0, 1.0, check=CheckLimit(5, 600.0, 5))
    fleet = Fleet(50, replace(AT_ONCE, budget=budget))
    for number in range(5):
        fleet.report(number, finding("gpu-gone"))
    fleet.carry_out()
    fleet.after(3600.0)
    for number in range(10):
        fleet.report(number, finding("gpu-lost"))
    fleet.carry_out()
    assert fleet.marked() == [0, 1, 2, 3, 4]


def test_a_dry_run_respects_the_budget() -> None:
    fleet = Fleet(40, Policy(grace=GracePeriods(0.0, 0.0)))
    for number in range(10):
        fleet.report(number, finding())
    fleet.carry_out()
    outcomes = [decision for found in fleet.planner.tracker.decisions.values() for decision in found]
    assert {decision.state for decision in outcomes} == {IncidentState.DRY_RUN}
    assert (
        sorted(decision.reason for decision in outcomes)
        == [""] * 2 + ["fleet budget would reach its limit: 2 of 2 nodes marked"] * 8
    )
    fleet.after(5.0)
    assert fleet.plan().incidents == ()


def test_a_hold_maintenance_a_pause_and_stale_data_each_forbid_a_mark() -> None:
    fleet = Fleet(6)
    fleet.change(0, annotations={HOLD_ANNOTATION: "Ann looks at it"})
    fleet.change(1, annotations={MAINTENANCE_ANNOTATION: "new firmware"})
    for number in range(2):
        fleet.report(number, finding())
    fleet.report(2, finding(data_status=DataStatus.UNKNOWN))
    fleet.carry_out()
    assert fleet.marked() == []
    assert [decision.reason for found in fleet.planner.tracker.decisions.values() for decision in found] == [
        "the node is on hold: Ann looks at it",
        "the node is under maintenance: new firmware",
    ]
    fleet.planner.paused = "paused by Ann"
    fleet.report(3, finding())
    fleet.carry_out()
    assert fleet.marked() == []
    fleet.planner.paused = ""
    fleet.carry_out()
    assert fleet.marked() == [3]
