from __future__ import annotations

from msgspec.structs import astuple, replace

from nodeguard.backtest.finding_episodes import EpisodeEnd
from nodeguard.backtest.policy_result import WithheldReason
from nodeguard.fleet.policy_rules import UPGRADE_LABELS
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.policy import Budget, CheckLimit, GracePeriods, Hold, Mode, Policy
from nodeguard.wire.report import Inventory, ReportedComponent
from tests.backtest.scene import FREE, START, FleetHistory, shown
from tests.fleet.scene import WIDE, finding

TWO = replace(FREE, budget=replace(WIDE, check=CheckLimit(2, 600.0, 100)))


def test_a_mark_is_set_after_the_grace_period_and_released_after_the_soak_period() -> None:
    history = FleetHistory()
    history.fault(100.0, 1)
    history.report(400.0, 1)
    history.fault(3000.0, 2, health=Health.SUSPECT)
    result = history.result(until=5000.0)
    assert shown(result.marks) == [("node-1", 105, 1001, "proven"), ("node-2", 3060, None, "open")]
    assert (result.nodes, result.max_marked, round(result.seconds)) == (2, 1, 896 + 1940)


def test_a_soak_is_longer_when_a_fault_comes_back() -> None:
    history = FleetHistory()
    for at in (100.0, 2000.0):
        history.fault(at, 1)
        history.report(at + 100.0, 1)
    result = history.result(until=9000.0)
    assert shown(result.marks) == [("node-1", 105, 801, "proven"), ("node-1", 2005, 3301, "proven")]
    assert [
        (mark.followup.finding_end, mark.followup.brief, mark.followup.recurred) for mark in result.marks
    ] == [(EpisodeEnd.RESOLVED, True, True), (EpisodeEnd.RESOLVED, True, False)]


def test_a_mark_is_withheld_until_the_budget_allows_it() -> None:
    history = FleetHistory()
    for number in range(4):
        history.fault(100.0, number)
    history.report(300.0, 3)
    result = history.result(TWO, until=2000.0)
    expected = [("node-0", 105, None, "open"), ("node-1", 105, None, "open"), ("node-2", 705, None, "open")]
    assert shown(result.marks) == expected
    assert shown(result.marks, IncidentState.WITHHELD) == [
        ("node-2", 105, 705, "marked"),
        ("node-3", 105, 301, "finding-ended"),
    ]
    assert result.reasons == (
        WithheldReason("budget of check gpu-lost has reached its limit: 2 of 2 new marks in 10 min", 2),
    )
    [check] = result.checks
    assert (check.marked, check.withheld, check.spared, check.missed) == (3, 2, 1, 0)


def test_the_budget_of_a_domain_rests_on_labels() -> None:
    policy = replace(FREE, budget=replace(WIDE, domain=0.25))
    history = FleetHistory(0)
    for number in range(8):
        history.see(0.0, number, labels={"network.topology.nvidia.com/leaf": "l1"})
        history.report(0.0, number)
        history.fault(100.0, number)
    result = history.result(policy, until=1000.0)
    assert len(shown(result.marks)) == 2
    assert result.reasons == (
        WithheldReason("budget of fabric/l1 has reached its limit: 2 of 2 nodes marked", 6),
    )


def test_findings_that_end_in_their_grace_period_are_counted_separately() -> None:
    history = FleetHistory()
    history.fault(100.0, 1)
    history.report(102.0, 1)
    history.fault(200.0, 2, health=Health.SUSPECT)
    history.report(230.0, 2)
    history.fault(300.0, 3)
    result = history.result(until=1000.0)
    assert shown(result.marks) == [("node-3", 305, None, "open")]
    assert [check.ended_in_grace for check in result.checks] == [2]


def test_observe_mode_reports_findings_and_marks_nothing() -> None:
    history = FleetHistory()
    history.fault(100.0, 1)
    history.report(400.0, 1)
    result = history.result(Policy(), until=5000.0)
    assert shown(result.marks) == []
    assert shown(result.marks, IncidentState.DRY_RUN) == [("node-1", 105, 401, "finding-ended")]
    assert result.marks[0].followup.brief


def test_an_escalated_finding_is_reported() -> None:
    history = FleetHistory()
    history.fault(100.0, 1, "gpu-hot", health=Health.SUSPECT)
    history.report(500.0, 1, finding("gpu-hot", age=0.0, health=Health.SUSPECT), finding("gpu-lost", age=0.0))
    history.fault(100.0, 2, "gpu-hot", health=Health.SUSPECT)
    result = history.result(until=1000.0)
    expected = [("node-1", "gpu-hot", True), ("node-2", "gpu-hot", False), ("node-1", "gpu-lost", False)]
    assert [(mark.node, mark.check, mark.followup.escalated) for mark in result.marks] == expected


def test_a_reboot_or_another_component_ends_a_finding_with_its_own_reason() -> None:
    history = FleetHistory()
    history.fault(100.0, 1)
    history.report(200.0, 1, boot_id="b2")
    first, second = (
        Inventory(components={"gpu/0000:3b:00": ReportedComponent(name)}) for name in ("GPU-1", "GPU-2")
    )
    history.report(90.0, 2, inventory=first)
    history.fault(100.0, 2, "gpu-ecc")
    history.change_last(inventory=first)
    history.report(200.0, 2, inventory=second)
    result = history.result(until=400.0)
    assert {mark.node: (mark.followup.finding_end, mark.followup.brief) for mark in result.marks} == {
        "node-1": (EpisodeEnd.REBOOT, False),
        "node-2": (EpisodeEnd.COMPONENT_REPLACED, False),
    }


def test_holds_maintenance_and_operators_cordons_count() -> None:
    history = FleetHistory()
    history.see(50.0, 1, annotations={HOLD_ANNOTATION: "alice debugs it"})
    history.see(50.0, 2, labels={UPGRADE_LABELS[0]: "drain-required"})
    for number in (1, 2, 3):
        history.fault(100.0, number)
    history.see(500.0, 2)
    policy = replace(FREE, holds=(Hold(node="node-3", reason="login"),))
    result = history.result(policy, until=1000.0)
    assert shown(result.marks) == [("node-2", 501, None, "open")]
    assert dict(map(astuple, result.reasons)) == {
        "the node is on hold: alice debugs it": 1,
        f"the node is under maintenance: {UPGRADE_LABELS[0]} is drain-required": 1,
        "the node is on hold: login": 1,
    }


def test_a_stale_node_is_not_marked_and_keeps_its_mark() -> None:
    history = FleetHistory(30)
    history.fault(100.0, 1)
    history.quiet(200.0, 1, silent=True)
    history.fault(300.0, 2, health=Health.SUSPECT)
    history.quiet(310.0, 2, silent=True)
    history.quiet(1000.0, 2, silent=False)
    result = history.result(until=2000.0)
    assert shown(result.marks) == [("node-1", 105, None, "open"), ("node-2", 1001, None, "open")]
    assert dict(map(astuple, result.reasons)) == {"the node's agent no longer reports": 1}


def test_many_stale_agents_freeze_new_marks() -> None:
    history = FleetHistory(20)
    for number in range(10, 15):
        history.quiet(200.0, number, silent=True)
    history.fault(300.0, 1)
    result = history.result(until=1000.0)
    assert shown(result.marks) == []
    assert result.reasons[0].reason == "too many agents do not report: see nodeguard status"


def test_a_deleted_node_loses_its_marks() -> None:
    history = FleetHistory()
    history.fault(100.0, 1)
    history.gone(500.0, 1)
    history.fault(100.0, 2)
    result = history.result(replace(TWO, budget=replace(WIDE, check=CheckLimit(1, 600.0, 100))), until=600.0)
    assert shown(result.marks) == [("node-1", 105, 500, "node-deleted"), ("node-2", 501, None, "open")]


def test_a_replayed_late_report_counts_after_a_heartbeat() -> None:
    history = FleetHistory()
    history.fault(100.0, 1, age=0.0)
    history.change_last(age=50.0)
    assert shown(history.result(until=300.0).marks) == [("node-1", 110, None, "open")]


def test_an_agent_with_a_late_report_is_not_stale_afterwards() -> None:
    slow = replace(FREE, grace=GracePeriods(300.0, 300.0, 300.0))
    fault = FleetHistory()
    fault.fault(100.0, 1, age=0.0)
    fault.change_last(age=50.0)
    assert shown(fault.result(slow, until=3_000.0).marks) == [("node-1", 350, None, "open")]

    recovery = FleetHistory()
    recovery.fault(100.0, 1)
    recovery.report(300.0, 1)
    recovery.change_last(age=50.0)
    assert shown(recovery.result(until=9_000.0).marks) == [("node-1", 105, 910, "proven")]


def test_many_late_reports_freeze_no_mark() -> None:
    history = FleetHistory(20)
    for number in range(10):
        history.report(300.0, number)
        history.change_last(age=50.0)
    history.fault(600.0, 15)
    assert shown(history.result(until=9_000.0).marks) == [("node-15", 605, None, "open")]


def test_a_stale_agent_is_not_fresh_because_of_its_late_report() -> None:
    history = FleetHistory()
    history.fault(100.0, 1, age=0.0)
    history.change_last(age=50.0)
    history.quiet(101.0, 1, silent=True)
    assert shown(history.result(until=3_000.0).marks) == []


def test_a_mark_with_nodeguards_cordon_is_released() -> None:
    history = FleetHistory()
    history.fault(100.0, 1)
    history.see(200.0, 1, labels={"rack": "r7"})
    history.report(300.0, 1)
    policy = replace(FREE, marks=replace(FREE.marks, cordon=True))
    assert shown(history.result(policy, until=2000.0).marks) == [("node-1", 105, 901, "proven")]


def test_marks_before_the_period_are_left_out_and_affect_later_ones() -> None:
    history = FleetHistory()
    for at in (100.0, 5000.0):
        history.fault(at, 1)
        history.report(at + 100.0, 1)
    tested = history.run(FREE, since=4000.0, until=9000.0)
    [result] = tested.results
    assert shown(result.marks) == [("node-1", 5005, 6301, "proven")]
    expected = (2, 14, 10, START + 5100.0)
    assert (tested.recent_reports, tested.reports, tested.nodes, tested.last_step) == expected


def test_an_empty_history_gives_an_empty_result() -> None:
    tested = FleetHistory(0).run(FREE)
    assert (tested.reports, tested.results[0].marks) == (0, ())


def test_released_budget_is_used_again() -> None:
    history = FleetHistory()
    history.fault(100.0, 1)
    history.fault(110.0, 2)
    history.report(700.0, 1)
    policy = replace(
        FREE, budget=Budget(fleet=0.1, reserve=0.0, pool=1.0, domain=1.0, check=CheckLimit(new=9))
    )
    result = history.result(replace(policy, mode=Mode.ENFORCE), until=3000.0)
    assert shown(result.marks) == [("node-1", 105, 1301, "proven"), ("node-2", 1301, None, "open")]
