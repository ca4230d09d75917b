"""Tests for the onsets that vote: of a recovery, after maintenance, and of nodes that a new aggregator misses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.mark import MAINTENANCE_ANNOTATION
from nodeguard.wire.report import ReportedEvidence, ReportedFinding
from tests.fleet.leaves import FIRST, LEAF, down, fleet, wait
from tests.fleet.scene import Fleet

HOURS = 9_000.0


def lost(age: float = 0.0) -> ReportedFinding:
    """Return the warning of a link that was lost and is up again."""
    evidence = (ReportedEvidence("infiniband", "port.link_downed rose by 1 to 1", age=age),)
    return replace(down(age), check="port-link-downed", health=Health.WARNING, evidence=evidence)


def degraded(made: Fleet) -> set[str]:
    return set(made.planner.diagnosis.degraded_domains)


@pytest.mark.parametrize("check", ["port-down", "port-flap"])
def test_the_warning_that_remains_after_a_recovery_is_no_onset(check: str) -> None:
    made = fleet()
    for number in range(4):
        health = Health.FATAL if check == "port-down" else Health.SUSPECT
        made.report(number, replace(down(), check=check, health=health))
        wait(made, 60.0)
        made.after(HOURS)
    for number in range(4):
        made.report(number, lost())
    wait(made, 700.0)
    assert degraded(made) == set()


def test_the_warning_of_the_part_that_recovers_first_is_no_onset() -> None:
    made, parts = fleet(), ("port/mlx5_0/1", "port/mlx5_1/1")
    for number in range(4):
        made.report(number, replace(down(), target="node", targets=parts))
        wait(made, 60.0)
        made.after(HOURS)
    for number in range(4):
        made.report(number, replace(down(HOURS), target=parts[1]), replace(lost(), target=parts[0]))
    wait(made, 700.0)
    assert degraded(made) == set()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([lost()], [down()], id="a fault that gets worse"),
        pytest.param([down()], [down(HOURS), lost()], id="a warning beside a worse finding"),
    ],
)
def test_a_check_that_no_recovery_explains_is_an_onset(
    before: list[ReportedFinding], after: list[ReportedFinding]
) -> None:
    made = fleet()
    for number in range(4):
        made.report(number, *before)
        wait(made, 60.0)
        made.after(HOURS)
    for number in range(4):
        made.report(number, *after)
    wait(made, 700.0)
    assert degraded(made) == {FIRST}


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ({"unschedulable": True}, {"unschedulable": False}),
        ({"annotations": {MAINTENANCE_ANNOTATION: "switch"}}, {"annotations": {}}),
    ],
)
def test_a_finding_that_began_during_maintenance_is_no_onset_after_it(
    begin: dict[str, Any], end: dict[str, Any]
) -> None:
    made = fleet()
    for number in range(LEAF):
        made.change(number, **begin)
    wait(made, 10.0)
    for number in range(LEAF):
        made.report(number, lost())
    wait(made, 600.0)
    for number in range(LEAF):
        made.change(number, **end)
    wait(made, 700.0)
    assert degraded(made) == set()
    for number in range(LEAF):
        made.report(number, down())
    wait(made, 30.0)
    assert degraded(made) == {FIRST}


def dark(made: Fleet, seconds: float) -> None:
    """Let the first leaf be without agents, and the others report, for some seconds."""
    for _ in range(int(seconds / 5.0)):
        made.after(5.0, quiet={f"uid-{number}" for number in range(LEAF)})
        made.carry_out()


def restart_without_first_leaf(made: Fleet) -> None:
    for number in range(LEAF):
        made.reports.pop(f"uid-{number}", None)
    made.restart()


def end_maintenance(made: Fleet, age: float) -> None:
    """The first leaf is uncordoned after 200 s; a minute later its nodes report a lost link. age: of it, in seconds."""
    dark(made, 200.0)
    for number in range(LEAF):
        made.change(number, unschedulable=False)
    dark(made, 60.0)
    for number in range(LEAF):
        made.report(number, down(age))
    wait(made, 60.0)


@pytest.mark.parametrize(("age", "found"), [(400.0, set()), (15.0, {FIRST})])
def test_maintenance_that_ends_before_the_first_report_explains_what_began_in_it(
    age: float, found: set[str]
) -> None:
    made = fleet()
    for number in range(LEAF):
        made.change(number, unschedulable=True)
    restart_without_first_leaf(made)
    end_maintenance(made, age)
    assert degraded(made) == found


@pytest.mark.parametrize(("age", "found"), [(120.0, set()), (15.0, {FIRST})])
def test_maintenance_that_ends_while_agents_are_stale_explains_what_began_in_it(
    age: float, found: set[str]
) -> None:
    made = fleet()
    for number in range(LEAF):
        made.change(number, unschedulable=True)
    end_maintenance(made, age)
    assert degraded(made) == found


def test_two_maintenances_explain_nothing_between_them() -> None:
    made = fleet()
    for is_cordoned in (True, False, True, False):
        wait(made, 60.0)
        for number in range(LEAF):
            made.change(number, unschedulable=is_cordoned)
    for number in range(LEAF):
        made.report(number, down(90.0))
    wait(made, 60.0)
    assert degraded(made) == {FIRST}


@pytest.mark.parametrize(("found", "names"), [(lost, set()), (down, {FIRST})])
def test_links_lost_while_the_aggregator_was_cut_off_may_be_those_of_unread_jobs(
    found: Callable[[float], ReportedFinding], names: set[str]
) -> None:
    made = fleet()
    everywhere = set(made.reports)
    for _ in range(60):
        made.after(5.0, quiet=everywhere)
        made.carry_out()
    for number in range(len(everywhere)):
        # The late report of a spool comes first.
        made.report(number, age=100.0)
    made.after(5.0, quiet=everywhere)
    for number in range(len(everywhere)):
        made.report(number, *[found(200.0)] * (number < LEAF))
    wait(made, 1_000.0)
    assert degraded(made) == names


def test_a_restart_just_after_a_rack_goes_dark_leads_to_the_diagnosis() -> None:
    made = fleet()
    dark(made, 30.0)
    restart_without_first_leaf(made)
    dark(made, 15.0)
    for number in range(LEAF):
        made.change(number, ready=False, not_ready_since=made.wall)
    dark(made, 120.0)
    assert degraded(made) == {FIRST}
    assert made.marked() == list(range(LEAF))
    restart_without_first_leaf(made)
    dark(made, 2_400.0)
    assert made.marked() == list(range(LEAF))


@pytest.mark.parametrize("unready", [0.0, 3_600.0, -3_600.0])
def test_nodes_without_reports_do_not_vote_unless_they_became_not_ready_recently(unready: float) -> None:
    made = fleet()
    if unready:
        for number in range(LEAF):
            made.change(number, ready=False, not_ready_since=made.wall - unready)
    restart_without_first_leaf(made)
    dark(made, 1_000.0)
    assert degraded(made) == set()


def test_new_nodes_without_reports_do_not_vote() -> None:
    made = fleet()
    made.restart()
    wait(made, 100.0)
    for number in range(100, 108):
        made.add(number, labels={"pod": "p0", "rack": "r13"}, ready=False, not_ready_since=made.wall)
        made.reports.pop(f"uid-{number}")
        made.planner.state._forget_report(f"uid-{number}")
        made.planner.state.liveness.forget(f"uid-{number}")
    wait(made, 300.0)
    assert degraded(made) == set()
