from __future__ import annotations

import pytest

from nodeguard.model.finding import Health
from nodeguard.simulate.agent_reports import SimulatedAgent, age_report, merge_reports
from nodeguard.simulate.fault_kinds import FAULT_KINDS
from nodeguard.simulate.simulated_machine import PORTS, MachineChange

HOUR = 3600.0


@pytest.mark.parametrize(
    ("shape", "check", "health", "after"),
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
def test_a_fault_is_said_to_be_what_it_is(
    agent: SimulatedAgent, shape: str, check: str, health: Health, after: float
) -> None:
    told = agent.fault_reports(FAULT_KINDS[shape], 0, 2 * HOUR)
    [found] = told[0].report.findings
    assert (found.check, found.health, told[0].after) == (check, health, after)
    assert told[-1].report.health == Health.OK
    assert any(check in group.checks for group in told[-1].report.passing)


@pytest.mark.parametrize("shape", ["application", "silent", "unheard"])
def test_of_some_things_nothing_is_said(agent: SimulatedAgent, shape: str) -> None:
    assert agent.fault_reports(FAULT_KINDS[shape], 0, HOUR) == ()


def test_a_fault_is_over_when_it_is_and_what_it_leaves_behind_later(agent: SimulatedAgent) -> None:
    told = agent.fault_reports(FAULT_KINDS["port-down"], 1, 2 * HOUR)
    assert [(one.after, one.report.health) for one in told] == [
        (30.0, Health.FATAL),
        (2 * HOUR, Health.WARNING),
        (26 * HOUR, Health.OK),
    ]
    assert {one.target for one in told[0].report.findings} == {PORTS[1]}


def test_what_comes_together_is_judged_together(agent: SimulatedAgent) -> None:
    flaps = [MachineChange(at, PORTS[0], increments={"port.link_downed": 1}) for at in (0.0, 600.0, 1200.0)]
    told = agent.reports("port", flaps)
    assert [(one.after, one.report.findings[0].check) for one in told[:3]] == [
        (0.0, "port-link-downed"),
        (1200.0, "port-flap"),
        (3600.0, "port-link-downed"),
    ]
    assert told[-1].after == 1200.0 + 24 * HOUR


def test_halves_make_one_report_and_findings_age(agent: SimulatedAgent) -> None:
    [hot, *_] = agent.fault_reports(FAULT_KINDS["overheated"], 0, HOUR)
    [down, *_] = agent.fault_reports(FAULT_KINDS["port-down"], 0, HOUR)
    whole = merge_reports((hot.report, down.report))
    assert [one.check for one in whole.findings] == ["port-down", "gpu-thermal-slowdown"]
    assert whole.health == Health.FATAL
    assert [one.age for one in age_report(whole, 100.0).findings] == [
        one.age + 100.0 for one in whole.findings
    ]
