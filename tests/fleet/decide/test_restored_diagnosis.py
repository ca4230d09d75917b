"""Tests for nodeguard.fleet.decide.restored_diagnosis, in the plans of a fleet before and after a restart."""

from __future__ import annotations

from copy import deepcopy

import pytest
from msgspec.structs import replace

from nodeguard.fleet.diagnosis.results import DegradedDomain, SuppressedCheck
from nodeguard.fleet.incidents.events import resolve
from nodeguard.fleet.incidents.tracker import SHARED
from nodeguard.model.diagnosis import STALE_CHECK
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.simulate.agent_reports import age_report
from nodeguard.wire.report import ReportedEvidence, ReportedFinding
from tests.fleet.leaves import FIRST, LEAF, domains, down, fails, faulty, fleet, wait, well
from tests.fleet.scene import WIDE, Fleet, finding
from tests.fleet.test_restored_suppressions import POLICY, pass_time, restart
from tests.policies import diagnosis_policy

DOMAIN = "nodeguard.dev/domain-degraded=fabric"
SPREAD = (0, 9, 17, 26, 34, 43)

# Seconds after which a diagnosis of a quiet domain ends, and within which a restarted aggregator agrees.
RECOVERY, SOON = 1_800.0, 120.0

# A warning of a past event: it lasts for hours.
LOST: ReportedFinding = replace(
    down(),
    check="port-link-downed",
    health=Health.WARNING,
    evidence=(ReportedEvidence("infiniband", "port.link_downed rose by 1 to 1"),),
)


def lose_links(made: Fleet) -> None:
    for number in range(LEAF):
        made.report(number, LOST)


def degraded(made: Fleet) -> set[str]:
    return set(made.planner.diagnosis.degraded_domains)


def degraded_and_over() -> Fleet:
    """Return a fleet with a leaf that lost links and recovered; its agents still report the warnings."""
    made = fleet(80, POLICY)
    lose_links(made)
    wait(made, 60.0)
    assert degraded(made) == {FIRST}
    pass_time(made, RECOVERY + 200.0, 100.0)
    assert degraded(made) == set()
    return made


def cleared(made: Fleet, *, seconds: float = 0.0) -> Incident:
    """Clear the only open incident of a domain or a check, as an operator does."""
    [incident] = domains(made, IncidentState.OPEN, IncidentState.MARKED)
    made.planner.clear(incident, made.now)
    pass_time(made, seconds, 5.0)
    return incident


def test_votes_from_before_its_recovery_do_not_degrade_a_domain_again() -> None:
    made = degraded_and_over()
    restart(made)
    wait(made, SOON)
    assert degraded(made) == set()
    assert made.marked() == []


def test_votes_from_before_its_recovery_do_not_count_in_a_report_after_the_first_plan() -> None:
    made = degraded_and_over()
    late = {f"uid-{number}": made.reports.pop(f"uid-{number}") for number in range(4)}
    restart(made)
    for uid, report in late.items():
        made.reports[uid] = age_report(report, 2_200.0)
        made.planner.record_report(uid, made.reports[uid], made.now)
    wait(made, SOON)
    assert degraded(made) == set()


def test_new_votes_degrade_a_domain_after_its_recovery_and_a_restart() -> None:
    made = degraded_and_over()
    restart(made)
    wait(made, 10.0)
    fails(made)
    wait(made, 60.0)
    assert degraded(made) == {FIRST}


def test_a_domain_that_recovers_does_so_at_the_same_time_after_a_restart() -> None:
    made = faulty(60.0, policy=POLICY)
    well(made)
    pass_time(made, RECOVERY - 300.0, 60.0)
    restarted = deepcopy(made)
    restart(restarted)
    for copy in (made, restarted):
        pass_time(copy, 200.0, 20.0)
        assert degraded(copy) == {FIRST}
        pass_time(copy, 200.0, 20.0)
        assert degraded(copy) == set()
        assert copy.marked() == []


def test_a_restart_does_not_shorten_the_recovery_of_a_domain() -> None:
    made = faulty(600.0, policy=POLICY)
    restart(made)
    wait(made, 60.0)
    well(made)
    pass_time(made, RECOVERY - 120.0, 60.0)
    restart(made)
    pass_time(made, 60.0, 20.0)
    assert made.taints(0) == [DOMAIN]


def test_a_domain_that_was_degraded_before_recovers_as_slowly_after_a_restart() -> None:
    made = degraded_and_over()
    restart(made)
    fails(made)
    wait(made, 60.0)
    restart(made)
    wait(made, 10.0)
    [state] = made.planner.diagnosis.degraded_domains.values()
    assert state.times == 2
    well(made)
    pass_time(made, RECOVERY + 600.0, 60.0)
    assert degraded(made) == {FIRST}
    pass_time(made, RECOVERY, 60.0)
    assert degraded(made) == set()


def test_a_domain_keeps_all_of_its_fault_classes() -> None:
    made = faulty(60.0, policy=POLICY)
    [before] = made.planner.diagnosis.degraded_domains.values()
    assert set(before.fault_classes) == {"link-down", "link"}
    incidents = [replace(incident, first_seen=0.0) for incident in made.planner.all_incidents()]
    made.restart(incidents=incidents)
    made.carry_out()
    [after] = made.planner.diagnosis.degraded_domains.values()
    assert set(after.fault_classes) == {"link-down", "link"}


def test_the_clear_of_a_domain_survives_a_restart() -> None:
    made = faulty(60.0, policy=POLICY)
    cleared(made, seconds=60.0)
    assert degraded(made) == set()
    before = [made.taints(number) for number in range(LEAF)]
    assert before[0] == ["nodeguard.dev/quarantine=infiniband"]
    restart(made)
    pass_time(made, 600.0, 10.0)
    assert degraded(made) == set()
    assert [made.taints(number) for number in range(LEAF)] == before


def test_the_clear_of_a_check_survives_a_restart() -> None:
    made = fleet(48, POLICY)
    pass_time(made, 2_000.0, 500.0)
    for number in SPREAD:
        made.report(number, finding(age=0.0))
    pass_time(made, 60.0, 5.0)
    assert made.marked() == []
    cleared(made, seconds=60.0)
    assert made.marked() == list(SPREAD)
    restart(made)
    pass_time(made, 600.0, 10.0)
    assert not made.planner.diagnosis.suppressed_checks
    assert made.marked() == list(SPREAD)


def test_votes_for_another_check_stay_when_a_suppression_ended_before_a_restart() -> None:
    made = fleet(48, POLICY)
    pass_time(made, 2_000.0, 500.0)
    for number in SPREAD:
        made.report(number, replace(down(), check="port-flap", health=Health.SUSPECT))
    pass_time(made, 60.0, 5.0)
    cleared(made, seconds=5.0)
    for number in range(LEAF, LEAF + 3):
        made.report(number, *(made.reports[f"uid-{number}"].findings), replace(LOST, check="port-errors"))
    made.after(1.0)
    restart(made)
    voters = made.planner.diagnosis.voting.votes_by_class["link"].current_voters(made.mono)
    assert voters.keys() == {f"uid-{number}" for number in range(LEAF, LEAF + 3)}


@pytest.mark.parametrize("seconds", [0.0, 20.0])
def test_a_clear_that_no_aggregator_carried_out_is_carried_out(seconds: float) -> None:
    made = faulty(60.0, policy=POLICY)
    [incident] = domains(made, IncidentState.MARKED)
    at = made.wall
    made.after(seconds)
    restart(made, (incident, at))
    wait(made, SOON)
    assert degraded(made) == set()
    assert made.taints(0) == ["nodeguard.dev/quarantine=infiniband"]
    assert [after.state for after in domains(made)] == [IncidentState.RESOLVED]


def test_a_withheld_domain_keeps_the_marks_of_its_parts_after_a_restart() -> None:
    made = fleet(80, replace(POLICY, budget=replace(WIDE, degraded=0.4, first=0.4)))
    for leaf in range(3):
        fails(made, range(leaf * LEAF, (leaf + 1) * LEAF))
        wait(made, 60.0)
    assert (degraded(made), made.taints(0), made.taints(LEAF)) == ({"fabric/p0"}, [DOMAIN], [DOMAIN])
    restart(made)
    wait(made, SOON)
    assert (degraded(made), made.taints(0), made.taints(LEAF)) == ({"fabric/p0"}, [DOMAIN], [DOMAIN])


def test_a_mark_of_a_wider_domain_that_ended_degrades_nothing_after_a_restart() -> None:
    made = fleet(80, replace(POLICY, budget=replace(WIDE, degraded=1.0, first=1.0)))
    for leaf in range(3):
        fails(made, range(leaf * LEAF, (leaf + 1) * LEAF))
        wait(made, 60.0)
    assert degraded(made) == {"fabric/p0"}
    made.change(5, annotations={**made.nodes["uid-5"].annotations, HOLD_ANNOTATION: "an operator's work"})
    well(made, range(24))
    wait(made, 4_000.0)
    assert made.taints(5) == [DOMAIN]
    fails(made)
    wait(made, 60.0)
    restart(made)
    wait(made, SOON)
    assert degraded(made) == {FIRST}
    assert made.taints(LEAF) == []


def test_a_clear_before_the_first_plan_is_carried_out() -> None:
    made = faulty(60.0, policy=POLICY)
    [incident] = domains(made, IncidentState.MARKED)
    recorded = made.planner.all_incidents()
    made.restart(incidents=recorded)
    made.planner.clear(incident, made.now)
    wait(made, SOON)
    assert degraded(made) == set()
    assert [after.state for after in domains(made)] == [IncidentState.RESOLVED]


def test_marks_of_a_domain_that_ended_do_not_degrade_it_again() -> None:
    made = faulty(60.0, policy=POLICY)
    [incident] = domains(made, IncidentState.MARKED)
    made.planner.clear(incident, made.now)
    made.after(1.0)
    made.plan()
    assert [after.state for after in domains(made)] == [IncidentState.RECOVERING], (
        "the mark is not removed yet"
    )
    assert made.taints(0) == [DOMAIN]
    # An earlier version records the end before the marks are removed.
    recorded = [resolve(item, made.wall) if item.domain else item for item in made.planner.all_incidents()]
    made.restart(incidents=recorded)
    wait(made, SOON)
    assert degraded(made) == set()
    assert made.taints(0) == ["nodeguard.dev/quarantine=infiniband"]


def test_marks_that_are_younger_than_the_recorded_end_stay_until_votes_degrade_their_domain() -> None:
    made = degraded_and_over()
    old = made.planner.all_incidents()
    fails(made)
    wait(made, 60.0)
    assert made.taints(0) == [DOMAIN]
    made.restart(incidents=old)
    made.carry_out()
    assert (degraded(made), made.taints(0)) == (set(), [DOMAIN])
    wait(made, SOON)
    assert (degraded(made), made.taints(0)) == ({FIRST}, [DOMAIN])


def test_a_restored_suppression_needs_as_long_a_silence_as_before() -> None:
    made = fleet(48, POLICY)
    made.planner.diagnosis.open(SuppressedCheck("gpu-lost", made.mono, made.mono, (), 0, 14_400.0, times=3))
    pass_time(made, 10.0, 5.0)
    restart(made)
    [check] = made.planner.diagnosis.suppressed_checks.values()
    assert (check.within, check.times) == (14_400.0, 1)


def test_a_suppression_of_stopped_agents_stays_though_they_never_report_to_the_new_aggregator() -> None:
    made = fleet(48, POLICY)
    pass_time(made, 2_000.0, 500.0)
    silent = {f"uid-{number}" for number in range(48) if number % 3}
    for _ in range(170):
        made.after(10.0, quiet=silent)
        made.carry_out()
    assert set(made.planner.diagnosis.suppressed_checks) == {STALE_CHECK}
    for uid in silent:
        del made.reports[uid]
    restart(made)
    pass_time(made, 600.0, 10.0)
    assert set(made.planner.diagnosis.suppressed_checks) == {STALE_CHECK}
    assert made.marked() == []


def test_an_unknown_fault_class_of_a_domain_is_dropped() -> None:
    made = fleet(80, POLICY)
    classes = ("unknown", "link")
    made.planner.diagnosis.open(DegradedDomain(FIRST, FIRST, classes, made.mono, made.mono, (), LEAF))
    [restored] = made.planner.diagnosis.degraded_domains.values()
    assert restored.fault_classes == ("link",)


def test_a_restored_domain_does_not_recover_before_its_agents_have_reported() -> None:
    made = faulty(60.0, policy=replace(POLICY, diagnosis=diagnosis_policy(enforce=())))
    well(made)
    pass_time(made, 900.0, 60.0)
    assert degraded(made) == {FIRST}
    recorded = made.planner.all_incidents()
    # The fault is back while no aggregator runs. Its agents report a little later than the others.
    made.after(1_200.0)
    for number in range(LEAF):
        del made.reports[f"uid-{number}"]
    made.restart(incidents=recorded)
    made.planner.tick(made.now)
    assert [event for event in made.plan().events if "is over" in event.message] == []
    for number in range(LEAF):
        made.report(number, down(age=900.0))
    wait(made, SOON)
    assert degraded(made) == {FIRST}


def test_a_clear_after_the_first_plan_of_a_domain_is_final() -> None:
    made = fleet(80, POLICY)
    fails(made)
    plan = made.plan()
    while not degraded(made):
        made.after(1.0)
        plan = made.issue()
    [incident] = made.planner.tracker.pending[SHARED].values()
    made.planner.clear(incident, made.now)
    made.write(plan)
    wait(made, 30.0)
    assert degraded(made) == set()
