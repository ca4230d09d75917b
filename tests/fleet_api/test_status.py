from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet.state.rejected_reports import RejectedReports
from nodeguard.fleet_api.node import node
from nodeguard.fleet_api.schema.node import DEGRADED
from nodeguard.fleet_api.schema.status import LedgerTold, Marked
from nodeguard.fleet_api.service_state import Service
from nodeguard.fleet_api.status import status
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import IncidentState, OperatorDecision
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION, Mark
from nodeguard.model.policy import CheckLimit, Mode, ModeRule, Policy
from nodeguard.wire.report import UnreadableTargets
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding

LEADER = Service("replica-0", leads=True, started=9_000.0, plan_age=0.44)


def test_nodes_are_counted_by_what_is_known_of_them() -> None:
    fleet = Fleet(8)
    fleet.say(0, finding())
    fleet.say(1, finding(health=Health.SUSPECT))
    fleet.say(2, finding(health=Health.WARNING))
    for number, more in (
        (
            3,
            {
                "knowledge": DataStatus.UNKNOWN,
                "proven": (),
                "unread": (UnreadableTargets("nvml", "", "it hangs"),),
            },
        ),
        (4, {"knowledge": DataStatus.UNKNOWN, "unread": (UnreadableTargets("nvml", "", "it hangs"),)}),
    ):
        report = replace(fleet.reports[f"uid-{number}"], **more)
        fleet.planner.record_report(f"uid-{number}", report, fleet.now)
    fleet.change(5, annotations={HOLD_ANNOTATION: "alice"})
    fleet.change(6, annotations={MAINTENANCE_ANNOTATION: "rack move"})
    fleet.change(7, unschedulable=True)
    fleet.after(10.0)
    fleet.carry_out()
    nodes = status(fleet.planner, LEADER, fleet.now).nodes
    assert (nodes.ok, nodes.warning, nodes.suspect, nodes.fatal, nodes.unknown) == (4, 1, 1, 1, 1)
    assert (nodes.blind, nodes.held, nodes.maintenance, nodes.out) == (2, 1, 1, 1)


def test_a_silent_node_is_unknown_and_its_agent_stale() -> None:
    fleet = Fleet(3)
    fleet.say(0, finding())
    fleet.reports.pop("uid-0")
    fleet.after(60.0)
    told = status(fleet.planner, LEADER, fleet.now)
    assert (told.nodes.unknown, told.nodes.fatal) == (1, 0)
    assert (told.agents.expected, told.agents.heard, told.agents.silent, told.agents.stale) == (3, 3, 1, 1)
    assert told.frozen.startswith("1 of 3 agents are silent")
    fleet.restart()
    assert status(fleet.planner, LEADER, fleet.now).agents.stale == 0


def test_marks_are_counted_on_nodes_and_devices() -> None:
    fleet = Fleet(4)
    fleet.publish(0)
    fleet.say(0, finding(), finding("gpu-ecc", "gpu/0000:3c:00", part="GPU-x"))
    fleet.say(1, finding(), finding("port-down", "port/mlx5_0/1", health=Health.SUSPECT))
    fleet.say(2, finding(health=Health.SUSPECT))
    fleet.after(10.0)
    fleet.carry_out()
    told = status(fleet.planner, LEADER, fleet.now)
    assert told.marked == {Mark.QUARANTINE: Marked(1, 2), Mark.SUSPECT: Marked(1, 0), DEGRADED: Marked()}
    assert (told.withheld.marks, told.would.marks) == (0, 0)
    assert told.incidents[IncidentState.MARKED] == 5


def test_what_is_withheld_has_its_reasons_and_full_ledgers_are_named() -> None:
    limit = CheckLimit(("*",), 10_000, 600.0, 2)
    fleet = Fleet(10, replace(AT_ONCE, budget=replace(WIDE, check=limit)))
    for number in range(5):
        fleet.say(number, finding())
    fleet.after(10.0)
    fleet.carry_out()
    told = status(fleet.planner, LEADER, fleet.now)
    assert (told.withheld.marks, told.withheld.nodes) == (3, 3)
    assert [(one.why, one.marks) for one in told.reasons] == [
        ("budget of check gpu-lost used up: 2 of 2 active marks", 3)
    ]
    assert told.ledgers == (LedgerTold("fleet", 2.0, 10.0), LedgerTold("check/gpu-lost", 2, 2))
    [worst] = told.worst
    assert (worst.state, worst.alike) == (IncidentState.WITHHELD, 4)


def test_in_observe_it_is_said_what_would_be() -> None:
    fleet = Fleet(2, replace(AT_ONCE, mode=Mode.OBSERVE, modes=(ModeRule(("port-*",), Mode.ENFORCE),)))
    fleet.say(0, finding(), finding("gpu-ecc"))
    fleet.after(10.0)
    fleet.carry_out()
    told = status(fleet.planner, LEADER, fleet.now)
    assert (told.policy.mode, told.policy.rules) == ("observe", 1)
    assert (told.would.marks, told.would.nodes, told.marked[Mark.QUARANTINE].nodes) == (2, 1, 0)
    assert told.ledgers == (LedgerTold("fleet", 0.0, 2.0),)


def test_the_worst_comes_first_one_of_each_kind_and_what_is_known_of_last() -> None:
    fleet = Fleet(20)
    for number in range(3):
        fleet.say(number, finding("gpu-ecc"))
    fleet.say(3, finding())
    fleet.say(4, finding("port-down", "port/mlx5_0/1", health=Health.SUSPECT))
    for number, check in enumerate(("gpu-hot", "a", "b", "c"), 5):
        fleet.say(number, finding(check, health=Health.WARNING))
    fleet.after(10.0)
    fleet.carry_out()
    told = status(fleet.planner, LEADER, fleet.now)
    assert [(one.cause, one.alike) for one in told.worst[:3]] == [
        ("gpu-ecc", 2), ("gpu-lost", 0), ("port-down", 0),
    ]  # fmt: skip
    assert len(told.worst) == 5
    [name] = fleet.planner.incidents["uid-3"]
    known = replace(LEADER, decisions={name: OperatorDecision(name, "alice")})
    told = status(fleet.planner, known, fleet.now)
    assert [one.cause for one in told.worst[:2]] == ["gpu-ecc", "port-down"]
    assert "gpu-lost" not in [one.cause for one in told.worst]


def test_why_nothing_is_done_is_said() -> None:
    fleet = Fleet(2)
    fleet.after(1.0)
    assert status(fleet.planner, LEADER, fleet.now).replica.waiting == ""
    early = replace(LEADER, waits="not known yet: Nodes", started=fleet.mono - 12.0)
    told = status(fleet.planner, early, fleet.now).replica
    assert (told.acts, told.age) == (False, 12.0)
    assert told.waiting == "not known yet: Nodes"
    for leader, waiting in (
        ("replica-1", "replica-1 leads"),
        ("", "no aggregator leads yet"),
    ):
        other = replace(LEADER, leader=leader, leads=False)
        assert status(fleet.planner, other, fleet.now).replica.waiting == waiting
    fleet.planner.paused = "a bad driver (alice)"
    assert status(fleet.planner, LEADER, fleet.now).paused == "a bad driver (alice)"
    fleet.planner.paused = ""
    fleet.planner.set_policy(replace(fleet.policy, pause=True))
    assert status(fleet.planner, LEADER, fleet.now).paused == "paused by the policy file"


def test_a_fleet_of_no_nodes_can_be_told() -> None:
    fleet = Fleet(0, Policy())
    fleet.after(1.0)
    told = status(fleet.planner, LEADER, fleet.now)
    assert (told.agents.expected, told.ledgers, told.worst) == (0, (), ())
    assert told.replica.plan_age == 0.4


def test_all_counts_after_a_start_are_of_one_moment() -> None:
    """Reports come between two looks at who is silent; a Node may be added, too."""
    fleet = Fleet(3)
    fleet.restart()
    reports, fleet.reports = dict(fleet.reports), {}
    fleet.restart()
    fleet.planner.record_report("uid-0", reports["uid-0"], fleet.now)
    fleet.see(replace(fleet.nodes["uid-1"], name="node-9", uid="uid-9"))
    told = status(fleet.planner, LEADER, fleet.now)
    agents, nodes = told.agents, told.nodes
    assert (agents.expected, agents.heard, agents.silent, agents.stale) == (4, 1, 3, 0)
    assert (nodes.ok, nodes.unknown) == (1, 3)
    assert told.frozen.startswith("3 of 4 agents are silent and no domain explains 3")
    page = node(fleet.planner, LEADER, "node-0", fleet.now)
    assert page is not None
    assert (page.silent, page.known) == (False, True)


def test_refused_messages_are_shown_the_latest_nodes_first() -> None:
    fleet = Fleet(8)
    refusals = RejectedReports()
    for number in range(5):
        refusals.add(f"node-{number}", "other-boot", "another boot: wait", fleet.mono - 10.0 + number)
    refusals.add("node-0", "other-boot", "another boot: wait", fleet.mono - 2.0)
    service = replace(LEADER, refused=refusals.recent(fleet.mono))
    shown = status(fleet.planner, service, fleet.now)
    assert [(one.node, one.count, one.age) for one in shown.refused] == [
        ("node-0", 2, 2.0),
        ("node-4", 1, 6.0),
        ("node-3", 1, 7.0),
    ]
    assert shown.refused_more == 2
    page = node(fleet.planner, service, "node-0", fleet.now)
    assert page is not None
    assert page.refused == shown.refused[0]
    other = node(fleet.planner, service, "node-7", fleet.now)
    assert other is not None
    assert other.refused is None


def test_the_latest_refusal_is_kept_of_few_nodes() -> None:
    refusals = RejectedReports()
    for number in range(5000):
        refusals.add(f"node-{number}", "other-boot", "why: remedy", float(number) / 100.0)
    assert len(refusals.recent(50.0)) == 4096
    assert refusals.latest("node-0", 50.0) is None
    assert refusals.counts == {"other-boot": 5000}
