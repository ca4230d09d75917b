from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health
from nodeguard.model.incident import State
from nodeguard.model.policy import Mode, Policy, Settle, Writes
from tests.fleet.scene import AT_ONCE, CHECKS, WIDE, Fleet, finding, foreign, states

QUARANTINE = "nodeguard.dev/quarantine=gpu-bus"


def test_a_fatal_finding_becomes_a_taint_a_condition_and_an_incident() -> None:
    fleet = Fleet(3)
    fleet.say(1, finding())
    plan = fleet.carry_out()
    assert fleet.taints(1) == [QUARANTINE]
    condition = fleet.nodes["uid-1"].condition
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Quarantined")
    [incident] = plan.incidents
    assert (incident.node, incident.cause, incident.state, incident.scope) == (
        "node-1", "gpu-lost", State.MARKED, "node node-1",
    )  # fmt: skip
    assert [event.reason for event in plan.events] == ["NodeguardMarked"]
    assert fleet.marked() == [1]


def test_a_suspect_keeps_only_gangs_away_and_a_warning_nobody() -> None:
    fleet = Fleet(2)
    fleet.say(0, finding(health=Health.SUSPECT))
    fleet.say(1, finding(health=Health.WARNING))
    fleet.carry_out()
    assert fleet.taints(0) == ["nodeguard.dev/suspect=gpu-bus"]
    assert fleet.taints(1) == []
    assert len(states(fleet)) == 1


def test_in_observe_nothing_is_written_and_it_is_said_what_would_be() -> None:
    fleet = Fleet(3, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.say(1, finding())
    plan = fleet.carry_out()
    assert (plan.nodes, plan.rules) == ((), ())
    assert [one.state for one in plan.incidents] == [State.OBSERVED]
    assert [one.reason for one in plan.events] == ["NodeguardWouldMark"]
    assert fleet.plan().incidents == ()


def test_a_restart_comes_to_the_same_plan() -> None:
    fleet = Fleet(100, Policy(mode=Mode.ENFORCE, settle=Settle(0.0, 0.0)))
    for number in range(20):
        fleet.say(number, finding(age=100.0 + number))
    fleet.carry_out()
    before = fleet.marked()
    assert len(before) == 5
    fleet.restart()
    assert fleet.plan().nodes == ()
    fleet.carry_out()
    assert fleet.marked() == before


def test_a_plan_that_is_on_its_way_counts() -> None:
    fleet = Fleet(20, replace(AT_ONCE, budget=replace(WIDE, fleet=0.05)))
    fleet.say(0, finding(age=10.0))
    first = fleet.plan()
    fleet.planner.issued(first)
    fleet.say(1, finding(age=1000.0))
    second = fleet.plan()
    assert [one.name for one in first.nodes] == ["node-0"]
    assert second.nodes == ()
    fleet.planner.failed("uid-0")
    assert [one.name for one in fleet.plan().nodes] == ["node-1"]


def test_a_node_of_the_same_name_is_another_one() -> None:
    fleet = Fleet(2)
    fleet.say(0, finding())
    fleet.carry_out()
    other = replace(fleet.nodes.pop("uid-0"), uid="uid-9", taints=(), annotations={}, condition=None)
    fleet.reports.pop("uid-0")
    fleet.see(other)
    plan = fleet.carry_out()
    assert [(one.uid, one.state, one.detail) for one in plan.incidents] == [
        ("uid-0", State.RESOLVED, "its Node is gone")
    ]
    assert fleet.taints(9) == []


def test_unmark_leaves_nothing() -> None:
    fleet = Fleet(3, replace(AT_ONCE, marks=Writes(cordon=True)))
    fleet.publish(2)
    for number in range(3):
        fleet.say(number, finding())
    fleet.change(1, taints=(foreign(),))
    fleet.carry_out()
    fleet.planner.paused = "unmarked"
    fleet.write(fleet.planner.unmark())
    fleet.carry_out()
    assert fleet.rules == {}
    for node in fleet.nodes.values():
        assert (node.annotations, node.condition, node.unschedulable) == ({}, None, False)
    assert fleet.taints(1) == ["nvidia.com/gpu=present"]


def test_incidents_from_before_go_on_and_those_of_nodes_that_are_gone_end() -> None:
    fleet = Fleet(2)
    fleet.say(0, finding())
    fleet.carry_out()
    [known] = fleet.planner.incidents["uid-0"].values()
    fleet.restart()
    fleet.planner.recall([known, replace(known, name="lost", uid="uid-77")])
    fleet.after(5.0)
    plan = fleet.carry_out()
    assert [(one.name, one.state) for one in plan.incidents] == [("lost", State.RESOLVED)]
    assert fleet.planner.incidents["uid-0"][known.name] == known


def test_what_was_told_before_stands_until_its_node_is_heard() -> None:
    fleet = Fleet(1, replace(AT_ONCE, mode=Mode.OBSERVE))
    fleet.say(0, finding())
    [told] = fleet.carry_out().incidents
    assert told.state == State.OBSERVED

    fleet.planner = Planner(fleet.policy, CHECKS)
    fleet.planner.recall([told])
    fleet.see(fleet.nodes["uid-0"])
    assert fleet.plan().incidents == ()
    fleet.say(0, finding())
    assert fleet.carry_out().incidents == ()
    fleet.say(0)
    [over] = fleet.carry_out().incidents
    assert (over.state, over.times) == (State.RESOLVED, 1)
