"""Tests for nodeguard.fleet.diagnosis.suspected_checks: versions, and leaves that are not like others."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import DataStatus
from nodeguard.model.policy import TopologyLabels
from nodeguard.wire.report import Inventory
from tests.fleet.diagnosis.test_suppressed_checks import (
    REAL,
    SUSPECT,
    advance,
    degraded,
    lost,
    quiet_fleet,
    scattered,
    suppressed,
)
from tests.fleet.leaves import down
from tests.fleet.scene import Fleet, finding

pytestmark = pytest.mark.slow


def versioned_fleet(size: int, pod: int = 40) -> Fleet:
    """Return a fleet with one driver that has run for hours."""
    made = Fleet(0, REAL)
    for number in range(size):
        made.add(number, labels={"pod": f"p{number // pod}", "rack": f"r{number // 8}"})
        made.report(number, inventory=Inventory(driver="1"))
    advance(made, 20_000.0, 500.0)
    return made


@pytest.mark.parametrize("how", ["", "under a cordon", "without a driver in between"])
def test_a_false_alarm_after_an_upgrade_is_the_versions(how: str) -> None:
    made = versioned_fleet(320)
    for leaf in (2, 3):
        numbers = range(leaf * 8, leaf * 8 + 8)
        for number in numbers:
            made.change(number, unschedulable=how == "under a cordon")
            if how == "without a driver in between":
                made.report(number)
                advance(made, 30.0, 15.0)
            made.report(number, inventory=Inventory(driver="2"))
            advance(made, 30.0, 15.0)
            made.change(number, unschedulable=False)
        advance(made, 60.0, 30.0)
        for number in numbers:
            made.report(number, down(), inventory=Inventory(driver="2"))
        advance(made, 300.0, 15.0)
        assert (degraded(made), made.marked()) == ([], [])
        assert made.planner.diagnosis.suppressed_checks["port-down"].domain == "driver/2"


def test_a_spine_with_an_old_version_of_its_own_is_degraded() -> None:
    made = Fleet(0, REAL)
    for number in range(640):
        made.add(number, labels={"pod": f"p{number // 128}", "rack": f"r{number // 16}"})
        made.report(number, inventory=Inventory(driver=f"{number // 128}"))
    advance(made, 20_000.0, 500.0)
    for number in random.Random(1).sample(range(128, 256), 60):
        made.report(number, down(), inventory=Inventory(driver="1"))
        advance(made, 30.0)
    advance(made, 60.0)
    assert (degraded(made), suppressed(made)) == (["fabric/p1"], set())


def test_a_leaf_that_dies_hours_after_an_upgrade_is_degraded() -> None:
    made = versioned_fleet(320)
    for number in range(16, 24):
        made.report(number, inventory=Inventory(driver="2"))
    advance(made, 5 * 3_600.0, 300.0)
    for number in range(16, 24):
        made.report(number, down(), inventory=Inventory(driver="2"))
    advance(made, 300.0, 15.0)
    assert (degraded(made), suppressed(made)) == (["fabric/p0/r2"], set())


def test_a_suppression_in_a_version_stays_on_nodes_that_get_the_next_version() -> None:
    made = versioned_fleet(400)
    nodes = scattered(made, 120)
    for number in nodes:
        made.report(number, inventory=Inventory(driver="2"))
    advance(made, 20_000.0, 200.0)
    began = made.mono
    for number in nodes[:60]:
        made.report(number, lost(), inventory=Inventory(driver="2"))
    advance(made, 1_200.0, 30.0)
    assert made.planner.diagnosis.suppressed_checks["gpu-lost"].domain == "driver/2"
    for number in nodes:
        found = (lost(age=made.mono - began),) if number in nodes[:60] else ()
        made.report(number, *found, inventory=Inventory(driver="3"))
        advance(made, 60.0, 30.0)
        assert len(made.marked()) <= 4


@pytest.mark.parametrize(("blocks", "size"), [(1, 512), (2, 512), (4, 1_024)])
def test_a_false_alarm_in_few_large_leaves_is_suppressed(blocks: int, size: int) -> None:
    policy = replace(REAL, topologies=(TopologyLabels("fabric", ("block",)),))
    made = Fleet(0, policy)
    for number in range(size):
        made.add(number, labels={"block": f"b{number % blocks}"})
    advance(made, 20_000.0, 500.0)
    worst = 0
    for number in scattered(made, size // 10):
        made.report(number, down())
        advance(made, 60.0, 30.0)
        worst = max(worst, len(made.marked()))
    assert suppressed(made) == {"port-down"}
    assert worst <= 8


def test_a_false_alarm_in_one_pod_with_a_new_version_is_suppressed() -> None:
    made = versioned_fleet(800, pod=200)
    worst = 0
    for number in random.Random(1).sample(range(200), 40):
        made.report(number, down(), inventory=Inventory(driver="2"))
        advance(made, 600.0, 60.0)
        worst = max(worst, len(made.marked()))
    assert (degraded(made), suppressed(made)) == ([], {"port-down"})
    assert worst <= 8


def test_a_false_alarm_that_goes_on_in_another_check_is_suppressed() -> None:
    made = quiet_fleet(800, REAL, history=20_000.0)
    nodes = scattered(made, 80)
    for number in nodes:
        made.report(number, down())
    advance(made, 600.0, 15.0)
    for number in nodes:
        made.report(number, SUSPECT)
    worst = 0
    for _ in range(80):
        advance(made, 60.0, 15.0)
        worst = max(worst, len(made.marked()))
    assert suppressed(made) >= {SUSPECT.check}
    assert worst <= 8


@pytest.mark.parametrize("is_read", [True, False], ids=["", "while nothing can be read"])
def test_a_false_alarm_under_a_cordon_stays_suppressed_in_the_next_version(is_read: bool) -> None:
    made = versioned_fleet(400)
    nodes = scattered(made, 120)
    for number in nodes:
        made.report(number, inventory=Inventory(driver="2"))
    advance(made, 20_000.0, 200.0)
    alarm, cordoned = nodes[:40], nodes[40:60]
    for number in cordoned:
        made.change(number, unschedulable=True)
    began = made.mono
    for number in (*alarm, *cordoned):
        made.report(number, lost(), inventory=Inventory(driver="2"))
    advance(made, 1_200.0, 30.0)
    assert made.planner.diagnosis.suppressed_checks["gpu-lost"].domain == "driver/2"
    for number in cordoned:
        if not is_read:
            unread = replace(lost(age=made.mono - began), data_status=DataStatus.STALE)
            made.report(number, unread, inventory=Inventory())
        made.report(number, lost(age=made.mono - began), inventory=Inventory(driver="3"))
        made.change(number, unschedulable=False)
        advance(made, 60.0, 30.0)
        assert made.marked() == []


def test_a_false_alarm_in_one_pod_with_an_older_version_of_its_own_is_suppressed() -> None:
    made = versioned_fleet(800, pod=200)
    # The kernel is the rarer version, and the driver the new one.
    for number in range(100):
        made.report(number, inventory=Inventory(driver="1", kernel="5"))
    advance(made, 20_000.0, 500.0)
    for number in range(200):
        kernel = "5" if number < 100 else ""
        made.report(number, inventory=Inventory(driver="2", kernel=kernel))
    advance(made, 600.0, 60.0)
    worst = 0
    for number in random.Random(1).sample(range(100), 40):
        made.report(number, down(), inventory=Inventory(driver="2", kernel="5"))
        advance(made, 600.0, 60.0)
        worst = max(worst, len(made.marked()))
    assert (degraded(made), suppressed(made)) == ([], {"port-down"})
    assert worst <= 8


@pytest.mark.parametrize("has_new_driver", [True, False])
def test_faults_that_begin_under_a_cordon_count_for_the_driver_that_the_node_received(
    has_new_driver: bool,
) -> None:
    made = versioned_fleet(64)
    mismatch = finding("driver-library-mismatch", "node", age=0.0, topologies=("driver",), fact=True)
    for number in (3, 19, 42):
        made.change(number, unschedulable=True)
        inventory = Inventory(driver="2" if has_new_driver else "1")
        made.report(number, inventory=inventory)
        advance(made, 60.0, 30.0)
        made.report(number, mismatch, inventory=inventory)
        advance(made, 60.0, 30.0)
        made.change(number, unschedulable=False)
    advance(made, 60.0, 15.0)
    checks = made.planner.diagnosis.suppressed_checks.items()
    named = {"driver-library-mismatch": "driver/2"} if has_new_driver else {}
    assert {check: suppression.domain for check, suppression in checks} == named


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_version_that_nodes_received_before_a_restart_is_named_if_agents_report_when(
    is_reported: bool,
) -> None:
    made = versioned_fleet(64)
    mismatch = finding("driver-library-mismatch", "node", age=0.0, topologies=("driver",), fact=True)
    inventory, numbers = Inventory(driver="2"), (3, 19, 42)
    for number in numbers:
        made.report(number, inventory=inventory)
    advance(made, 60.0, 30.0)
    made.restart()
    advance(made, 60.0, 30.0)
    for number in numbers:
        received = {"driver/2": 120.0, "driver/3": 1.0} if is_reported else {}
        made.report(number, mismatch, inventory=inventory, received=received)
    advance(made, 60.0, 15.0)
    checks = made.planner.diagnosis.suppressed_checks.items()
    named = {"driver-library-mismatch": "driver/2"} if is_reported else {}
    assert {check: suppression.domain for check, suppression in checks} == named
