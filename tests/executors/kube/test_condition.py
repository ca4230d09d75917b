"""The message of the Node condition says what happened and what to do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Action, Health
from nodeguard.model.mark import MAINTENANCE_ANNOTATION
from nodeguard.model.node import MAX_CONDITION_MESSAGE, NodeCondition
from nodeguard.model.policy import SoakPeriod
from tests.fleet.leaves import FIRST, faulty
from tests.fleet.scene import AT_ONCE, Fleet, finding, in_order

LOST = finding(message="GPU 0000:3b:00 has fallen off the bus: Xid 79", action=Action.REBOOT_NODE)
DOWN = finding(
    "port-down", "port/mlx5_0/1", message="the port is down: polling", action=Action.CONTACT_SUPPORT, age=30.0
)


def condition(made: Fleet, number: int = 0) -> NodeCondition:
    found = made.nodes[f"uid-{number}"].condition
    assert found is not None
    return found


def test_a_condition_has_the_fault_and_the_action() -> None:
    made = Fleet(2)
    made.report(0, LOST)
    made.carry_out()
    assert condition(made) == NodeCondition(
        "False",
        "GPUFaultRebootNode",
        "GPU 0000:3b:00 has fallen off the bus: Xid 79. All new work is kept off. "
        "Details: nodeguard describe node node-0 (gpu-lost on GPU 0000:3b:00). To do: reboot the node.",
    )


def test_several_faults_with_their_slots_and_the_strongest_action() -> None:
    made = Fleet(2)
    hot = finding("gpu-hot", "gpu/0000:3c:00", message="91 °C", action=Action.MONITOR, age=20.0)
    made.report(0, LOST, DOWN, hot)
    made.carry_out()
    assert condition(made).message == (
        "GPU 0000:3c:00: 91 °C; GPU 0000:3b:00 has fallen off the bus: Xid 79; and 1 more. "
        "All new work is kept off. Details: nodeguard describe node node-0 (gpu-hot on GPU 0000:3c:00, "
        "gpu-lost on GPU 0000:3b:00, port-down on port mlx5_0/1). To do: contact support."
    )


def test_a_suspect_node_keeps_single_node_work() -> None:
    made = Fleet(2)
    made.report(0, replace(DOWN, health=Health.SUSPECT))
    made.carry_out()
    assert condition(made).message == (
        "port mlx5_0/1: the port is down: polling. New gang work is kept off. "
        "Details: nodeguard describe node node-0 (port-down on port mlx5_0/1). To do: contact support."
    )


def test_a_condition_is_written_for_another_cause_and_not_for_another_reading() -> None:
    made = Fleet(2)
    made.report(0, LOST)
    made.carry_out()
    made.report(0, replace(LOST, message="GPU 0000:3b:00 does not answer"))
    assert made.carry_out().nodes == ()
    made.report(0, LOST, DOWN)
    made.carry_out()
    assert "(gpu-lost on GPU 0000:3b:00, port-down on port mlx5_0/1)" in condition(made).message


def test_without_a_report_the_checks_and_slots_are_named() -> None:
    made = Fleet(2, replace(AT_ONCE))
    made.report(0, LOST)
    made.carry_out()
    made.reports.clear()
    made.change(0, condition=NodeCondition("True", "Healthy"))
    made.restart()
    made.carry_out()
    assert condition(made).message == (
        "gpu-lost on GPU 0000:3b:00. All new work is kept off. "
        "Details: nodeguard describe node node-0 (gpu-lost on GPU 0000:3b:00)."
    )


OTHER = finding(
    target="gpu/0000:4c:00",
    component="GPU-2",
    message="GPU 0000:4c:00 has fallen off the bus",
    action=Action.MONITOR,
)


def test_the_condition_names_the_gpu_that_is_still_lost() -> None:
    made = Fleet(2)
    made.report(0, LOST)
    made.carry_out()
    made.after(5.0)
    made.report(0, LOST, OTHER)
    made.carry_out()
    made.after(5.0)
    made.report(
        0, replace(OTHER, action=Action.REPLACE_COMPONENT), proven=(in_order(targets=(LOST.target,)),)
    )
    made.carry_out()
    assert condition(made).message == (
        "GPU 0000:4c:00 has fallen off the bus. All new work is kept off. Details: nodeguard describe node node-0 "
        "(gpu-lost on GPU 0000:4c:00). To do: replace the component."
    )


@pytest.mark.parametrize("action", [Action.REPLACE_COMPONENT, Action.MONITOR])
def test_another_action_is_written(action: Action) -> None:
    made = Fleet(2)
    made.report(0, LOST)
    made.carry_out()
    made.report(0, replace(LOST, action=action, message="GPU 0000:3b:00 does not answer"))
    made.carry_out()
    assert condition(made).message.startswith("GPU 0000:3b:00 does not answer. ")
    assert condition(made).message.endswith(f" To do: {action.phrase}.")


def test_the_action_stays_while_a_fault_is_not_reported() -> None:
    made = Fleet(2)
    made.report(0, LOST, OTHER)
    made.carry_out()
    before = condition(made)
    assert before.message.endswith(" To do: reboot the node.")
    for findings in ((), (OTHER,), (LOST,), (LOST, OTHER)):
        made.report(0, *findings, proven=())
        made.carry_out()
        assert condition(made) == before
    made.reports.clear()
    made.restart()
    made.carry_out()
    assert condition(made) == before
    made.report(0, replace(OTHER, action=Action.CONTACT_SUPPORT), proven=())
    made.carry_out()
    assert condition(made).message.endswith(" To do: contact support.")


def test_an_operator_who_has_rebooted_the_node_is_not_asked_to_do_it_again() -> None:
    made = Fleet(2, replace(AT_ONCE, soak=SoakPeriod()))
    made.report(0, LOST)
    made.carry_out()
    assert condition(made).message.endswith(" To do: reboot the node.")
    made.report(0)
    made.carry_out()
    recovering = condition(made)
    assert (recovering.status, recovering.reason) == ("False", "GPUFaultRecovering")
    assert recovering.message == (
        "gpu-lost on GPU 0000:3b:00. All new work is kept off. "
        "Details: nodeguard describe node node-0 (gpu-lost on GPU 0000:3b:00). "
        "No action is needed now: the checks pass, and the soak period runs."
    )
    made.report(0, proven=())
    made.carry_out()
    made.reports.clear()
    made.restart()
    made.carry_out()
    assert condition(made) == recovering
    made.report(0, LOST)
    made.carry_out()
    assert condition(made).message.endswith(" To do: reboot the node.")


def test_a_condition_of_an_earlier_version_is_rewritten_once() -> None:
    made = Fleet(2)
    made.report(0, LOST)
    made.carry_out()
    wanted = condition(made)
    earlier = (
        "GPU 0000:3b:00 has fallen off the bus: Xid 79. To do: reboot the node. All new work is kept off. "
        "Details: nodeguard describe node node-0 (gpu-lost)"
    )
    made.change(0, condition=replace(wanted, message=earlier))
    [desired] = made.carry_out().nodes
    assert (desired.condition, condition(made)) == (wanted, wanted)
    assert made.carry_out().nodes == ()


def test_a_condition_with_many_long_faults_is_stable() -> None:
    made = Fleet(2)
    slots = [f"fs:/{'x' * 200}{at}" for at in range(20)]
    made.report(0, *(finding("fs-read-only", slot, message="y" * 500) for slot in slots))
    made.carry_out()
    assert len(condition(made).message) <= MAX_CONDITION_MESSAGE
    assert "…, 20 faults in all). To do: reset the GPU." in condition(made).message
    assert made.carry_out().nodes == ()


def test_a_node_that_is_released_is_healthy() -> None:
    made = Fleet(2)
    made.report(0, LOST)
    made.carry_out()
    made.report(0)
    made.carry_out()
    assert condition(made) == NodeCondition("True", "Healthy", "no mark is active")


def test_a_node_of_a_degraded_domain_needs_no_repair() -> None:
    made = faulty()
    assert condition(made, 1).reason == "DomainDegraded"
    assert condition(made, 1).message.startswith(f"{FIRST}: 8 of 8 nodes lost a link at once")
    assert condition(made, 1).message.endswith(
        ". New gang work is kept off. The node needs no repair for it: the network team acts. "
        f"Details: nodeguard describe domain {FIRST}"
    )
    assert MAINTENANCE_ANNOTATION not in made.nodes["uid-1"].annotations
