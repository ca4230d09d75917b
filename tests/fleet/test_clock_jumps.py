"""Tests for nodeguard.fleet.planner: jumps of the aggregator's wall clock change no decision."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.policy import CheckLimit, GracePeriods, SoakPeriod
from nodeguard.wire.report import ReportedEvidence
from tests.fleet.leaves import ENFORCED, FIRST, LEAF, down, fails, faulty, fleet, wait
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding
from tests.policies import diagnosis_policy

HOUR, DAY = 3_600.0, 86_400.0
JUMPS = (-DAY, -HOUR, HOUR, DAY)


def jump(made: Fleet, seconds: float) -> None:
    made.wall += seconds
    made.after(1.0)
    made.carry_out()


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_grace_period_neither_ends_earlier_nor_later(seconds: float) -> None:
    made = Fleet(4, replace(AT_ONCE, grace=GracePeriods(60.0, 60.0, 60.0)))
    made.report(0, finding(age=0.0))
    made.carry_out()
    jump(made, seconds)
    made.after(50.0)
    made.carry_out()
    assert made.marked() == []
    made.after(10.0)
    made.carry_out()
    assert made.marked() == [0]


SOAK = SoakPeriod(60.0, 3_600.0, DAY)


@pytest.mark.parametrize("seconds", [*JUMPS, 2 * DAY])
def test_the_soak_period_of_a_fault_that_returns_is_as_long(seconds: float) -> None:
    made, soaks = Fleet(4, replace(AT_ONCE, soak=SOAK)), []
    for _ in range(3):
        made.report(0, finding(age=0.0))
        made.carry_out()
        made.report(0)
        made.carry_out()
        soaks.append(0.0)
        while made.marked():
            made.after(10.0)
            made.carry_out()
            soaks[-1] += 10.0
        jump(made, seconds)
    assert soaks == [60.0, 120.0, 240.0]


@pytest.mark.parametrize("seconds", [0.0, -HOUR, HOUR, DAY])
def test_a_past_mark_is_forgotten_after_the_reset_time_that_has_passed(seconds: float) -> None:
    made = Fleet(4, replace(AT_ONCE, soak=SOAK))
    made.report(0, finding(age=0.0))
    made.carry_out()
    made.report(0)
    for _ in range(2):
        made.carry_out()
        made.after(61.0)
    jump(made, seconds)
    past_charges = [made.planner.state.marks.latest("uid-0").node.past_charges]
    for wait_seconds in (DAY - HOUR, 2 * HOUR):
        made.after(wait_seconds)
        made.carry_out()
        past_charges.append(made.planner.state.marks.latest("uid-0").node.past_charges)
    assert list(map(len, past_charges)) == [1, 1, 0]


TWO_NEW = replace(AT_ONCE, budget=replace(WIDE, check=CheckLimit(2, 600.0, 15)))


@pytest.mark.parametrize("seconds", [*JUMPS, -120.0, 120.0])
def test_the_budget_of_a_check_is_not_renewed(seconds: float) -> None:
    made = Fleet(40, TWO_NEW)
    made.report(0, finding())
    made.report(1, finding())
    made.carry_out()
    made.after(30.0)
    jump(made, seconds)
    made.report(2, finding())
    made.carry_out()
    made.after(500.0)
    made.carry_out()
    assert made.marked() == [0, 1]
    made.after(200.0)
    made.carry_out()
    assert made.marked() == [0, 1, 2]


@pytest.mark.parametrize("seconds", [-300.0, 300.0])
def test_the_marks_of_an_aggregator_with_another_clock_count_in_the_budget(seconds: float) -> None:
    made = Fleet(40, TWO_NEW)
    made.report(0, finding())
    made.report(1, finding())
    made.carry_out()
    made.wall += seconds
    made.restart()
    made.report(2, finding())
    made.carry_out()
    assert made.marked() == [0, 1]


@pytest.mark.parametrize("seconds", JUMPS)
def test_the_budget_of_new_domains_is_not_renewed(seconds: float) -> None:
    one_new = replace(ENFORCED.budget, degraded=1.0, first=1.0, domains=1)
    made = faulty(120.0, size=96, policy=replace(ENFORCED, budget=one_new))
    jump(made, seconds)
    fails(made, range(2 * LEAF, 3 * LEAF))
    wait(made, 120.0)
    assert len(made.planner.diagnosis.degraded_domains) == 2
    domain = "nodeguard.dev/domain-degraded=fabric"
    assert [number for number in range(96) if domain in made.taints(number)] == [*range(LEAF)]


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_domain_with_warnings_of_the_past_recovers(seconds: float) -> None:
    made = fleet()
    lost = replace(
        down(), check="port-link-downed", health=Health.WARNING,
        evidence=(ReportedEvidence("infiniband", "port.link_downed rose by 1 to 1"),),
    )  # fmt: skip
    for number in range(LEAF):
        made.report(number, lost)
    wait(made, 30.0)
    assert set(made.planner.diagnosis.degraded_domains) == {FIRST}
    jump(made, seconds)
    wait(made, 600.0)
    assert made.planner.diagnosis.degraded_domains
    wait(made, 1_500.0)
    assert not made.planner.diagnosis.degraded_domains


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_degraded_domain_explains_the_findings_of_its_nodes(seconds: float) -> None:
    made = faulty(120.0)
    before = made.taints(0)
    assert before == ["nodeguard.dev/domain-degraded=fabric"]
    jump(made, seconds)
    wait(made, 120.0)
    assert {tuple(made.taints(number)) for number in range(LEAF)} == {tuple(before)}


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_false_alarm_retracts_no_mark_from_before(seconds: float) -> None:
    made = fleet(48, replace(ENFORCED, diagnosis=diagnosis_policy()))
    wait(made, 1_500.0)
    made.report(0, finding(age=0.0))
    wait(made, 5.0)
    assert made.marked() == [0]
    wait(made, 1_500.0)
    jump(made, seconds)
    for number in range(1, 48, 4):
        made.report(number, finding(age=0.0))
    wait(made, 60.0)
    assert made.planner.diagnosis.suppressed_checks["gpu-lost"].retracts
    assert made.marked() == [0]


@pytest.mark.parametrize("seconds", JUMPS)
def test_after_a_restart_a_degraded_domain_supersedes_no_older_mark(seconds: float) -> None:
    made = fleet()
    fails(made, [LEAF - 1])
    wait(made, 1_500.0)
    fails(made, range(LEAF - 1))
    wait(made, 120.0)
    before = made.taints(LEAF - 1)
    assert before == ["nodeguard.dev/domain-degraded=fabric", "nodeguard.dev/quarantine=infiniband"]
    jump(made, seconds)
    incidents = made.planner.all_incidents()
    made.report(LEAF - 1, down(age=1_621.0))
    made.restart(incidents=incidents)
    wait(made, 120.0)
    assert made.taints(LEAF - 1) == before


def resolved(made: Fleet) -> None:
    made.report(0, finding(age=0.0))
    made.carry_out()
    made.report(0)
    made.carry_out()
    assert [incident.is_open for incident in made.planner.all_incidents()] == [False]


@pytest.mark.parametrize("seconds", [0.0, *JUMPS, 2 * DAY])
def test_a_resolved_incident_is_remembered_for_a_day_that_has_passed(seconds: float) -> None:
    made, remembered = Fleet(4), []
    resolved(made)
    jump(made, seconds)
    for wait_seconds in (DAY - HOUR, 2 * HOUR + max(0.0, -seconds)):
        made.after(wait_seconds)
        remembered.append(len(made.planner.all_incidents()))
    assert remembered == [1, 0]


@pytest.mark.parametrize("seconds", [-2 * DAY, *JUMPS, 2 * DAY])
def test_an_aggregator_with_another_clock_remembers_the_resolved_incidents(seconds: float) -> None:
    """Its clock is corrected some minutes after its start."""
    made = Fleet(4)
    resolved(made)
    made.after(HOUR)
    made.wall += seconds
    made.restart()
    made.after(300.0)
    jump(made, -seconds)
    made.after(2 * HOUR)
    made.report(0, finding(age=0.0))
    made.carry_out()
    assert [incident.occurrences for incident in made.planner.all_incidents()] == [2]


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_full_list_of_incidents_takes_a_new_one_after_those_that_were_resolved(seconds: float) -> None:
    made = Fleet(4)
    made.planner.tracker.recorded.max_total = 1
    resolved(made)
    jump(made, seconds)
    made.after(61.0)
    made.report(1, finding(age=0.0))
    made.carry_out()
    assert [incident.node for incident in made.planner.all_incidents()] == ["node-1"]
