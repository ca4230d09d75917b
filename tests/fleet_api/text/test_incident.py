"""Tests for nodeguard.fleet_api.text.incident: incidents of jobs, and incidents that name jobs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.cli.render.resources import INCIDENT_TABLE, resource_lines
from nodeguard.fleet_api.domain import describe_domain
from nodeguard.fleet_api.incident import describe_incident, list_incidents
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.domain import domain_view
from nodeguard.fleet_api.text.incident import incident_view
from nodeguard.fleet_api.text.status import status_view
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.finding import Health
from nodeguard.model.job import NodeJob
from nodeguard.model.pod import PodKey
from nodeguard.wire.report import ReportedEvidence
from tests.cli.fleet_output import LEADER, explained, look
from tests.fleet.incidents.test_job_incidents import JOB, bad_start, of_job, start
from tests.fleet.leaves import ENFORCED, FIRST, domains, fails, fleet, wait
from tests.fleet.scene import Fleet, finding


def shown(made: Fleet, name: str) -> str:
    view = describe_incident(made.planner, LEADER, name, made.now)
    assert view is not None
    return look(incident_view(view), 120)


def test_the_incident_of_a_job() -> None:
    made = fleet()
    bad_start(made)
    wait(made, 30.0)
    text = shown(made, of_job(made).name)
    assert text.splitlines()[0] == f"WARNING  job {JOB} started badly"
    assert "  state       open, report only; no scheduling change: no switch is suspected of them" in text
    assert "nodeguard explain" not in text
    [row] = look(
        resource_lines(
            INCIDENT_TABLE, list_incidents(made.planner, LEADER, made.now).incidents, 120, wide=False
        ),
        120,
    ).splitlines()[1:]
    assert f"job/{JOB}" in row


@pytest.mark.parametrize(("health", "work"), [(Health.SUSPECT, "new gang work"), (Health.FATAL, "new work")])
def test_a_recorded_incident_without_its_node_names_the_work_that_its_mark_keeps_away(
    health: Health, work: str
) -> None:
    """As kubectl nodeguard reads it from a NodeIncident: the marks of the node are not known."""
    made = Fleet(8)
    made.report(1, finding(health=health))
    made.carry_out()
    [incident] = made.planner.all_incidents()
    for recorded in (incident, replace(incident, mark=None)):
        read = Fleet(0)
        read.planner.restore_incidents([recorded])
        assert f"  state       marked, {work} is kept away\n" in shown(read, incident.name)


@pytest.mark.parametrize(("count", "text"), [(1, "a/0"), (6, "a/0, a/1, a/2, a/3 and 2 more")])
def test_an_incident_names_its_jobs(count: int, text: str) -> None:
    made = Fleet(8)
    made.planner.state.update_jobs("uid-1", tuple(NodeJob(f"a/{number}") for number in range(count)))
    made.report(1, finding())
    made.carry_out()
    [incident] = made.planner.all_incidents()
    assert f"  jobs        {text}\n" in shown(made, incident.name)
    assert f"  jobs        {text}\n" in explained(made, 1)


@pytest.mark.parametrize("targets", [("gpu/0000:3b:00",), ("gpu/0000:3b:00", "gpu/0000:3c:00")])
def test_the_status_names_the_jobs_of_a_node(targets: tuple[str, ...]) -> None:
    made = Fleet(8)
    made.planner.state.update_jobs("uid-1", (NodeJob("a/train"), NodeJob("a/eval")))
    made.report(1, *(finding(target=target) for target in targets))
    made.carry_out()
    status = fleet_status(made.planner, LEADER, made.now)
    assert "\n         jobs: a/train, a/eval\n         nodeguard describe " in look(status_view(status), 120)


def test_the_status_names_the_jobs_of_several_nodes() -> None:
    """A job on several of them is named once, and at most 16 are named in all."""
    made = Fleet(8)
    for number in range(3):
        jobs = (NodeJob("a/train"), *(NodeJob(f"a/eval-{number}-{job}") for job in range(6)))
        made.planner.state.update_jobs(f"uid-{number}", jobs)
        made.report(number, finding())
    made.carry_out()
    status = fleet_status(made.planner, LEADER, made.now)
    assert (len(status.worst[0].jobs), status.worst[0].jobs_omitted) == (16, 3)
    text = "\n         jobs: a/train, a/eval-0-0, a/eval-0-1, a/eval-0-2 and 15 more\n         nodeguard get "
    assert text in look(status_view(status), 120)


def test_a_domain_names_the_jobs_of_its_incident() -> None:
    made = fleet()
    start(made, range(4), ago=9_000.0)
    fails(made)
    wait(made, 60.0)
    text = look(domain_view(describe_domain(made.planner, LEADER, FIRST, made.now)), 120)
    assert f"  jobs        {JOB}\n" in text
    at = int(made.now.wall)
    drain = NodeAction(
        ActionKind.DRAIN, "node-1", "uid-1", "quarantine of the node", at, pods=(PodKey("a", "b", "c", JOB),),
        state=ActionState.SUCCEEDED, begun_at=at,
    )  # fmt: skip
    drained = describe_domain(made.planner, replace(LEADER, actions=(drain,)), FIRST, made.now)
    gone = f"  jobs        {JOB}: 1 of 1 pod gone, evicted by the drain of node-1 since "
    assert gone in look(domain_view(drained), 120)


def test_an_incident_of_a_node_has_the_number_of_symptoms_that_it_does_not_list() -> None:
    made = Fleet(8)
    made.report(1, *(finding(f"check-{number}") for number in range(12)))
    made.carry_out()
    [incident] = made.planner.all_incidents()
    assert (len(incident.symptoms), incident.symptoms_omitted) == (8, 4)
    assert shown(made, incident.name).endswith("\n\nand 4 more symptoms")
    made.after(60.0)
    made.report(1, *(finding(f"check-{number}") for number in range(14)))
    made.carry_out()
    [changed] = made.planner.all_incidents()
    assert changed.symptoms_omitted == 6


def test_evidence_that_an_agent_or_an_incident_omits_is_counted() -> None:
    made = Fleet(8)
    evidence = tuple(ReportedEvidence("nvml", f"line {number}") for number in range(4))
    made.report(1, finding(evidence=evidence, omitted=6))
    made.carry_out()
    [incident] = made.planner.all_incidents()
    assert "nvml: line 2\n              and 7 more" in shown(made, incident.name)
    assert "nvml: line 3\n              and 6 more" in explained(made, 1)


def test_findings_that_a_report_omits_are_counted() -> None:
    made = Fleet(8)
    made.report(1, *(finding(f"check-{number}", f"fs:/{number}") for number in range(130)))
    made.carry_out()
    assert "  omitted     2 more findings: run nodeguard check on the node" in explained(made, 1)


def test_an_incident_of_a_domain_has_the_number_of_nodes_that_it_does_not_list() -> None:
    made = fleet()
    bad_start(made)
    wait(made, 30.0)
    assert of_job(made).symptoms_omitted == 8
    assert shown(made, of_job(made).name).endswith("\n\nand 8 more nodes with a symptom")


def test_another_number_of_nodes_does_not_change_the_incident_of_a_domain() -> None:
    made = Fleet(0, ENFORCED)
    for number in range(160):
        made.add(number, labels={"pod": "p0", "rack": f"r{number // 32}"})
    made.after(1.0)
    made.carry_out()
    fails(made, range(20))
    wait(made, 20.0)
    [before] = domains(made)
    assert before.symptoms_omitted == 12
    fails(made, range(20, 24))
    wait(made, 60.0)
    assert domains(made) == [before]
