from __future__ import annotations

from msgspec.structs import replace

from nodeguard.backtest.finding_episodes import EpisodeEnd
from nodeguard.fleet.policy_rules import UPGRADE_LABELS
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.policy import Budget, CheckLimit, Hold, Mode, Policy
from nodeguard.wire.report import Inventory, ReportedComponent
from tests.backtest.scene import FREE, START, Told, shown
from tests.fleet.scene import WIDE, finding

TWO = replace(FREE, budget=replace(WIDE, check=CheckLimit(("*",), 2, 600.0, 100)))


def test_a_fault_is_marked_when_it_settles_and_given_back_after_its_soak() -> None:
    told = Told()
    told.sick(100.0, 1)
    told.say(400.0, 1)
    told.sick(3000.0, 2, health=Health.SUSPECT)
    account = told.account(until=5000.0)
    assert shown(account.marks) == [("node-1", 105, 1001, "proven"), ("node-2", 3060, None, "open")]
    assert (account.nodes, account.max_marked, round(account.seconds)) == (2, 1, 896 + 1940)


def test_a_soak_is_longer_when_a_fault_comes_back() -> None:
    told = Told()
    for at in (100.0, 2000.0):
        told.sick(at, 1)
        told.say(at + 100.0, 1)
    account = told.account(until=9000.0)
    assert shown(account.marks) == [("node-1", 105, 801, "proven"), ("node-1", 2005, 3301, "proven")]
    assert [
        (one.followup.finding_end, one.followup.brief, one.followup.recurred) for one in account.marks
    ] == [
        (EpisodeEnd.RESOLVED, True, True),
        (EpisodeEnd.RESOLVED, True, False),
    ]


def test_what_the_budget_forbids_is_withheld_until_it_allows() -> None:
    told = Told()
    for number in range(4):
        told.sick(100.0, number)
    told.say(300.0, 3)
    account = told.account(TWO, until=2000.0)
    assert shown(account.marks) == [
        ("node-0", 105, None, "open"),
        ("node-1", 105, None, "open"),
        ("node-2", 705, None, "open"),
    ]
    assert shown(account.marks, IncidentState.WITHHELD) == [
        ("node-2", 105, 705, "marked"),
        ("node-3", 105, 301, "over"),
    ]
    assert account.reasons == (("budget of check gpu-lost used up: 2 of 2 new marks in 10 min", 2),)
    [check] = account.checks
    assert (check.marked, check.withheld, check.spared, check.missed) == (3, 2, 1, 0)


def test_the_budget_of_a_domain_rests_on_labels() -> None:
    policy = replace(FREE, budget=replace(WIDE, domain=0.25))
    told = Told(0)
    for number in range(8):
        told.see(0.0, number, labels={"network.topology.nvidia.com/leaf": "l1"})
        told.say(0.0, number)
        told.sick(100.0, number)
    account = told.account(policy, until=1000.0)
    assert len(shown(account.marks)) == 2
    assert account.reasons == (("budget of fabric/l1 used up: 2 of 2 nodes marked", 6),)


def test_what_is_over_before_it_settles_is_counted_alone() -> None:
    told = Told()
    told.sick(100.0, 1)
    told.say(102.0, 1)
    told.sick(200.0, 2, health=Health.SUSPECT)
    told.say(230.0, 2)
    told.sick(300.0, 3)
    account = told.account(until=1000.0)
    assert shown(account.marks) == [("node-3", 305, None, "open")]
    assert [one.ended_in_grace for one in account.checks] == [2]


def test_observed_findings_are_told_of_and_nothing_is_marked() -> None:
    told = Told()
    told.sick(100.0, 1)
    told.say(400.0, 1)
    account = told.account(Policy(), until=5000.0)
    assert shown(account.marks) == []
    assert shown(account.marks, IncidentState.DRY_RUN) == [("node-1", 105, 401, "over")]
    assert account.marks[0].followup.brief


def test_what_gets_worse_is_told() -> None:
    told = Told()
    told.sick(100.0, 1, "gpu-hot", health=Health.SUSPECT)
    told.say(500.0, 1, finding("gpu-hot", age=0.0, health=Health.SUSPECT), finding("gpu-lost", age=0.0))
    told.sick(100.0, 2, "gpu-hot", health=Health.SUSPECT)
    account = told.account(until=1000.0)
    assert [(one.request.node, one.request.check, one.followup.escalated) for one in account.marks] == [
        ("node-1", "gpu-hot", True),
        ("node-2", "gpu-hot", False),
        ("node-1", "gpu-lost", False),
    ]


def test_a_reboot_and_another_part_are_no_end_by_itself() -> None:
    told = Told()
    told.sick(100.0, 1)
    told.say(200.0, 1, boot_id="b2")
    one, two = (
        Inventory(components={"gpu/0000:3b:00": ReportedComponent(name)}) for name in ("GPU-1", "GPU-2")
    )
    told.say(90.0, 2, inventory=one)
    told.sick(100.0, 2, "gpu-ecc")
    told.steps[-1] = replace(told.steps[-1], report=replace(told.steps[-1].report, inventory=one))  # type: ignore[union-attr]
    told.say(200.0, 2, inventory=two)
    account = told.account(until=400.0)
    assert {one.request.node: (one.followup.finding_end, one.followup.brief) for one in account.marks} == {
        "node-1": (EpisodeEnd.REBOOT, False),
        "node-2": (EpisodeEnd.COMPONENT_REPLACED, False),
    }


def test_holds_maintenance_and_cordons_of_people_count() -> None:
    told = Told()
    told.see(50.0, 1, annotations={HOLD_ANNOTATION: "alice debugs it"})
    told.see(50.0, 2, labels={UPGRADE_LABELS[0]: "drain-required"})
    for number in (1, 2, 3):
        told.sick(100.0, number)
    told.see(500.0, 2)
    policy = replace(FREE, holds=(Hold(node="node-3", reason="login"),))
    account = told.account(policy, until=1000.0)
    assert shown(account.marks) == [("node-2", 501, None, "open")]
    assert dict(account.reasons) == {
        "hold on the node: alice debugs it": 1,
        f"the node is under maintenance: {UPGRADE_LABELS[0]} is drain-required": 1,
        "hold on the node: login": 1,
    }


def test_a_silent_node_is_not_marked_and_keeps_its_mark() -> None:
    told = Told(30)
    told.sick(100.0, 1)
    told.quiet(200.0, 1, silent=True)
    told.sick(300.0, 2, health=Health.SUSPECT)
    told.quiet(310.0, 2, silent=True)
    told.quiet(1000.0, 2, silent=False)
    account = told.account(until=2000.0)
    assert shown(account.marks) == [("node-1", 105, None, "open"), ("node-2", 1001, None, "open")]
    assert dict(account.reasons) == {"the node's agent is stale": 1}


def test_a_fleet_that_falls_silent_freezes_new_marks() -> None:
    told = Told(20)
    for number in range(10, 15):
        told.quiet(200.0, number, silent=True)
    told.sick(300.0, 1)
    account = told.account(until=1000.0)
    assert shown(account.marks) == []
    assert account.reasons[0][0] == "too many agents are silent: see nodeguard status"


def test_a_node_that_is_gone_takes_its_marks_along() -> None:
    told = Told()
    told.sick(100.0, 1)
    told.gone(500.0, 1)
    told.sick(100.0, 2)
    account = told.account(
        replace(TWO, budget=replace(WIDE, check=CheckLimit(("*",), 1, 600.0, 100))), until=600.0
    )
    assert shown(account.marks) == [("node-1", 105, 500, "left"), ("node-2", 501, None, "open")]


def test_what_came_late_counts_when_a_heartbeat_confirms_it() -> None:
    told = Told()
    told.sick(100.0, 1, age=0.0)
    told.steps[-1] = replace(told.steps[-1], report=replace(told.steps[-1].report, age=50.0))  # type: ignore[union-attr]
    assert shown(told.account(until=300.0).marks) == [("node-1", 110, None, "open")]


def test_a_mark_goes_with_nodeguards_own_cordon() -> None:
    told = Told()
    told.sick(100.0, 1)
    told.see(200.0, 1, labels={"rack": "r7"})
    told.say(300.0, 1)
    policy = replace(FREE, marks=replace(FREE.marks, cordon=True))
    assert shown(told.account(policy, until=2000.0).marks) == [("node-1", 105, 901, "proven")]


def test_what_was_over_before_the_time_looked_at_is_left_out_and_shapes_what_follows() -> None:
    told = Told()
    for at in (100.0, 5000.0):
        told.sick(at, 1)
        told.say(at + 100.0, 1)
    tested = told.tested(FREE, since=4000.0, until=9000.0)
    [account] = tested.results
    assert shown(account.marks) == [("node-1", 5005, 6301, "proven")]
    assert (tested.recent_reports, tested.reports, tested.nodes, tested.last_step) == (
        2,
        14,
        10,
        START + 5100.0,
    )


def test_nothing_told_comes_to_nothing() -> None:
    tested = Told(0).tested(FREE)
    assert (tested.reports, tested.results[0].marks) == (0, ())


def test_a_standing_budget_is_spent_again_once_it_is_free() -> None:
    told = Told()
    told.sick(100.0, 1)
    told.sick(110.0, 2)
    told.say(700.0, 1)
    policy = replace(
        FREE, budget=Budget(fleet=0.1, reserve=0.0, pool=1.0, domain=1.0, check=CheckLimit(new=9))
    )
    account = told.account(replace(policy, mode=Mode.ENFORCE), until=3000.0)
    assert shown(account.marks) == [("node-1", 105, 1301, "proven"), ("node-2", 1301, None, "open")]
