"""Reports, versions, jobs and restarts of a world, as the product's planner receives them."""

from __future__ import annotations

import pytest

from bench.evaluation.draw import draw_world
from bench.evaluation.observed import NodeReport
from bench.evaluation.replay import WorldFleet
from bench.evaluation.report_book import ReportBook
from bench.evaluation.symptoms import FALSE, SYMPTOMS, Firing
from bench.evaluation.world import VersionChange, World
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.fleet.planner import Planner
from nodeguard.model.policy import default_policy
from nodeguard.simulate.simulation import enforce_all


@pytest.fixture(scope="module")
def book() -> ReportBook:
    return ReportBook(*load_catalogue())


def played(world: World, book: ReportBook, until: float) -> WorldFleet:
    background = world.background
    policy = enforce_all(default_policy(load_catalogue()[0].fault_classes))
    fleet = WorldFleet(background, book, policy, Planner)
    fleet.play(world.plant, 0.0, until)
    return fleet


def test_a_report_has_the_findings_of_its_checks(book: ReportBook) -> None:
    firing = (
        Firing("port-down", "port-down", 100.0, 900.0),
        Firing("nvlink-down", f"{FALSE}nvlink-down", 70.0, 900.0),
    )
    driver = VersionChange(90.0, 0, "driver/600.1")
    report = book.report(NodeReport(130.0, 0, firing), {"driver": driver}, 100.0)
    assert {finding.check: finding.age for finding in report.findings} == {
        "port-down": 30.0,
        "nvlink-down": 60.0,
    }
    assert {finding.check: finding.topologies for finding in report.findings} == {
        "port-down": ("fabric",),
        "nvlink-down": ("nvlink",),
    }
    passing = {check for group in report.passing for check in group.checks}
    assert passing.isdisjoint({"port-down", "nvlink-down"})
    assert "gpu-lost" in passing
    assert report.inventory.driver == "600.1"
    assert report.received == {"driver/600.1": 40.0}
    assert report.sequence == 4


def test_a_healthy_report_passes_again(book: ReportBook) -> None:
    report = book.report(NodeReport(130.0, 0, ()), {}, None)
    assert report.findings == ()
    passing = {check for group in report.passing for check in group.checks}
    assert passing >= {symptom.check for symptom in SYMPTOMS.values() if symptom.check}


def test_nodes_without_an_agent_never_report(book: ReportBook) -> None:
    worlds = (draw_world("leaf dead", 64, seed) for seed in range(100))
    world = next(world for world in worlds if world.background.fleet.muted)
    fleet = played(world, book, 600.0)
    reported = {int(uid.removeprefix("uid-")) for uid in fleet.planner.reports}
    assert reported == set(range(world.background.fleet.size)) - world.background.fleet.muted


def test_nodes_and_versions_reach_the_planner(book: ReportBook) -> None:
    world = draw_world("version", 64, 1)
    background, plant = world.background, world.plant
    fleet = played(world, book, background.until)
    assert len(fleet.planner.state.placements) == background.fleet.size
    received = {change.node for change in plant.versions} - background.fleet.muted
    drivers = {
        int(uid.removeprefix("uid-")): report.inventory.driver
        for uid, report in fleet.planner.reports.items()
    }
    assert {node for node, driver in drivers.items() if driver == "580.95.06"} == received


def test_the_start_of_a_job_is_read(book: ReportBook) -> None:
    world = draw_world("bad job start", 256, 3)
    fleet = played(world, book, world.plant.start + 900.0)
    jobs = {name for uid in fleet.planner.state.placements for name in fleet.planner.state.jobs.names(uid)}
    assert "training/crash-loop" in jobs


def test_a_restart_replaces_the_planner(book: ReportBook) -> None:
    world = draw_world("maintenance and restart", 64, 2)
    restart = world.plant.aggregator_restart
    assert restart is not None
    before = played(world, book, restart)
    first = before.planner
    before.play(world.plant, restart, restart + 300.0)
    assert before.planner is not first
    assert before.planner.reports.keys() == first.reports.keys()
