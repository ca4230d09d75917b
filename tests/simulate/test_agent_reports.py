from __future__ import annotations

import pytest

from nodeguard.model.finding import Health
from nodeguard.simulate.agent_reports import SimulatedAgent, age_report, merge_reports
from nodeguard.simulate.fault_kinds import FAULT_KINDS
from nodeguard.simulate.simulated_machine import PORTS, MachineChange

HOUR = 3600.0


@pytest.mark.parametrize(
    ("kind", "check", "health", "after"),
    [
        ("gpu-lost", "gpu-lost", Health.FATAL, 0.0),
        ("gsp-timeout", "gpu-gsp-failure", Health.FATAL, 0.0),
        ("ecc-uncontained", "gpu-ecc-uncorrectable", Health.FATAL, 0.0),
        ("row-remap-failed", "gpu-row-remap-failed", Health.FATAL, 0.0),
        ("nvlink-down", "nvlink-down", Health.FATAL, 30.0),
        ("port-down", "port-down", Health.FATAL, 30.0),
        ("adapter-dead", "nic-firmware-dead", Health.FATAL, 0.0),
        ("throttled", "gpu-thermal-slowdown", Health.SUSPECT, 60.0),
        ("overheated", "gpu-thermal-slowdown", Health.SUSPECT, 60.0),
        ("port-flap", "port-link-downed", Health.WARNING, 0.0),
        ("ecc-contained", "gpu-ecc-contained", Health.WARNING, 0.0),
        ("warm", "gpu-software-thermal", Health.WARNING, 300.0),
    ],
)
def test_each_kind_of_fault_has_its_check(
    agent: SimulatedAgent, kind: str, check: str, health: Health, after: float
) -> None:
    reports = agent.fault_reports(FAULT_KINDS[kind], 0, 2 * HOUR)
    [finding] = reports[0].report.findings
    assert (finding.check, finding.health, reports[0].after) == (check, health, after)
    assert reports[-1].report.health == Health.OK
    assert any(check in group.checks for group in reports[-1].report.passing)


@pytest.mark.parametrize("kind", ["application", "node-down", "agent-unreachable"])
def test_kinds_without_a_report(agent: SimulatedAgent, kind: str) -> None:
    assert agent.fault_reports(FAULT_KINDS[kind], 0, HOUR) == ()


@pytest.mark.parametrize("kind", ["port-down", "throttled", "row-remap-failed"])
def test_faults_that_end_before_the_same_evaluation_share_their_reports(
    agent: SimulatedAgent, kind: str
) -> None:
    reports = agent.fault_reports(FAULT_KINDS[kind], 0, 900.0)
    subsystem = FAULT_KINDS[kind].subsystem
    assert subsystem is not None
    for seconds in (890.1, 897.3):
        assert agent.fault_reports(FAULT_KINDS[kind], 0, seconds) is reports
        assert agent.reports(subsystem, FAULT_KINDS[kind].changes(0, seconds)) == reports
    assert agent.fault_reports(FAULT_KINDS[kind], 0, 890.0) != reports


def test_a_warning_follows_the_end_of_a_fault(agent: SimulatedAgent) -> None:
    reports = agent.fault_reports(FAULT_KINDS["port-down"], 1, 2 * HOUR)
    expected = [(30.0, Health.FATAL), (2 * HOUR, Health.WARNING), (26 * HOUR, Health.OK)]
    assert [(timed.after, timed.report.health) for timed in reports] == expected
    assert {finding.target for finding in reports[0].report.findings} == {PORTS[1]}


def test_overlapping_changes_are_evaluated_together(agent: SimulatedAgent) -> None:
    flaps = [MachineChange(at, PORTS[0], increments={"port.link_downed": 1}) for at in (0.0, 600.0, 1200.0)]
    reports = agent.reports("port", flaps)
    expected = [(0.0, "port-link-downed"), (1200.0, "port-flap"), (3600.0, "port-link-downed")]
    assert [(timed.after, timed.report.findings[0].check) for timed in reports[:3]] == expected
    assert reports[-1].after == 1200.0 + 24 * HOUR


def test_reports_are_merged_and_age(agent: SimulatedAgent) -> None:
    [hot, *_] = agent.fault_reports(FAULT_KINDS["overheated"], 0, HOUR)
    [down, *_] = agent.fault_reports(FAULT_KINDS["port-down"], 0, HOUR)
    merged = merge_reports((hot.report, down.report))
    assert [finding.check for finding in merged.findings] == ["port-down", "gpu-thermal-slowdown"]
    assert merged.health == Health.FATAL
    [older, *_] = age_report(merged, 100.0).findings
    assert older.evidence[0].age == merged.findings[0].evidence[0].age + 100.0
    assert [timed.age for timed in age_report(merged, 100.0).findings] == [
        finding.age + 100.0 for finding in merged.findings
    ]
