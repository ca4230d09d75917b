"""Findings of facts, such as a bit that the hardware stores: however many nodes show one, it is true on each."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from nodeguard.agent.reporting.reporter import node_facts
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.model.finding import Action, DataStatus, Finding, Health, Verdict
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.wire.encoding import decode_message, encode
from nodeguard.wire.report import Inventory, Report, ReportedEvidence, ReportedFinding
from nodeguard.wire.report_builder import build_report
from tests.fleet.diagnosis.test_suppressed_checks import REAL, advance, scattered, suppressed
from tests.fleet.scene import Fleet, finding

SIZE = 800
ROW_REMAP = finding(
    "gpu-row-remap-failed", age=0.0, evidence=(ReportedEvidence("nvml", "gpu.row_remap.failed"),), fact=True
)
MISMATCH = finding(
    "driver-library-mismatch", "node", age=0.0, component="", family="driver",
    evidence=(ReportedEvidence("nvml", "LIB_RM_VERSION_MISMATCH"),), topologies=("driver",), fact=True,
)  # fmt: skip


def quiet_fleet(size: int = SIZE) -> Fleet:
    """A fleet with one driver that has run for hours."""
    made = Fleet(0, REAL)
    for number in range(size):
        made.add(number, labels={"pod": f"p{number // 40}", "rack": f"r{number // 8}"})
        made.report(number, inventory=Inventory(driver="1"))
    advance(made, 20_000.0, 500.0)
    return made


def fail_in_turn(made: Fleet, numbers: list[int], item: ReportedFinding) -> None:
    """Some nodes begin to fail one after the other within three hours."""
    for number in numbers:
        made.report(number, item, inventory=Inventory(driver="1"))
        advance(made, 10_800.0 / len(numbers), 60.0)


def test_nodes_with_failed_row_remaps_are_all_out() -> None:
    made = quiet_fleet()
    numbers = scattered(made, 12)
    fail_in_turn(made, numbers, ROW_REMAP)
    advance(made, 1_200.0, 60.0)
    assert made.marked() == sorted(numbers)
    advance(made, 43_200.0, 600.0)
    assert made.marked() == sorted(numbers)


def test_measurements_of_so_many_nodes_are_a_false_alarm() -> None:
    made = quiet_fleet()
    numbers = scattered(made, 12)
    fail_in_turn(made, numbers, replace(ROW_REMAP, fact=False))
    assert len(made.marked()) < 12
    assert suppressed(made) == {"gpu-row-remap-failed"}


def upgrade(made: Fleet, broken: set[int], upgraded: int = 792) -> int:
    """Upgrade the driver of most nodes within four hours; some do not load the new one. Returns the largest
    number of marked nodes.
    """
    most = 0
    for number in range(upgraded):
        found = (MISMATCH,) if number in broken else ()
        made.report(number, *found, inventory=Inventory(driver="2"))
        if number % 8 == 7:
            advance(made, 145.0, 145.0)
            most = max(most, len(made.marked()))
    return most


def test_nodes_that_an_upgrade_breaks_are_out_or_named_with_the_version() -> None:
    made = quiet_fleet()
    broken = set(random.Random(3).sample(range(792), 16))
    upgrade(made, broken)
    advance(made, 1_800.0, 60.0)
    # The budget of the check allows 15 marks.
    assert len(made.marked()) == 15
    assert set(made.marked()) <= broken
    (left,) = broken - set(made.marked())
    (decision,) = made.planner.tracker.decisions[f"uid-{left}"]
    assert (
        decision.reason
        == "budget of check driver-library-mismatch has reached its limit: 15 of 15 active marks"
    )
    # A node that is repaired gives its budget to the last one.
    repaired = made.marked()[0]
    made.report(repaired, inventory=Inventory(driver="2"), proven=None)
    advance(made, 1_200.0, 60.0)
    assert set(made.marked()) >= broken - {repaired} - {left}


def test_a_driver_that_breaks_each_node_is_named_and_marks_no_more_than_the_budget() -> None:
    made = quiet_fleet(400)
    most = upgrade(made, set(range(200)), upgraded=200)
    advance(made, 600.0, 60.0)
    assert most <= 15
    (incident,) = [item for item in made.planner.all_incidents() if item.target.startswith("check/")]
    assert incident.component == "driver/2"
    assert "driver/2" in incident.message
    assert incident.detail == "it finds a fact, so that its nodes are marked within the budgets"
    withheld = [
        decision
        for decisions in made.planner.tracker.decisions.values()
        for decision in decisions
        if decision.state == IncidentState.WITHHELD
    ]
    assert {decision.restraint for decision in withheld} == {"budget"}


@pytest.mark.parametrize("agents", ["old", "old and new"])
def test_findings_of_agents_that_report_no_facts_count_as_measurements(agents: str) -> None:
    made = quiet_fleet(400)
    numbers = scattered(made, 40)
    for number in numbers:
        is_old = agents == "old" or number != numbers[0]
        made.report(number, replace(ROW_REMAP, fact=not is_old), inventory=Inventory(driver="1"))
    advance(made, 600.0, 30.0)
    assert suppressed(made) == {"gpu-row-remap-failed"}
    assert len(made.marked()) <= 5


def test_agents_report_which_findings_are_facts() -> None:
    catalogue = load_catalogue()[0]
    facts = node_facts("node-0", catalogue)
    assert facts.fact_checks == {
        "driver-library-mismatch",
        "gpu-inforom-corrupted",
        "gpu-row-remap-failed",
        "gpu-row-remap-limit",
        "gpu-sram-threshold",
    }
    found = tuple(
        Finding(
            check, "gpu/0", "GPU-1", Health.FATAL, DataStatus.FRESH, Action.CONTACT_SUPPORT, 1e9,
            "m", (), "gpu-memory", "t", "r", "b",
        )
        for check in ("gpu-row-remap-failed", "gpu-retired-pages-limit")
    )  # fmt: skip
    verdict = Verdict(Health.FATAL, DataStatus.FRESH, found)
    report = decode_message(encode(build_report(verdict, Instant(1e9, 1e3, "boot"), facts)))
    assert isinstance(report, Report)
    assert [finding.fact for finding in report.findings] == [True, False]
