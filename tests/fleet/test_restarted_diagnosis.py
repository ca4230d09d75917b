"""Tests for nodeguard.fleet.planner: the diagnosis of an aggregator that has just started."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.node import Node
from nodeguard.model.policy import Mode
from nodeguard.wire.report import ReportedFinding
from tests.fleet.leaves import FIRST, domains, down, fails, faulty, fleet, wait, well
from tests.fleet.scene import Fleet, finding
from tests.fleet.test_restored_suppressions import POLICY, pass_time, restart

SPREAD = (0, 9, 17, 26, 34, 43)
FLAP: ReportedFinding = replace(down(), check="port-flap", health=Health.SUSPECT)
DOMAIN = "nodeguard.dev/domain-degraded=fabric"


def test_a_restored_domain_supersedes_no_older_mark() -> None:
    made = fleet(80, POLICY)
    made.report(0, FLAP)
    pass_time(made, 8_000.0, 100.0)
    fails(made, range(1, 8))
    wait(made, 120.0)
    before = made.taints(0)
    assert before == [DOMAIN, "nodeguard.dev/suspect=infiniband"]
    assert set(made.planner.diagnosis.degraded_domains) == {FIRST}
    restart(made)
    made.carry_out()
    assert made.taints(0) == before


def test_a_restart_while_a_check_fires_widely_does_not_delay_its_suppression() -> None:
    made = fleet(48, POLICY)
    for number in SPREAD:
        made.report(number, finding(age=0.0))
    wait(made, 5.0)
    restart(made)
    wait(made, 60.0)
    assert set(made.planner.diagnosis.suppressed_checks) == {"gpu-lost"}


def test_old_faults_that_new_agents_report_are_no_false_alarm() -> None:
    made = Fleet(0, POLICY)
    for number in range(48):
        labels = {"pod": f"p{number // 40}", "rack": f"r{number // 8}"}
        made.see(Node(f"node-{number}", f"uid-{number}", labels=labels, gpus=8))
        made.report(number, *([finding(age=5.0)] if number in SPREAD else []))
    wait(made, 120.0)
    assert not made.planner.diagnosis.suppressed_checks


@pytest.mark.parametrize("returns_healthy", [False, True])
def test_a_domain_without_marks_stays_degraded_until_its_nodes_report(returns_healthy: bool) -> None:
    made = faulty(
        120.0, policy=replace(POLICY, mode=Mode.OBSERVE, diagnosis=replace(POLICY.diagnosis, enforce=()))
    )
    assert (set(made.planner.diagnosis.degraded_domains), made.taints(0)) == ({FIRST}, [])
    silent = {f"uid-{number}" for number in range(8)}
    for uid in silent:
        del made.reports[uid]
    restart(made)
    pass_time(made, 4_000.0, 10.0, silent)
    assert set(made.planner.diagnosis.degraded_domains) == {FIRST}
    if returns_healthy:
        well(made)
    else:  # their Nodes are deleted
        for uid in silent:
            made.planner.remove_node(uid)
            made.nodes.pop(uid)
    pass_time(made, 8_000.0, 100.0)
    assert not made.planner.diagnosis.degraded_domains


def test_a_restart_does_not_delay_the_recovery_of_a_domain_without_marks() -> None:
    ends = []
    for is_restarted in (False, True):
        made = fleet(80, replace(POLICY, mode=Mode.OBSERVE, diagnosis=replace(POLICY.diagnosis, enforce=())))
        fails(made)
        wait(made, 120.0)
        well(made)
        pass_time(made, 1_000.0, 10.0)
        if is_restarted:
            reports, made.reports = made.reports, {}
            restart(made)
            made.after(10.0)
            made.carry_out()
            made.reports = reports
            for uid, report in reports.items():
                made.planner.record_report(uid, report, made.now)
        else:
            made.after(10.0)
        while made.planner.diagnosis.degraded_domains:
            made.after(10.0)
            made.carry_out()
        ends.append(made.mono)
    assert ends[1] - ends[0] <= 60.0


def test_a_restored_domain_explains_findings_that_seem_older_after_a_clock_jump() -> None:
    made = faulty(60.0, policy=POLICY)
    made.wall -= 3_600.0
    pass_time(made, 8_000.0, 100.0)
    assert made.taints(0) == [DOMAIN]
    restart(made)
    wait(made, 120.0)
    assert made.taints(0) == [DOMAIN]


def test_nodes_without_a_mark_that_stopped_with_the_domain_keep_it_degraded() -> None:
    made = fleet(80, POLICY)
    made.change(1, annotations={HOLD_ANNOTATION: "mine"})
    made.change(2, annotations={HOLD_ANNOTATION: "mine"})
    silent = {"uid-0", "uid-1", "uid-2"}
    made.after(60.0, quiet=silent)
    for number in range(3):
        made.change(number, ready=False, not_ready_since=made.wall)
    pass_time(made, 6_000.0, 10.0, silent)
    assert made.taints(0) == [DOMAIN]
    for uid in silent:
        del made.reports[uid]
    restart(made)
    pass_time(made, 6_000.0, 10.0, silent)
    assert made.taints(0) == [DOMAIN]


@pytest.mark.parametrize("seconds", [0.0, 240.0])
def test_a_recovered_domain_with_a_mark_that_cannot_be_removed_is_not_marked_again_after_a_restart(
    seconds: float,
) -> None:
    made = faulty()
    well(made)
    wait(made, 1_700.0)
    until = 0.0
    while made.planner.diagnosis.degraded_domains or made.mono < until:
        made.after(6.0)
        plan = made.issue()
        until = until or made.mono + seconds
        for node in plan.nodes:
            if node.uid == "uid-0":
                made.planner.record_failed(node.uid)
            else:
                made.mark(node)
    [domain] = domains(made)
    assert domain.state == IncidentState.RECOVERING
    made.restart()
    plan = made.plan()
    assert [node.uid for node in plan.nodes] == ["uid-0"]
    assert made.planner.diagnosis.degraded_domains == {}
    made.carry_out()
    assert made.marked() == []
    assert [incident.state for incident in domains(made)] == [IncidentState.RESOLVED]
