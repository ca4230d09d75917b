"""Tests for nodeguard.fleet.incidents.job_incidents."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.diagnosis import RecoveryPolicy
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import rfc3339
from nodeguard.model.job import NodeJob
from nodeguard.wire.report import ReportedEvidence, ReportedFinding
from tests.fleet.leaves import ENFORCED, LEAF, PORT, domains, fails, fleet, wait
from tests.fleet.scene import Fleet, finding, states
from tests.fleet.test_restored_suppressions import restart
from tests.policies import diagnosis_policy

LOST = ReportedFinding(
    "port-link-downed", PORT, Health.WARNING, action=Action.MONITOR, family="infiniband", message="lost its link",
    evidence=(ReportedEvidence("infiniband", "port.link_downed 1"),), topologies=("fabric",),
)  # fmt: skip
JOB = "training/llama"


def start(made: Fleet, numbers: range, ago: float = 0.0) -> None:
    for number in numbers:
        made.planner.state.update_jobs(f"uid-{number}", (NodeJob(JOB, (made.wall - ago,)),))


def bad_start(made: Fleet) -> None:
    start(made, range(16))
    made.after(20.0)
    for number in range(16):
        made.report(number, LOST)


def of_job(made: Fleet) -> Incident:
    [incident] = [incident for incident in domains(made) if incident.target == f"job/{JOB}"]
    return incident


def test_a_bad_start_is_one_incident_of_the_job_and_marks_nothing() -> None:
    made = fleet()
    bad_start(made)
    wait(made, 120.0)
    assert domains(made) == [of_job(made)]
    incident = of_job(made)
    assert (incident.state, incident.health, incident.domain, incident.jobs) == (
        IncidentState.OPEN, Health.WARNING, "", (JOB,),
    )  # fmt: skip
    assert incident.message == (
        f"job {JOB} started badly: 16 nodes had trouble with a link within 20 s of its start"
    )
    assert len(incident.symptoms) == 8
    assert not made.marked()
    assert set(states(made)) == {f"job/{JOB}"}, "its findings have no incidents of their own"


def test_without_jobs_the_same_votes_degrade_both_leaves() -> None:
    made = fleet()
    for number in range(16):
        made.report(number, LOST)
    wait(made, 60.0)
    assert {incident.domain for incident in domains(made)} == {"fabric/p0/r0", "fabric/p0/r1"}


def test_the_incident_of_a_job_resolves_after_the_recovery_time() -> None:
    made = fleet()
    bad_start(made)
    wait(made, 1_900.0)
    assert of_job(made).state == IncidentState.RESOLVED


def test_a_new_aggregator_continues_the_incident_of_a_job() -> None:
    made = fleet()
    bad_start(made)
    wait(made, 60.0)
    before = of_job(made)
    restart(made)
    assert of_job(made).state == IncidentState.OPEN
    start(made, range(16), ago=80.0)
    wait(made, 60.0)
    assert (of_job(made).message, of_job(made).occurrences) == (before.message, 1)
    assert of_job(made).first_seen == pytest.approx(before.first_seen)
    assert [incident.target for incident in domains(made)] == [f"job/{JOB}"]


@pytest.mark.parametrize("after", ["the job has ended", "the job has started again"])
@pytest.mark.parametrize("is_resolved", [False, True])
def test_a_new_aggregator_degrades_no_switch_when_the_job_of_a_bad_start_is_gone(
    after: str, is_resolved: bool
) -> None:
    made = fleet()
    bad_start(made)
    wait(made, 120.0)
    if is_resolved:
        wait(made, 2_400.0)
    assert [incident.is_open for incident in made.planner.all_incidents()] == [not is_resolved]
    restart(made)
    if after == "the job has started again":
        start(made, range(16))
    wait(made, 1_200.0)
    assert (set(made.planner.diagnosis.degraded_domains), made.marked()) == (set(), [])


def test_a_new_aggregator_knows_the_second_bad_start_of_an_open_incident() -> None:
    made = fleet(160)
    bad_start(made)
    wait(made, 700.0)
    for number in range(16):
        made.report(number)
    wait(made, 200.0)
    bad_start(made)
    wait(made, 120.0)
    assert of_job(made).occurrences == 1
    restart(made)
    wait(made, 120.0)
    assert [incident.target for incident in domains(made)] == [f"job/{JOB}"]


def test_two_new_aggregators_explain_the_late_votes_of_a_bad_start() -> None:
    made = fleet(160)
    start(made, range(24))
    for first in (0, 8):
        wait(made, 20.0 + 10.0 * first)
        for number in range(first, first + 8 + first):
            made.report(number, LOST)
    wait(made, 120.0)
    for number in range(8):
        made.report(number)
    wait(made, 60.0)
    for _ in range(2):
        restart(made)
        wait(made, 120.0)
        assert [incident.target for incident in domains(made)] == [f"job/{JOB}"]


def test_the_record_of_a_bad_start_does_not_change_with_each_vote() -> None:
    made = fleet(160)
    start(made, range(24))
    records = set()
    for number in range(24):
        made.report(number, LOST)
        wait(made, 5.0)
        records |= {incident.diagnosis for incident in domains(made)}
    windows = sorted({record.window for record in records if record is not None})
    assert windows == [float(seconds) for seconds in range(30, 130, 10)]


def test_a_leaf_that_fails_just_after_a_bad_start_is_degraded_after_a_restart() -> None:
    made = fleet(160)
    bad_start(made)
    wait(made, 30.0)
    for number in range(48, 56):
        made.report(number, LOST)
    wait(made, 10.0)
    restart(made)
    wait(made, 300.0)
    assert set(made.planner.diagnosis.degraded_domains) == {"fabric/p1/r6"}


def test_another_policy_keeps_a_leaf_degraded_that_failed_during_a_bad_start() -> None:
    made = fleet(160)
    start(made, range(16))
    wait(made, 20.0)
    for numbers in (range(8), range(48, 56), range(8, 16)):
        for number in numbers:
            made.report(number, LOST)
        wait(made, 60.0)
    assert set(made.planner.diagnosis.degraded_domains) == {"fabric/p1/r6"}
    policy = replace(
        ENFORCED, diagnosis=replace(ENFORCED.diagnosis, recovery=RecoveryPolicy(initial=1_900.0))
    )
    made.planner.set_policy(policy)
    wait(made, 300.0)
    assert set(made.planner.diagnosis.degraded_domains) == {"fabric/p1/r6"}


def test_a_new_aggregator_does_not_explain_other_votes_by_a_recorded_bad_start() -> None:
    made = fleet(160)
    bad_start(made)
    wait(made, 60.0)
    incidents = made.planner.all_incidents()
    made.restart(incidents=incidents)
    start(made, range(16), ago=80.0)
    wait(made, 60.0)
    for number in range(48, 56):
        made.report(number, LOST)
    wait(made, 120.0)
    assert set(made.planner.diagnosis.degraded_domains) == {"fabric/p1/r6"}


def test_an_operator_clears_the_incident_of_a_job() -> None:
    made = fleet()
    bad_start(made)
    wait(made, 60.0)
    made.planner.clear(of_job(made), made.now)
    wait(made, 60.0)
    assert of_job(made).state == IncidentState.RESOLVED
    assert len(domains(made)) == 1


def test_a_degraded_domain_names_the_jobs_that_it_hits() -> None:
    made = fleet()
    start(made, range(4), ago=9_000.0)
    fails(made, range(LEAF))
    wait(made, 60.0)
    [incident] = domains(made)
    assert (incident.domain, incident.jobs, incident.jobs_omitted) == ("fabric/p0/r0", (JOB,), 0)
    assert incident.owner == "the network team"


def test_an_incident_of_a_node_names_its_job_also_after_the_job_is_gone() -> None:
    made = Fleet(8)
    made.report(1, finding())
    made.carry_out()
    [incident] = made.planner.all_incidents()
    assert incident.jobs == ()
    made.planner.state.update_jobs("uid-1", (NodeJob(JOB),))
    made.after(1.0)
    plan = made.carry_out()
    [named] = plan.incidents
    assert (named.jobs, named.last_transition, plan.events) == ((JOB,), incident.last_transition, ())
    made.planner.state.update_jobs("uid-1", ())
    made.after(1.0)
    made.carry_out()
    assert made.planner.all_incidents()[0].jobs == (JOB,)


def test_an_event_names_the_jobs_that_are_known_then() -> None:
    made = Fleet(8)
    made.planner.state.update_jobs("uid-1", (NodeJob(JOB),))
    made.report(1, finding())
    [event] = made.carry_out().events
    assert f"; jobs: {JOB} (" in event.message


def test_jobs_are_read_for_nodes_that_vote_or_request_a_mark_only() -> None:
    made = fleet(policy=replace(ENFORCED, diagnosis=diagnosis_policy()))
    made.report(3, LOST)
    made.report(5, finding())
    made.report(7, replace(LOST, check="other", topologies=()))
    made.after(1.0)
    made.carry_out()
    nodes = made.planner.job_nodes(made.now)
    assert nodes.keys() == {"uid-3", "uid-5"}
    assert nodes["uid-3"] == pytest.approx(made.mono - 1.0)
    made.after(7_300.0)
    assert made.planner.job_nodes(made.now).keys() == {"uid-5"}


FLAPS = replace(LOST, check="port-flap", health=Health.SUSPECT, action=Action.REPLACE_COMPONENT)


def test_findings_of_a_bad_start_set_no_marks_and_cause_no_incidents_as_long_as_they_last() -> None:
    made = fleet()
    start(made, range(16))
    made.after(20.0)
    for number in range(16):
        made.report(number, FLAPS)
    wait(made, 90.0)
    [decision] = made.planner.tracker.decisions["uid-3"]
    shared = f"several nodes of job {JOB} have had this fault since the job started"
    assert (decision.state, decision.reason) == (
        IncidentState.WITHHELD,
        f"{shared}: the likely cause is the job, not this node",
    )
    wait(made, 2_400.0)
    assert not made.marked()
    assert set(states(made)) == {f"job/{JOB}"}
    assert of_job(made).state == IncidentState.RESOLVED


def test_a_lasting_fault_on_a_node_of_a_bad_start_is_marked() -> None:
    made = fleet()
    bad_start(made)
    wait(made, 60.0)
    made.report(3, LOST, finding())
    wait(made, 30.0)
    assert made.marked() == [3]


def test_an_annotated_job_starts_badly_too() -> None:
    made = fleet()
    made.after(20.0)
    begin = rfc3339(made.wall - 20.0)
    for number in range(16):
        made.change(number, annotations={"nodeguard.dev/job": "4711", "nodeguard.dev/job-start": begin})
        made.report(number, LOST)
    wait(made, 30.0)
    assert [incident.target for incident in domains(made)] == ["job/4711"]
