"""The message of the Node condition says what happened and what to do."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.finding import Action, Health
from nodeguard.model.mark import MAINTENANCE
from nodeguard.model.node import Condition
from tests.fleet.domains.test_domains import FIRST, fails, fleet, wait
from tests.fleet.scene import AT_ONCE, Fleet, finding

LOST = finding(message="GPU 0000:3b:00 has fallen off the bus: Xid 79", action=Action.REBOOT_NODE)
DOWN = finding(
    "port-down", "port/mlx5_0/1", message="the port is down: polling", action=Action.CONTACT_SUPPORT, age=30.0
)


def condition(made: Fleet, number: int = 0) -> Condition:
    found = made.nodes[f"uid-{number}"].condition
    assert found is not None
    return found


def test_what_happened_and_what_to_do() -> None:
    made = Fleet(2)
    made.say(0, LOST)
    made.carry_out()
    assert condition(made) == Condition(
        "False",
        "Quarantined",
        "GPU 0000:3b:00 has fallen off the bus: Xid 79. To do: reboot the node. New work is kept off. "
        "Details: nodeguard explain node node-0 (gpu-lost)",
    )


def test_several_faults_with_their_slots_and_the_strongest_action() -> None:
    made = Fleet(2)
    hot = finding("gpu-hot", "gpu/0000:3c:00", message="91 °C", action=Action.WATCH, age=20.0)
    made.say(0, LOST, DOWN, hot)
    made.carry_out()
    assert condition(made).message == (
        "GPU 0000:3c:00: 91 °C; GPU 0000:3b:00 has fallen off the bus: Xid 79; and 1 more. "
        "To do: contact support. New work is kept off. "
        "Details: nodeguard explain node node-0 (gpu-hot, gpu-lost, port-down)"
    )


def test_a_suspect_node_keeps_single_node_work() -> None:
    made = Fleet(2)
    made.say(0, replace(DOWN, health=Health.SUSPECT))
    made.carry_out()
    assert condition(made).message == (
        "port mlx5_0/1: the port is down: polling. To do: contact support. New gang work is kept off. "
        "Details: nodeguard explain node node-0 (port-down)"
    )


def test_other_readings_are_not_written_and_another_cause_is() -> None:
    made = Fleet(2)
    made.say(0, LOST)
    made.carry_out()
    made.say(0, replace(LOST, message="GPU 0000:3b:00 does not answer"))
    assert made.carry_out().nodes == ()
    made.say(0, LOST, DOWN)
    made.carry_out()
    assert condition(made).message.endswith(" (gpu-lost, port-down)")


def test_without_a_report_the_checks_and_slots_are_named() -> None:
    made = Fleet(2, replace(AT_ONCE))
    made.say(0, LOST)
    made.carry_out()
    made.reports.clear()
    made.change(0, condition=Condition("True", "Healthy"))
    made.restart()
    made.carry_out()
    assert condition(made).message == (
        "gpu-lost on GPU 0000:3b:00. New work is kept off. Details: nodeguard explain node node-0 (gpu-lost)"
    )


def test_a_node_that_is_released_is_healthy() -> None:
    made = Fleet(2)
    made.say(0, LOST)
    made.carry_out()
    made.say(0)
    made.carry_out()
    assert condition(made) == Condition("True", "Healthy", "no mark is active")


def test_a_node_of_a_degraded_domain_needs_no_repair() -> None:
    made = fleet()
    fails(made)
    wait(made, 20.0)
    assert condition(made, 1).reason == "DomainDegraded"
    assert condition(made, 1).message.startswith(f"{FIRST}: 8 of 8 nodes lost a link at once")
    assert condition(made, 1).message.endswith(
        ". New gang work is kept off. The node needs no repair for it. "
        f"Details: nodeguard explain domain {FIRST}"
    )
    assert MAINTENANCE not in made.nodes["uid-1"].annotations
