from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet.state.rejected_reports import RejectedReports
from nodeguard.fleet_api.node import describe_node
from nodeguard.fleet_api.schema.capacity import MarkedCounts, ReasonCount
from nodeguard.fleet_api.schema.incident_summary import StateGroup
from nodeguard.fleet_api.schema.replica import ObstacleView
from nodeguard.fleet_api.schema.status import BudgetView
from nodeguard.fleet_api.service_state import PARTIAL_OBSTACLES, Obstacle, ServiceState
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.status import status_view
from nodeguard.fleet_api.text.wording import number_text
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.incident import FalseAlarm, IncidentState, OperatorDecision
from nodeguard.model.instant import rfc3339
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION, Mark
from nodeguard.model.policy import CheckLimit, Mode, ModeRule, Policy
from nodeguard.model.refused_request import RefusedRequest
from nodeguard.wire.report import ReportedFinding, UnreadableTargets
from tests.cli.fleet_output import facts
from tests.fleet.scene import AT_ONCE, CHECKS, WIDE, Fleet, finding

LEADER = ServiceState("replica-0", is_leader=True, started=9_000.0, plan_age=0.44)


def test_nodes_are_counted_by_health() -> None:
    fleet = Fleet(8)
    fleet.report(0, finding())
    fleet.report(1, finding(health=Health.SUSPECT))
    fleet.report(2, finding(health=Health.WARNING))
    for number, more in (
        (
            3,
            {
                "data_status": DataStatus.UNKNOWN,
                "passing": (),
                "unreadable": (UnreadableTargets("nvml", "", "it hangs"),),
            },
        ),
        (4, {"data_status": DataStatus.UNKNOWN, "unreadable": (UnreadableTargets("nvml", "", "it hangs"),)}),
    ):
        report = replace(fleet.reports[f"uid-{number}"], **more)
        fleet.planner.record_report(f"uid-{number}", report, fleet.now)
    fleet.change(5, annotations={HOLD_ANNOTATION: "alice"})
    fleet.change(6, annotations={MAINTENANCE_ANNOTATION: "rack move"})
    fleet.change(7, unschedulable=True)
    fleet.after(10.0)
    fleet.carry_out()
    nodes = fleet_status(fleet.planner, LEADER, fleet.now).nodes
    assert (nodes.ok, nodes.warning, nodes.suspect, nodes.fatal, nodes.unknown) == (4, 1, 1, 1, 1)
    assert (nodes.partially_read, nodes.on_hold, nodes.maintenance, nodes.cordoned_by_user) == (2, 1, 1, 1)


def end_fault(fleet: Fleet, number: int, fault: ReportedFinding) -> None:
    fleet.report(number, fault)
    fleet.after(10.0)
    fleet.carry_out()
    fleet.report(number)
    fleet.after(60.0)
    fleet.carry_out()


def test_the_latest_end_is_of_a_fault() -> None:
    fleet = Fleet(8)
    end_fault(fleet, 1, finding(health=Health.WARNING))
    assert fleet_status(fleet.planner, LEADER, fleet.now).latest_end is None
    for number in (2, 3):
        end_fault(fleet, number, finding())
    end_fault(fleet, 4, finding(health=Health.WARNING))
    latest = fleet_status(fleet.planner, LEADER, fleet.now).latest_end
    assert latest is not None
    assert latest.node == fleet.nodes["uid-3"].name
    statement = OperatorDecision(latest.incident, false_alarm=FalseAlarm("ann"))
    service = replace(LEADER, decisions={latest.incident: statement})
    earlier = fleet_status(fleet.planner, service, fleet.now).latest_end
    assert earlier is not None
    assert earlier.node == fleet.nodes["uid-2"].name


def test_a_stale_node_is_unknown() -> None:
    fleet = Fleet(3)
    fleet.report(0, finding())
    fleet.reports.pop("uid-0")
    fleet.after(60.0)
    view = fleet_status(fleet.planner, LEADER, fleet.now)
    assert (view.nodes.unknown, view.nodes.fatal) == (1, 0)
    assert (view.agents.expected, view.agents.reported, view.agents.not_reporting, view.agents.stale) == (
        3,
        3,
        1,
        1,
    )
    assert view.frozen == ""
    del fleet.reports["uid-1"]
    fleet.after(60.0)
    view = fleet_status(fleet.planner, LEADER, fleet.now)
    assert view.frozen.startswith("2 of 3 agents do not report")
    fleet.restart()
    assert fleet_status(fleet.planner, LEADER, fleet.now).agents.stale == 0


def test_marks_are_counted_on_nodes_and_devices() -> None:
    fleet = Fleet(4)
    fleet.publish(0)
    fleet.report(0, finding(), finding("gpu-ecc", "gpu/0000:3c:00", component="GPU-x"))
    fleet.report(1, finding(), finding("port-down", "port/mlx5_0/1", health=Health.SUSPECT))
    fleet.report(2, finding(health=Health.SUSPECT))
    fleet.after(10.0)
    fleet.carry_out()
    view = fleet_status(fleet.planner, LEADER, fleet.now)
    assert view.marked == {
        Mark.QUARANTINE: MarkedCounts(1, 2),
        Mark.SUSPECT: MarkedCounts(1, 0),
        Mark.DOMAIN_DEGRADED: MarkedCounts(),
    }
    assert (view.withheld.marks, view.would_mark.marks) == (0, 0)
    assert view.incidents[IncidentState.MARKED] == 5


def test_reasons_that_are_left_out_are_counted() -> None:
    limit = CheckLimit(10_000, 600.0, 1)
    fleet = Fleet(40, replace(AT_ONCE, budget=replace(WIDE, check=limit)))
    for number, check in enumerate((*CHECKS, *CHECKS, *CHECKS)):
        fleet.report(number, finding(check))
    fleet.carry_out()
    view = fleet_status(fleet.planner, LEADER, fleet.now)
    assert view.reasons == (ReasonCount("a budget has reached its limit", 8, 8),)
    assert [(item.marks, item.nodes) for item in view.full_budgets] == [(2, 2)] * 3
    assert view.other_full_budgets == ReasonCount("1 more reason", 2, 2)
    line = facts(status_view(view))["withheld"]
    assert line.startswith(
        "8 marks of 8 nodes not set: a budget has reached its limit; budget of check gpu-ecc: 1 active mark (2), budget of"
    )
    assert line.endswith(", 1 more reason (2)")


def test_similar_incidents_are_counted_by_state() -> None:
    limit = CheckLimit(10_000, 600.0, 4)
    fleet = Fleet(40, replace(AT_ONCE, budget=replace(WIDE, check=limit)))
    for number in range(6):
        fleet.report(number, finding(age=60.0 - number))
    fleet.carry_out()
    [worst] = fleet_status(fleet.planner, LEADER, fleet.now).worst
    withheld = "budget of check gpu-lost has reached its limit (4 active marks)"
    assert worst.groups == (
        StateGroup(IncidentState.WITHHELD, withheld, None, 2, ("node-5", "node-4")),
        StateGroup(IncidentState.MARKED, "", Mark.QUARANTINE, 4, ("node-3", "node-2", "node-1")),
    )
    # The age is that of the oldest, which is quarantined; the first to name is the latest that is withheld.
    assert (worst.node, worst.age) == ("node-5", 60.0)


@pytest.mark.parametrize(("number", "text"), [(1.0, "1"), (12.5, "12.5"), (375.0, "375"), (1e5, "100000")])
def test_numbers_of_budgets_have_no_exponent(number: float, text: str) -> None:
    assert number_text(number) == text


def test_withheld_marks_have_reasons_and_full_budgets_are_listed() -> None:
    limit = CheckLimit(10_000, 600.0, 2)
    fleet = Fleet(10, replace(AT_ONCE, budget=replace(WIDE, check=limit)))
    for number in range(5):
        fleet.report(number, finding())
    fleet.after(10.0)
    fleet.carry_out()
    view = fleet_status(fleet.planner, LEADER, fleet.now)
    assert (view.withheld.marks, view.withheld.nodes) == (3, 3)
    assert [(item.reason, item.marks) for item in view.reasons] == [("a budget has reached its limit", 3)]
    assert [(item.reason, item.marks) for item in view.full_budgets] == [
        ("budget of check gpu-lost: 2 active marks", 3)
    ]
    assert view.budgets == (BudgetView("fleet", 2.0, 10.0), BudgetView("check/gpu-lost", 2, 2))
    [worst] = view.worst
    assert (worst.state, worst.similar) == (IncidentState.WITHHELD, 4)


def test_observe_mode_shows_the_dry_run() -> None:
    fleet = Fleet(2, replace(AT_ONCE, mode=Mode.OBSERVE, modes=(ModeRule(Mode.ENFORCE, checks=("port-*",)),)))
    fleet.report(0, finding(), finding("gpu-ecc"))
    fleet.after(10.0)
    fleet.carry_out()
    view = fleet_status(fleet.planner, LEADER, fleet.now)
    assert (view.policy.mode, view.policy.rules) == ("observe", 1)
    assert (view.would_mark.marks, view.would_mark.nodes, view.marked[Mark.QUARANTINE].nodes) == (2, 1, 0)
    assert view.budgets == (BudgetView("fleet", 0.0, 2.0),)


def test_the_worst_incident_of_each_kind_comes_first_acknowledged_ones_last() -> None:
    fleet = Fleet(20)
    for number in range(3):
        fleet.report(number, finding("gpu-ecc"))
    fleet.report(3, finding())
    fleet.report(4, finding("port-down", "port/mlx5_0/1", health=Health.SUSPECT))
    for number, check in enumerate(("gpu-hot", "a", "b", "c"), 5):
        fleet.report(number, finding(check, health=Health.WARNING))
    fleet.after(10.0)
    fleet.carry_out()
    view = fleet_status(fleet.planner, LEADER, fleet.now)
    assert [(item.cause, item.similar) for item in view.worst[:3]] == [
        ("gpu-ecc", 2), ("gpu-lost", 0), ("port-down", 0),
    ]  # fmt: skip
    assert len(view.worst) == 5
    [name] = fleet.planner.tracker.recorded.by_uid["uid-3"]
    available = replace(LEADER, decisions={name: OperatorDecision(name, "alice")})
    view = fleet_status(fleet.planner, available, fleet.now)
    assert [item.cause for item in view.worst[:2]] == ["gpu-ecc", "port-down"]
    assert "gpu-lost" not in [item.cause for item in view.worst]


def test_the_reason_of_inactivity_is_shown() -> None:
    fleet = Fleet(2)
    fleet.after(1.0)
    assert fleet_status(fleet.planner, LEADER, fleet.now).replica.inactive_reason == ""
    assert fleet_status(fleet.planner, LEADER, fleet.now).obstacle is None
    unread = Obstacle("not-read", "not read yet: Nodes", fleet.mono - 12.0)
    early = replace(LEADER, obstacle=unread, started=fleet.mono - 12.0)
    status = fleet_status(fleet.planner, early, fleet.now)
    assert (status.replica.is_active, status.replica.age) == (False, 12.0)
    assert status.replica.inactive_reason == "not read yet: Nodes"
    since = rfc3339(fleet.now.wall - 12.0)
    assert status.obstacle == ObstacleView(
        "not-read", "nothing is written", "not read yet: Nodes", since, 12.0
    )
    for leader, effect in (("replica-1", "this replica writes nothing"), ("", "nothing is written")):
        standby = replace(early, leader=leader, is_leader=False)
        obstacle = fleet_status(fleet.planner, standby, fleet.now).obstacle
        assert obstacle is not None
        assert obstacle.effect == effect
    for kind in PARTIAL_OBSTACLES:
        partial = replace(LEADER, obstacle=Obstacle(kind, "3 of 400 agents", fleet.mono))
        assert fleet_status(fleet.planner, partial, fleet.now).replica.is_active
    fleet.planner.paused = "a bad driver (alice)"
    assert fleet_status(fleet.planner, LEADER, fleet.now).paused == "a bad driver (alice)"
    fleet.planner.paused = ""
    fleet.planner.set_policy(replace(fleet.policy, pause=True))
    assert fleet_status(fleet.planner, LEADER, fleet.now).paused == "paused by the policy file"


def test_a_fleet_without_nodes_has_a_status() -> None:
    fleet = Fleet(0, Policy())
    fleet.after(1.0)
    view = fleet_status(fleet.planner, LEADER, fleet.now)
    assert (view.agents.expected, view.budgets, view.worst) == (0, (), ())
    assert view.replica.plan_age == 0.4


def test_all_counts_after_a_start_are_of_one_time() -> None:
    """Reports come between two looks at who is silent; a Node may be added, too."""
    fleet = Fleet(3)
    fleet.restart()
    reports, fleet.reports = dict(fleet.reports), {}
    fleet.restart()
    fleet.planner.record_report("uid-0", reports["uid-0"], fleet.now)
    fleet.see(replace(fleet.nodes["uid-1"], name="node-9", uid="uid-9"))
    view = fleet_status(fleet.planner, LEADER, fleet.now)
    agents, nodes = view.agents, view.nodes
    assert (agents.expected, agents.reported, agents.not_reporting, agents.stale) == (4, 1, 3, 0)
    assert (nodes.ok, nodes.unknown) == (1, 3)
    assert view.frozen.startswith("3 of 4 agents do not report, and no failure domain explains them")
    page = describe_node(fleet.planner, LEADER, "node-0", fleet.now)
    assert page is not None
    assert (page.stale, page.health_known) == (False, True)


def test_refused_messages_are_shown_the_latest_nodes_first() -> None:
    fleet = Fleet(8)
    refusals = RejectedReports()
    for number in range(5):
        refusals.add(f"node-{number}", "other-boot", "another boot: wait", fleet.mono - 10.0 + number)
    refusals.add("node-0", "other-boot", "another boot: wait", fleet.mono - 2.0)
    service = replace(LEADER, refused=refusals.recent(fleet.mono))
    shown = fleet_status(fleet.planner, service, fleet.now)
    assert [(item.node, item.count, item.age) for item in shown.refused_messages] == [
        ("node-0", 2, 2.0),
        ("node-4", 1, 6.0),
        ("node-3", 1, 7.0),
    ]
    assert shown.refused_omitted == 2
    page = describe_node(fleet.planner, service, "node-0", fleet.now)
    assert page is not None
    assert page.refused_messages == shown.refused_messages[0]
    other = describe_node(fleet.planner, service, "node-7", fleet.now)
    assert other is not None
    assert other.refused_messages is None


def test_rejections_are_bounded() -> None:
    refusals = RejectedReports()
    for number in range(5000):
        refusals.add(f"node-{number}", "other-boot", "why: remedy", float(number) / 100.0)
    recent = refusals.recent(50.0)
    assert (len(recent), recent[0].node, recent[-1].node) == (4096, "node-4999", "node-904")
    assert refusals.counts == {"other-boot": 5000}


def test_a_right_that_the_api_server_refuses_is_shown() -> None:
    fleet = Fleet(3)
    reason = 'nodes "gpu-1" is forbidden: cannot patch resource "nodes/status"'
    service = replace(LEADER, refused_requests=(RefusedRequest("patch", "nodes/status", reason, 180.0),))
    view = fleet_status(fleet.planner, service, fleet.now)
    [refused] = view.refused_requests
    assert (refused.since, refused.age) == (rfc3339(fleet.now.wall - 180.0), 180.0)
    assert facts(status_view(view))["rights"] == f"cannot patch nodes/status, for 3 min: {reason}"


def test_a_refused_right_is_shown_once() -> None:
    fleet = Fleet(3)
    service = replace(
        LEADER,
        obstacle=Obstacle(
            "writes-refused", "the API server refuses writes of Nodes: forbidden", fleet.now.mono
        ),
        refused_requests=(RefusedRequest("patch", "nodes", "forbidden", 180.0),),
    )
    assert "rights" not in facts(status_view(fleet_status(fleet.planner, service, fleet.now)))


def test_a_history_and_a_state_that_are_not_written_are_shown() -> None:
    fleet = Fleet(3)
    problem = "No space left on device: make room there"
    service = replace(LEADER, history_problem=problem, state_problem=problem)
    view = fleet_status(fleet.planner, service, fleet.now)
    assert (view.history_problem, view.state_problem) == (problem, problem)
    shown = facts(status_view(view))
    assert (shown["history"], shown["state"]) == (f"not written: {problem}", f"not stored: {problem}")
