from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.finding import DataStatus
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.policy import Hold, SoakPeriod
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding, in_order, states


def test_a_mark_is_released_after_proof_and_a_soak_period_that_doubles() -> None:
    fleet = Fleet(1, replace(AT_ONCE, soak=SoakPeriod(600.0, 28_800.0, 86_400.0)))
    for soak in (600.0, 1200.0, 2400.0):
        fleet.report(0, finding())
        fleet.carry_out()
        fleet.after(3600.0)
        assert fleet.marked() == [0]
        fleet.report(0)
        fleet.carry_out()
        assert set(states(fleet).values()) == {IncidentState.RECOVERING}
        fleet.after(soak - 1.0)
        fleet.carry_out()
        assert fleet.marked() == [0]
        fleet.after(1.0)
        fleet.carry_out()
        assert fleet.marked() == []
    condition = fleet.nodes["uid-0"].condition
    assert condition is not None
    assert condition.status == "True"
    fleet.after(86_400.0)
    fleet.carry_out()
    assert fleet.nodes["uid-0"].annotations == {}


def test_no_mark_is_released_without_proof() -> None:
    fleet = Fleet(1)
    fleet.report(0, finding())
    fleet.carry_out()
    for proven in ((), (in_order(targets=("gpu/0000:3c:00",)),), (in_order(checks=("port-down",)),)):
        fleet.report(0, proven=proven)
        fleet.after(100_000.0)
        fleet.carry_out()
        assert fleet.marked() == [0]
    fleet.report(0, finding(data_status=DataStatus.STALE), proven=(in_order(),))
    fleet.carry_out()
    assert fleet.marked() == [0]


def test_the_soak_period_starts_again_when_the_fault_returns() -> None:
    fleet = Fleet(1, replace(AT_ONCE, soak=SoakPeriod(600.0, 28_800.0, 86_400.0)))
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    fleet.carry_out()
    fleet.after(500.0)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    fleet.carry_out()
    fleet.after(500.0)
    fleet.carry_out()
    assert fleet.marked() == [0]


def test_every_cause_needs_its_own_proof() -> None:
    fleet = Fleet(1)
    fleet.report(0, finding(), finding("gpu-ecc", "gpu/0000:3c:00"))
    fleet.carry_out()
    fleet.report(0, finding("gpu-ecc", "gpu/0000:3c:00"), proven=(in_order(),))
    fleet.carry_out()
    assert fleet.marked() == [0]
    fleet.report(0, proven=(in_order(targets=("gpu/0000:3b:00", "gpu/0000:3c:00")),))
    fleet.carry_out()
    assert fleet.marked() == []


def test_a_finding_with_several_targets_needs_a_proof_for_each() -> None:
    fleet = Fleet(1)
    fleet.report(0, finding(target="node", targets=("gpu/0000:3b:00", "gpu/0000:3c:00")))
    fleet.carry_out()
    fleet.report(0)
    fleet.carry_out()
    assert fleet.marked() == [0]
    fleet.report(0, proven=(in_order(targets=("gpu/0000:3b:00",)), in_order(targets=("gpu/0000:3c:00",))))
    fleet.carry_out()
    assert fleet.marked() == []


def test_a_hold_on_a_check_releases_marks_without_another_cause() -> None:
    fleet = Fleet(3)
    fleet.report(0, finding())
    fleet.report(1, finding(), finding("gpu-ecc"))
    fleet.carry_out()
    fleet.planner.set_policy(replace(AT_ONCE, holds=(Hold(checks=("gpu-lost",), reason="false alarms"),)))
    plan = fleet.carry_out()
    assert fleet.marked() == [1]
    assert {mark.reason for _, mark in plan.released} == {"retracted"}


def test_marks_are_released_in_the_same_order_in_each_process() -> None:
    fleet = Fleet(30)
    for number in range(30):
        fleet.report(number, finding())
    fleet.carry_out()
    for number in range(30):
        fleet.report(number)
    released = [uid for uid, _ in fleet.plan().released]
    assert released == sorted(fleet.nodes)


def test_a_taint_removed_by_an_operator_returns_only_while_the_fault_lasts() -> None:
    fleet = Fleet(1)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.change(0, taints=())
    fleet.carry_out()
    assert fleet.marked() == [0]
    fleet.report(0, proven=())
    fleet.carry_out()
    assert fleet.marked() == [0]
    fleet.change(0, taints=())
    fleet.carry_out()
    assert fleet.marked() == []


def test_a_smaller_fleet_releases_nothing_and_marks_nothing() -> None:
    fleet = Fleet(40, replace(AT_ONCE, budget=replace(WIDE, fleet=0.10)))
    for number in range(4):
        fleet.report(number, finding())
    fleet.carry_out()
    for number in range(20, 40):
        fleet.planner.remove_node(f"uid-{number}")
        del fleet.nodes[f"uid-{number}"], fleet.reports[f"uid-{number}"]
    fleet.report(5, finding())
    fleet.carry_out()
    assert fleet.marked() == [0, 1, 2, 3]


def test_a_hold_keeps_a_mark_as_it_is() -> None:
    fleet = Fleet(1)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.change(0, annotations={**fleet.nodes["uid-0"].annotations, HOLD_ANNOTATION: ""})
    fleet.report(0)
    fleet.after(10.0)
    fleet.carry_out()
    assert fleet.marked() == [0]
