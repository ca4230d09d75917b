"""Tests for nodeguard.fleet.decide.domain_marks, in the plan of a fleet: from what nodes say to what Nodes
carry.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import DataStatus
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION, NodeMarks
from nodeguard.model.policy import GracePeriods, MarkWrites, TopologyLabels
from nodeguard.wire.report import Inventory, ReportedEvidence
from tests.fleet.leaves import ENFORCED, FIRST, LEAF, PORT, domains, down, fails, faulty, fleet, wait, well
from tests.fleet.scene import finding, in_order
from tests.policies import diagnosis_policy


def test_a_degraded_domain_has_one_incident_and_a_mark_on_every_member() -> None:
    made = faulty(numbers=range(7))
    assert made.marked() == list(range(LEAF))
    assert {tuple(made.taints(number)) for number in range(LEAF)} == {
        ("nodeguard.dev/domain-degraded=fabric",)
    }
    condition = made.nodes["uid-7"].condition
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "DomainDegraded")
    [domain] = domains(made)
    expected = (FIRST, IncidentState.MARKED, f"8 nodes of {FIRST}", "fabric")
    assert (domain.domain, domain.state, domain.scope, domain.fault_class) == expected
    evidence = f"{FIRST}: 7 of 8 nodes lost a link at once; the other 4 domains of fabric/p0 did not"
    assert domain.message == evidence
    assert domain.detail == "ends when fewer than 2 of its nodes show it for 30 min"
    assert [symptom.target for symptom in domain.symptoms][:2] == [f"node-0, {PORT}", f"node-1, {PORT}"]
    assert [incident.name for incident in made.planner.all_incidents()] == [domain.name]


def test_a_domain_mark_is_released_after_recovery() -> None:
    made = faulty()
    well(made)
    wait(made, 1_700.0)
    assert made.marked() == list(range(LEAF))
    wait(made, 200.0)
    assert made.marked() == []
    assert [incident.state for incident in domains(made)] == [IncidentState.RESOLVED]


def test_a_domain_mark_supersedes_node_marks_that_return_for_nodes_still_unhealthy() -> None:
    made = faulty(10.0, policy=replace(ENFORCED, grace=GracePeriods(0.0, 0.0, 0.0)), numbers=[0])
    assert made.taints(0) == ["nodeguard.dev/quarantine=infiniband"]
    fails(made, range(1, LEAF))
    made.after(5.0)
    made.carry_out()
    released = []
    for _ in range(6):
        made.after(5.0)
        for _ in range(3):
            plan = made.issue()
            released += [(uid, mark.reason) for uid, mark in plan.released]
            made.write(plan)
    assert {made.taints(number)[0] for number in range(LEAF)} == {"nodeguard.dev/domain-degraded=fabric"}
    assert ("uid-0", "superseded") in released
    [part] = made.planner.tracker.recorded.by_uid["uid-0"].values()
    [whole] = domains(made)
    expected = (IncidentState.OPEN, f"reported as {FIRST}, which is degraded", whole.name)
    assert (part.state, part.detail, part.parent) == expected
    well(made, range(1, LEAF))
    wait(made, 1_900.0)
    assert made.taints(0) == ["nodeguard.dev/quarantine=infiniband"]
    assert made.marked() == [0]


def test_a_domain_mark_that_the_plan_removes_supersedes_no_mark_of_its_node() -> None:
    made = faulty(10.0, policy=replace(ENFORCED, grace=GracePeriods(0.0, 0.0, 0.0)), numbers=[0])
    state = made.planner.state
    before = state.marks_in_effect("uid-0").node
    fails(made, range(1, LEAF))
    wait(made, 60.0)
    marked = state.marks_in_effect("uid-0").node
    both = NodeMarks(replace(marked, causes=before.causes, charge=before.charge))
    leaving = NodeMarks(replace(both.node, degraded=()))
    supersede = made.planner.domain_marks.supersede
    for planned, reasons in ((both, ["superseded"]), (leaving, [])):
        released = supersede(made.planner.policy, state, {"uid-0": planned}, made.now)
        assert [mark.reason for _, mark in released] == reasons


@pytest.mark.parametrize("driver", ["580.95.05", ""])
def test_nodes_that_show_the_fault_keep_the_mark_of_a_removed_topology(driver: str) -> None:
    made = fleet()
    inventory = Inventory(driver=driver)
    for number in range(80):
        made.report(number, inventory=inventory)
    made.after(5.0)
    made.carry_out()
    for number in range(7):
        made.report(number, down(), inventory=inventory)
    wait(made, 20.0)
    assert made.marked() == list(range(LEAF))
    other = (TopologyLabels("power", ("feed",)),)
    made.planner.set_policy(replace(made.planner.policy, topologies=other))
    wait(made, 10.0)
    assert made.marked() == list(range(7))
    assert made.taints(0) == ["nodeguard.dev/domain-degraded=fabric"]
    assert [incident.state for incident in domains(made)] == [IncidentState.MARKED]
    for number in range(7):
        made.report(number, proven=(in_order(), in_order(("port-down",), (PORT,))), inventory=inventory)
    wait(made, 1_900.0)
    assert made.marked() == []
    assert [incident.state for incident in domains(made)] == [IncidentState.RESOLVED]


def test_another_fault_of_a_node_stays_marked_in_a_degraded_domain() -> None:
    made = fleet()
    made.report(3, finding())
    wait(made, 70.0)
    assert made.taints(3) == ["nodeguard.dev/quarantine=gpu-bus"]
    for number in range(LEAF):
        made.report(number, down(), *([finding()] if number == 3 else []))
    wait(made, 20.0)
    assert made.taints(3) == ["nodeguard.dev/domain-degraded=fabric", "nodeguard.dev/quarantine=gpu-bus"]


def test_a_topology_that_is_not_enforced_marks_nothing() -> None:
    made = faulty(policy=replace(ENFORCED, diagnosis=diagnosis_policy()))
    assert made.marked() == []
    [incident] = domains(made)
    assert incident.state == IncidentState.DRY_RUN
    assert incident.detail.startswith(f"would keep new gang work off 8 nodes of {FIRST}")


def test_the_dry_run_of_a_domain_has_the_reason_that_would_withhold_its_mark() -> None:
    for size, budget, cause in (
        (24, "too small", "the domain has 8 nodes, and a single one may have 6"),
        (80, "paused", ""),
    ):
        made = fleet(size, policy=replace(ENFORCED, diagnosis=diagnosis_policy()))
        if budget == "paused":
            made.planner.paused = "paused by ann"
        fails(made)
        wait(made, 20.0)
        [incident] = domains(made)
        assert incident.state == IncidentState.DRY_RUN
        reason = f"budget of degraded domains too small: {cause}" if cause else "paused by ann"
        assert incident.detail.startswith(f"would not keep new gang work off 8 nodes of {FIRST}: {reason}; ")


def test_degraded_domains_have_their_own_budget() -> None:
    made = fleet(160)
    for leaf in (0, 6, 12, 18):
        fails(made, range(leaf * LEAF, leaf * LEAF + LEAF))
        wait(made, 60.0)
    degraded = [number for number in made.marked() if "domain-degraded" in made.taints(number)[0]]
    assert degraded == [*range(LEAF), *range(6 * LEAF, 7 * LEAF)]
    assert all("quarantine" in made.taints(12 * LEAF + number)[0] for number in range(LEAF))
    assert (
        sorted(incident.state for incident in domains(made))
        == [IncidentState.MARKED] * 2 + [IncidentState.WITHHELD] * 2
    )
    [reason, _] = [incident.detail for incident in domains(made, IncidentState.WITHHELD)]
    assert reason.startswith("budget of degraded domains has reached its limit: 2 of 2 new in 1 h; ends when")


def test_a_domain_with_most_of_the_fleet_is_not_marked() -> None:
    made = faulty(size=24)
    assert made.marked() == []
    [incident] = domains(made)
    assert incident.detail.startswith(
        "budget of degraded domains too small: the domain has 8 nodes, and a single one may have 6"
    )


def test_a_node_on_hold_is_not_marked_and_a_later_member_is() -> None:
    made = fleet()
    made.change(2, annotations={HOLD_ANNOTATION: "mine"})
    fails(made)
    wait(made, 20.0)
    assert made.marked() == [0, 1, 3, 4, 5, 6, 7]
    made.add(100, labels={"pod": "p0", "rack": "r0"})
    wait(made, 5.0)
    assert 100 in made.marked()


def test_a_mark_on_a_held_node_waits_for_the_hold_also_after_the_recovery() -> None:
    made = faulty()
    made.change(0, annotations={**made.nodes["uid-0"].annotations, HOLD_ANNOTATION: "mine"})
    for is_degraded in (True, False):
        [mark] = made.planner.releases.active_marks("uid-0")
        assert mark.wait.message == "the hold to end (mine); until then nothing is changed here", is_degraded
        well(made)
        wait(made, 2_000.0)
    assert made.marked() == [0]


def test_a_new_aggregator_keeps_a_domain_mark() -> None:
    made = faulty()
    before = {uid: node.annotations for uid, node in made.nodes.items()}
    made.restart()
    wait(made, 60.0)
    assert {uid: node.annotations for uid, node in made.nodes.items()} == before
    assert len(domains(made, IncidentState.MARKED)) == 1
    well(made)
    wait(made, 1_900.0)
    assert made.marked() == []


def test_a_suppressed_check_releases_marks_that_no_other_source_confirms() -> None:
    made = fleet(120)
    wait(made, 700.0)
    for number in (0, 9, 17, 25):
        made.report(number, finding(age=0.0))
        wait(made, 5.0)
    assert made.marked() == [0, 9, 17, 25]
    made.report(
        25,
        finding(age=5.0),
        finding("gpu-ecc", age=5.0, evidence=(ReportedEvidence("kernel log", "Xid 48"),)),
    )
    for number in (41, 49, 57, 65, 73, 81, 89, 97, 98, 99):
        made.report(number, finding(age=0.0))
    wait(made, 30.0)
    assert made.marked() == [25]
    [domain] = domains(made)
    assert (domain.cause, domain.state, domain.target) == ("gpu-lost", IncidentState.OPEN, "check/gpu-lost")
    assert domain.message.startswith(
        "check gpu-lost is suppressed: it fires on 14 nodes that no failure domain explains; up to 4 "
        "within 10 min"
    )
    [state] = {incident.detail for incident in made.planner.tracker.recorded.by_uid["uid-41"].values()}
    assert state == "check gpu-lost is suppressed: see nodeguard status"
    incidents = made.planner.tracker.recorded.by_uid[""].values()
    made.restart(incidents=incidents)
    wait(made, 5.0)
    assert made.marked() == [25]


def test_an_operator_clears_a_degraded_domain() -> None:
    made = faulty()
    well(made)
    [incident] = domains(made)
    made.planner.clear(incident, made.now)
    made.carry_out()
    assert made.marked() == []


def test_a_cleared_domain_explains_no_node() -> None:
    made = faulty()
    [incident] = domains(made)
    explained = "uid-0", "port-down", made.now.wall, made.now
    assert made.planner.parent_incident(*explained) == incident
    made.planner.clear(incident, made.now)
    assert made.planner.parent_incident(*explained) is None


def test_an_earlier_fault_stays_marked_when_its_leaf_is_degraded() -> None:
    made = faulty(660.0, numbers=[0])
    for number in range(1, LEAF):
        made.report(number, down())
    made.report(0, down(age=660.0))
    wait(made, 60.0)
    marks = ["nodeguard.dev/domain-degraded=fabric", "nodeguard.dev/quarantine=infiniband"]
    assert made.taints(0) == marks
    writes = 0
    for _ in range(60):
        made.after(5.0)
        plan = made.carry_out()
        writes += len(plan.nodes)
    assert (made.taints(0), writes) == (marks, 0)


def test_a_stale_finding_is_not_new_when_it_is_fresh_again() -> None:
    made = fleet(160)
    wait(made, 700.0)
    unhealthy = range(0, 160, 20)
    for number in unhealthy:
        made.report(number, finding(age=0.0))
        wait(made, 900.0)
    marked = made.marked()
    wait(made, 7_200.0)
    for number in unhealthy:
        age = made.wall - made.planner.reports[f"uid-{number}"].began[0]
        made.report(number, finding(age=age, data_status=DataStatus.STALE))
    wait(made, 30.0)
    for number in unhealthy:
        made.report(number, finding(age=7_300.0))
    wait(made, 30.0)
    assert (made.marked(), dict(made.planner.diagnosis.suppressed_checks)) == (marked, {})
    assert len(marked) == 8


def test_a_late_restart_marks_no_single_node() -> None:
    made = fleet()
    fails(made)
    wait(made, 1_500.0)
    incidents = made.planner.tracker.recorded.by_uid[""].values()
    made.reports = {
        uid: replace(report, findings=tuple(replace(finding, age=1_500.0) for finding in report.findings))
        for uid, report in made.reports.items()
    }
    made.restart(incidents=incidents)
    wait(made, 300.0)
    assert {tuple(made.taints(number)) for number in range(LEAF)} == {
        ("nodeguard.dev/domain-degraded=fabric",)
    }
    well(made)
    wait(made, 2_000.0)
    assert made.marked() == []
    assert {incident.state for incident in domains(made)} == {IncidentState.RESOLVED}


def test_a_change_of_policy_keeps_degraded_domains_and_suppressed_checks() -> None:
    made = fleet(120)
    wait(made, 700.0)
    for number in (0, 9, 41, 49, 89, 97):
        made.report(number, finding(age=0.0))
    fails(made, range(16, 24))
    wait(made, 30.0)
    before = (
        made.marked(),
        set(made.planner.diagnosis.suppressed_checks),
        set(made.planner.diagnosis.degraded_domains),
    )
    for diagnosis in (
        diagnosis_policy(enforce=("fabric", "rack")),
        diagnosis_policy(enforce=("fabric",), max_daily_onsets=5),
    ):
        made.planner.set_policy(replace(ENFORCED, diagnosis=diagnosis))
        wait(made, 30.0)
        assert (
            made.marked(), set(made.planner.diagnosis.suppressed_checks), set(made.planner.diagnosis.degraded_domains)
        ) == before  # fmt: skip
    assert before[1:] == ({"gpu-lost"}, {"fabric/p0/r2"})


def test_a_node_votes_again_after_a_short_cordon() -> None:
    made = faulty()
    for number in range(LEAF):
        made.change(number, unschedulable=True)
    wait(made, 30.0)
    for number in range(LEAF):
        made.change(number, unschedulable=False)
    wait(made, 2_400.0)
    assert [incident.state for incident in domains(made)] == [IncidentState.MARKED]


def test_a_domain_that_grows_stays_within_its_budget() -> None:
    made = faulty(size=160)
    for number in range(LEAF, 160):
        made.change(number, labels={"pod": "p0", "rack": "r0"})
    wait(made, 30.0)
    assert made.marked() == list(range(LEAF))


def test_a_renamed_domain_stays_degraded() -> None:
    made = faulty()
    for number in range(LEAF):
        made.change(number, labels={"pod": "p0", "rack": "renamed"})
    wait(made, 60.0)
    assert {tuple(made.taints(number)) for number in range(LEAF)} == {
        ("nodeguard.dev/domain-degraded=fabric",)
    }


def test_events_report_changed_reasons_and_no_changed_numbers_while_agents_become_stale() -> None:
    made = fleet(160)
    for number in range(100, 140):
        made.reports.pop(f"uid-{number}")
    wait(made, 60.0)
    fails(made)
    events = 0
    for number in range(60, 90):
        made.reports.pop(f"uid-{number}", None)
        made.after(5.0)
        plan = made.plan()
        events += sum(1 for event in plan.events if event.incident.startswith("fabric-p0-r0"))
    # Domains that fall silent as a whole explain enough now and then, so that it is no freeze for a while.
    assert events <= 6


def test_a_domain_mark_without_a_taint_replaces_no_cordon() -> None:
    writes = MarkWrites(taint=False, cordon=True)
    made = faulty(
        10.0, policy=replace(ENFORCED, grace=GracePeriods(0.0, 0.0, 0.0), marks=writes), numbers=[0]
    )
    assert made.nodes["uid-0"].unschedulable
    fails(made, range(1, LEAF))
    wait(made, 60.0)
    [domain] = domains(made)
    assert (domain.state, domain.write) == (IncidentState.WITHHELD, None)
    assert [made.nodes[f"uid-{number}"].unschedulable for number in range(LEAF)] == [True] * LEAF
    [cause] = made.planner.state.marks_in_effect("uid-0").node.causes
    assert cause.check == "port-down"
