from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import MarkWrites
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding, foreign, in_order, states


def test_foreign_taints_stay_and_so_does_nodeguards_taint_set_by_an_operator() -> None:
    fleet = Fleet(2)
    fleet.change(0, taints=(foreign(), foreign("nodeguard.dev/quarantine", "by-hand")))
    fleet.change(1, taints=(foreign(),))
    fleet.report(1, finding())
    fleet.carry_out()
    fleet.report(1)
    fleet.carry_out()
    assert fleet.taints(0) == ["nvidia.com/gpu=present", "nodeguard.dev/quarantine=by-hand"]
    assert fleet.taints(1) == ["nvidia.com/gpu=present"]


def test_a_taint_with_an_unknown_key_that_no_record_explains_stays() -> None:
    fleet = Fleet(1)
    drill = "nodeguard.dev/drill"
    fleet.change(0, taints=(foreign(drill, "by-hand"),))
    for findings in ((finding(),), ()):
        fleet.report(0, *findings)
        fleet.carry_out()
        assert f"{drill}=by-hand" in fleet.taints(0)
        assert fleet.planner.state.marks.observed("uid-0").foreign == (f"{drill}=by-hand",)
    assert fleet.taints(0) == [f"{drill}=by-hand"]
    assert fleet.plan().nodes == ()


def test_nodeguards_cordon_is_removed_and_an_operators_stays() -> None:
    fleet = Fleet(3, replace(AT_ONCE, marks=MarkWrites(cordon=True)))
    fleet.change(1, unschedulable=True)
    for number in range(3):
        fleet.report(number, finding())
    fleet.carry_out()
    assert all(node.unschedulable for node in fleet.nodes.values())
    fleet.change(2, unschedulable=False)
    fleet.carry_out()
    assert not fleet.nodes["uid-2"].unschedulable
    fleet.restart()
    for number in range(3):
        fleet.report(number)
    fleet.carry_out()
    assert [node.unschedulable for node in fleet.nodes.values()] == [False, True, False]
    assert fleet.marked() == []


def test_a_fault_of_one_gpu_marks_only_that_device() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.publish(0)
    fleet.report(0, *(finding(target=f"gpu/0000:{0x3B + at:02x}:00", component="") for at in range(2)))
    fleet.carry_out()
    assert fleet.marked() == []
    assert sorted(rule.device for rule in fleet.rules.values()) == ["gpu-0", "gpu-1"]
    assert set(states(fleet).values()) == {IncidentState.MARKED}
    assert ("fleet", 0.25, 1.0, 0.0) in fleet.planner.state.budgets.rows()
    fleet.restart()
    assert not fleet.plan().rules
    fleet.report(0, proven=(in_order(targets=("gpu/0000:3b:00", "gpu/0000:3c:00")),))
    fleet.carry_out()
    assert fleet.rules == {}


def test_a_fault_of_a_link_or_of_an_unknown_gpu_marks_the_node() -> None:
    fleet = Fleet(2)
    fleet.publish(0)
    fleet.publish(1)
    fleet.report(0, finding(target="gpu/0000:3b:00/nvlink/3"))
    fleet.report(1, finding(target="gpu/0000:ff:00", component="GPU-9"))
    fleet.carry_out()
    assert (fleet.marked(), fleet.rules) == ([0, 1], {})


def test_orphaned_rules_are_removed() -> None:
    fleet = Fleet(2)
    for number in range(2):
        fleet.publish(number)
        fleet.report(number, finding())
    fleet.carry_out()
    assert len(fleet.rules) == 2
    fleet.planner.update_devices("node-0", ())
    fleet.report(0, proven=())
    assert fleet.plan().rules_gone == ()
    fleet.planner.update_devices("node-0", fleet.devices["node-0"][1:])
    fleet.planner.remove_node("uid-1")
    assert len(fleet.plan().rules_gone) == 2


def test_gpus_that_only_a_driver_publishes_are_charged() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    for number in range(2):
        fleet.change(number, gpus=0)
        fleet.publish(number)
        fleet.report(number, finding())
    assert len(fleet.carry_out().rules) == 2
