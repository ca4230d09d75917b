"""Tests for nodeguard.fleet.diagnosis.suppressed_checks: which marks a suppression releases."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.policy import GracePeriods
from nodeguard.wire.report import ReportedEvidence
from tests.fleet.diagnosis.test_suppressed_checks import (
    LOG,
    NVML,
    REAL,
    USUAL,
    advance,
    lost,
    quiet_fleet,
    report_in_turn,
    scattered,
    suppressed,
)
from tests.fleet.leaves import FIRST, LEAF, domains, down, fails, fleet, wait, well
from tests.fleet.scene import Fleet, finding
from tests.fleet.test_restored_suppressions import restart


def retracts(made: Fleet, check: str = "gpu-lost") -> bool:
    return made.planner.diagnosis.suppressed_checks[check].retracts


@pytest.mark.parametrize("is_repaired", [False, True])
def test_the_nodes_of_a_degraded_leaf_do_not_make_a_false_alarm_wide(is_repaired: bool) -> None:
    made = quiet_fleet(160, replace(USUAL, grace=GracePeriods(5.0, 60.0, 90.0)), history=30_000.0)
    made.report(9, down())
    advance(made, 300.0)
    made.report(70, down())
    advance(made, 300.0)
    for number in range(24, 32):
        made.report(number, down())
    advance(made, 120.0)
    if is_repaired:
        well(made, range(24, 32))
        advance(made, 2_400.0, 30.0)
    for number in (100, 110, 118, 130):
        made.report(number, down())
    advance(made, 700.0)
    assert (suppressed(made), retracts(made, "port-down")) == ({"port-down"}, False)
    assert 70 in made.marked()


def test_a_second_episode_releases_no_mark_from_between_the_two() -> None:
    made = quiet_fleet(200, REAL, history=20_000.0)
    order = scattered(made, 60)
    for number in order[:20]:
        made.report(number, lost())
    advance(made, 30_000.0, 60.0)
    advance(made, 86_400.0, 600.0)
    made.report(order[50], lost())
    advance(made, 86_400.0, 600.0)
    assert made.marked() == [order[50]]
    for number in order[20:34]:
        made.report(number, lost())
    advance(made, 900.0)
    assert retracts(made)
    assert order[50] in made.marked()


@pytest.mark.parametrize("size", [64, 160])
def test_five_nodes_release_no_marks_of_five_broken_nodes_of_the_same_day(size: int) -> None:
    made = quiet_fleet(size, REAL, history=172_800.0)
    order, marked = scattered(made, 10), set[int]()
    for broken, forged in zip(order[:5], order[5:], strict=True):
        for number in (broken, forged):
            made.report(number, lost())
            advance(made, 5_400.0, 300.0)
            marked |= set(made.marked())
    advance(made, 7_200.0, 300.0)
    assert suppressed(made) == {"gpu-lost"}
    assert marked & {*order[:5]}
    assert set(made.marked()) == marked


def wide_false_alarm() -> tuple[Fleet, list[int]]:
    """Return a fleet with a wide false alarm, and its three nodes on which two sources prove the fault."""
    made = quiet_fleet(200, history=20_000.0)
    nodes = scattered(made, 30)
    proven, false = nodes[:3], nodes[3:]
    report_in_turn(made, false[:2], lost(), 20.0)
    report_in_turn(made, proven, lost(LOG, NVML), 20.0)
    for number in false[2:]:
        made.report(number, lost())
    advance(made, 120.0)
    assert retracts(made)
    assert made.marked() == sorted(proven)
    return made, proven


def test_a_node_that_has_not_reported_since_a_restart_keeps_its_mark() -> None:
    made, proven = wide_false_alarm()
    late = {f"uid-{number}": made.reports.pop(f"uid-{number}") for number in proven}
    restart(made)
    assert made.marked() == sorted(proven)
    made.reports |= late
    for number in proven:
        made.report(number, lost(LOG, NVML, age=300.0))
    advance(made, 60.0)
    assert made.marked() == sorted(proven)


def test_a_stale_node_keeps_its_mark() -> None:
    made = quiet_fleet(200, REAL, history=20_000.0)
    order = scattered(made, 40)
    report_in_turn(made, order[:3], lost(), 20.0)
    quiet = [f"uid-{order[0]}"]
    for _ in range(20):
        made.after(5.0, quiet)
        made.carry_out()
    assert order[0] in made.marked()
    for number in order[3:]:
        made.report(number, lost())
    for _ in range(300):
        made.after(5.0, quiet)
        made.carry_out(rounds=12)
    assert retracts(made)
    assert made.marked() == [order[0]]


def test_a_late_report_releases_no_mark() -> None:
    made = quiet_fleet(200, REAL, history=20_000.0)
    broken, *false = scattered(made, 40)
    other = finding("pcie-errors", age=0.0, health=Health.WARNING, evidence=(ReportedEvidence("aer", "x"),))
    report_in_turn(made, false[:2], lost(), 20.0)
    made.report(broken, lost(), other)
    advance(made, 30.0)
    for number in false[2:25]:
        made.report(number, lost())
    advance(made, 660.0)
    assert retracts(made)
    assert broken in made.marked()
    made.report(broken, lost(), age=600.0)
    made.carry_out(rounds=12)
    made.report(broken, lost(age=700.0), replace(other, age=700.0))
    advance(made, 60.0)
    assert broken in made.marked()


@pytest.mark.parametrize("jump", ["before the false alarm", "in it"])
def test_no_mark_from_before_an_episode_is_released_after_a_jump_of_the_clock(jump: str) -> None:
    made = quiet_fleet(200, REAL, history=20_000.0)
    broken, *false = scattered(made, 40)
    made.report(broken, lost())
    advance(made, 1_800.0, 60.0)
    if jump == "before the false alarm":
        made.wall -= 3_600.0
        advance(made, 60.0)
    for number in false[:20]:
        made.report(number, lost())
    advance(made, 60.0)
    assert retracts(made)
    if jump == "in it":
        made.wall -= 3_600.0
    advance(made, 4_200.0, 60.0)
    made.report(broken, lost(age=6_060.0), finding("gpu-hot", health=Health.WARNING, age=0.0))
    advance(made, 600.0, 60.0)
    assert broken in made.marked()


def test_a_small_step_of_the_clock_keeps_no_mark_of_a_false_alarm() -> None:
    made = quiet_fleet(400, REAL, history=20_000.0)
    order = scattered(made, 60)
    report_in_turn(made, order[:4], lost(), 120.0)
    assert len(made.marked()) == 4
    made.wall += 1.5
    for number in order[4:40]:
        made.report(number, lost())
    advance(made, 3_600.0, 30.0)
    assert made.marked() == []


def test_the_marks_of_a_domain_that_a_false_alarm_replaces_are_released() -> None:
    made = fleet(160)
    fails(made, (70, 100, 0, 1, 2))
    wait(made, 60.0)
    assert made.taints(LEAF - 1) == ["nodeguard.dev/domain-degraded=fabric"]
    for number in random.Random(1).sample(range(LEAF, 160), 30):
        fails(made, [number])
        wait(made, 30.0)
    states = {incident.target: incident.state for incident in domains(made)}
    assert states == {FIRST: IncidentState.RESOLVED, "check/port-down": IncidentState.OPEN}
    assert made.marked() == []
