"""Faults on which an earlier aggregator decided: after a restart, they count only beside a new one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.wire.report import ReportedFinding
from tests.fleet.leaves import FIRST, down, fleet, wait
from tests.fleet.scene import Fleet, finding
from tests.fleet.test_restored_suppressions import POLICY, pass_time, restart

FLAP: ReportedFinding = replace(down(), check="port-flap", health=Health.SUSPECT)
LOST: ReportedFinding = replace(down(), check="port-link-downed", health=Health.WARNING)
LEAF = range(8)


def maintained(fault: ReportedFinding) -> Fleet:
    """Return a fleet with a leaf that operators cordoned while its switch was off."""
    made = fleet(80, POLICY)
    pass_time(made, 900.0, 60.0)
    for number in LEAF:
        made.change(number, unschedulable=True)
    pass_time(made, 60.0, 5.0)
    for number in LEAF[:6]:
        made.report(number, fault)
    pass_time(made, 600.0, 60.0)
    return made


def uncordon(made: Fleet) -> None:
    for number in LEAF:
        made.change(number, unschedulable=False)


@pytest.mark.parametrize("fault", [down(), FLAP, LOST], ids=lambda item: item.check)
@pytest.mark.parametrize("is_restarted_under_the_cordon", [False, True])
def test_a_restart_after_a_maintenance_names_no_leaf(
    fault: ReportedFinding, is_restarted_under_the_cordon: bool
) -> None:
    made = maintained(fault)
    if is_restarted_under_the_cordon:
        restart(made)
        pass_time(made, 600.0, 60.0)
        uncordon(made)
    else:
        uncordon(made)
        wait(made, 120.0)
        before = made.marked()
        restart(made)
        wait(made, 120.0)
        assert made.marked() == before
    wait(made, 120.0)
    assert not made.planner.diagnosis.degraded_domains


def test_faults_from_a_maintenance_count_beside_a_new_one() -> None:
    made = maintained(down())
    uncordon(made)
    restart(made)
    wait(made, 60.0)
    assert not made.planner.diagnosis.degraded_domains
    made.report(6, down())
    wait(made, 60.0)
    assert set(made.planner.diagnosis.degraded_domains) == {FIRST}


def test_a_slow_leaf_keeps_its_votes_over_a_restart() -> None:
    made = fleet(80, POLICY)
    pass_time(made, 900.0, 60.0)
    for number in LEAF[:3]:
        made.report(number, LOST)
        pass_time(made, 900.0, 60.0)
    restart(made)
    pass_time(made, 600.0, 60.0)
    assert not made.planner.diagnosis.degraded_domains
    made.report(3, LOST)
    pass_time(made, 900.0, 60.0)
    assert set(made.planner.diagnosis.degraded_domains) == {FIRST}


def test_a_restart_soon_after_a_leaf_failed_does_not_lose_it() -> None:
    made = fleet(80, POLICY)
    pass_time(made, 900.0, 60.0)
    for number in LEAF:
        made.report(number, down())
    pass_time(made, 10.0, 5.0)
    restart(made)
    wait(made, 60.0)
    assert set(made.planner.diagnosis.degraded_domains) == {FIRST}


def test_a_leaf_that_the_earlier_aggregator_could_not_reach_is_named() -> None:
    made = fleet(80, POLICY)
    pass_time(made, 900.0, 60.0)
    dark = {f"uid-{number}": made.reports.pop(f"uid-{number}") for number in LEAF}
    pass_time(made, 600.0, 60.0, dark.keys())
    restart(made)
    pass_time(made, 600.0, 60.0, dark.keys())
    for number in LEAF:
        made.report(number, down(age=1_150.0))
    wait(made, 120.0)
    assert FIRST in made.planner.diagnosis.degraded_domains


def test_a_check_that_fired_widely_under_cordons_is_not_suppressed_after_a_restart() -> None:
    made = fleet(80, POLICY)
    pass_time(made, 20_000.0, 400.0)
    spread = range(0, 80, 9)
    for number in spread:
        made.change(number, unschedulable=True)
    pass_time(made, 60.0, 5.0)
    for number in spread:
        made.report(number, finding(age=0.0))
    pass_time(made, 600.0, 60.0)
    for number in spread:
        made.change(number, unschedulable=False)
    pass_time(made, 600.0, 60.0)
    assert not made.planner.diagnosis.suppressed_checks
    restart(made)
    pass_time(made, 600.0, 5.0)
    assert not made.planner.diagnosis.suppressed_checks
