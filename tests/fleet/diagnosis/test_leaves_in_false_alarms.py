"""Tests for nodeguard.fleet.diagnosis.suppressed_checks: leaves that fail during a false alarm of their check."""

from __future__ import annotations

import pytest

from tests.fleet.diagnosis.test_lasting_faults import POLICY, fleet
from tests.fleet.diagnosis.test_suppressed_checks import (
    advance,
    degraded,
    quiet_fleet,
    scattered,
    suppressed,
    warning,
)
from tests.fleet.leaves import down, fails, well

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("is_repaired", [True, False])
def test_a_leaf_that_dies_while_its_check_is_suppressed_is_degraded(is_repaired: bool) -> None:
    made = quiet_fleet(800, POLICY, history=20_000.0)
    alarm = [number for number in scattered(made, 60) if not 16 <= number < 24][:5]
    fails(made, alarm)
    advance(made, 60.0)
    assert suppressed(made) == {"port-down"}
    if is_repaired:
        well(made, alarm)
    advance(made, 600.0)
    fails(made, range(16, 24))
    advance(made, 60.0)
    assert degraded(made) == ["fabric/p0/r2"]
    advance(made, 50_000.0, 100.0)
    assert degraded(made) == ["fabric/p0/r2"]
    assert set(made.marked()) >= set(range(16, 24))
    # Neither the suppression nor its end covers the nodes of the leaf.
    well(made, range(16, 24))
    advance(made, 7_200.0, 60.0)
    fails(made, (16,))
    advance(made, 120.0)
    assert 16 in made.marked()


def test_a_leaf_that_dies_by_another_check_during_a_false_alarm_is_degraded() -> None:
    made = fleet(64, 16, 1_024, POLICY)
    advance(made, 20_000.0, 500.0)
    # The leaves below, with one node of the false alarm.
    leaves = {2, 14, 26}
    alarm = [35, *(number for number in scattered(made, 300) if number // 16 not in leaves)][:40]
    for number in alarm:
        made.report(number, warning("port-link-downed"))
    advance(made, 120.0)
    assert suppressed(made) == {"port-link-downed"}
    for number in alarm:
        made.report(number)
    advance(made, 60.0)
    # Few nodes of two other leaves have the fault, too.
    for number in (224, 229, 233, 416, 421, 425, *range(33, 47)):
        made.report(number, warning("port-symbol-errors"))
    advance(made, 60.0)
    assert degraded(made) == ["fabric/p0/r2"]


@pytest.mark.parametrize("every", [2.0, 30.0])
def test_a_false_alarm_that_spreads_while_it_is_suppressed_degrades_no_leaf(every: float) -> None:
    made = quiet_fleet(400, POLICY, history=20_000.0)
    for number in scattered(made, 400):
        made.report(number, down())
        advance(made, every, every)
        assert degraded(made) == []
    assert suppressed(made) == {"port-down"}


def test_whole_leaves_of_many_pods_at_once_are_part_of_the_false_alarm() -> None:
    made = fleet(40, 8, 800, POLICY)
    advance(made, 20_000.0, 500.0)
    fails(made, [number for number in scattered(made, 60) if number % 40 >= 8][:12])
    advance(made, 660.0)
    assert suppressed(made) == {"port-down"}
    fails(made, [first + number for first in (320, 400, 480, 560) for number in range(8)])
    advance(made, 120.0)
    assert (degraded(made), made.marked()) == ([], [])


def test_old_findings_of_another_check_do_not_make_a_leaf_of_a_false_alarm_degraded() -> None:
    made = fleet(40, 8, 800, POLICY)
    advance(made, 20_000.0, 500.0)
    for number in range(320, 323):
        made.report(number, warning("port-symbol-errors"))
        advance(made, 900.0, 60.0)
        made.report(number)
        advance(made, 3_600.0, 300.0)
    fails(made, [number for number in scattered(made, 60) if number % 40 >= 8][:12])
    advance(made, 660.0)
    fails(made, [first + number for first in (320, 400, 480, 560) for number in range(8)])
    advance(made, 120.0)
    assert (degraded(made), made.marked(), suppressed(made)) == ([], [], {"port-down"})


def test_an_older_finding_elsewhere_does_not_hide_a_leaf_that_dies_during_a_false_alarm() -> None:
    made = quiet_fleet(800, POLICY, history=20_000.0)
    alarm = [number for number in scattered(made, 60) if not 16 <= number < 24]
    fails(made, alarm[:5])
    advance(made, 660.0)
    fails(made, range(16, 24))
    made.report(alarm[9], down(1_000.0))
    advance(made, 60.0)
    assert degraded(made) == ["fabric/p0/r2"]


def test_a_leaf_that_falls_silent_while_that_is_suppressed_is_degraded() -> None:
    made = fleet(40, 8, 800, POLICY)
    quiet = {f"uid-{number}" for number in range(3, 800, 50)}

    def silence(seconds: float) -> None:
        for _ in range(int(seconds / 5.0)):
            made.after(5.0, quiet)
            made.carry_out(rounds=12)

    advance(made, 20_000.0, 500.0)
    silence(840.0)
    assert suppressed(made) == {"agent-silent"}
    quiet |= {f"uid-{number}" for number in range(16, 24)}
    silence(180.0)
    assert degraded(made) == ["fabric/p0/r2"]
