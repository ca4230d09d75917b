"""Tests for nodeguard.fleet.diagnosis.suppressed_checks: suppressions of checks that a restart restores."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident
from nodeguard.model.instant import Instant
from nodeguard.model.node import Node
from nodeguard.model.policy import GracePeriods
from nodeguard.simulate.agent_reports import age_report
from nodeguard.wire.report import Inventory, ReportedFinding
from tests.fleet.leaves import ENFORCED, FIRST, LEAF, down, fleet
from tests.fleet.scene import Fleet, finding
from tests.policies import diagnosis_policy

POLICY = replace(ENFORCED, diagnosis=diagnosis_policy(enforce=("fabric",)))
FLAP: ReportedFinding = replace(down(), check="port-flap", health=Health.SUSPECT)

# Longer than a check that still fires on its nodes is suppressed on all nodes.
LONGEST = 30_000.0


def suppressed_fleet(numbers: list[int], fault: ReportedFinding) -> Fleet:
    """Return a fleet in which a check fires on nodes that share nothing, and is suppressed."""
    made = fleet(48, POLICY)
    pass_time(made, 2_000.0, 500.0)
    for number in numbers:
        made.report(number, fault)
    pass_time(made, 60.0, 5.0)
    assert set(made.planner.diagnosis.suppressed_checks) == {fault.check}
    return made


def pass_time(made: Fleet, seconds: float, turn: float, quiet: Collection[str] = ()) -> None:
    for _ in range(int(seconds / turn)):
        made.after(turn, quiet)
        made.carry_out()


def restart(made: Fleet, *clears: tuple[Incident, float]) -> None:
    """Start a new aggregator with the recorded incidents; the agents report before its first plan. clears: of
    open incidents that were not carried out, with their time.
    """
    incidents = made.planner.all_incidents()
    for uid, report in made.reports.items():
        made.reports[uid] = replace(age_report(report, made.mono - made.received[uid].mono), sequence=1_000)
    made.restart(incidents=incidents)
    for incident, at in clears:
        made.planner.clear(incident, Instant(at, made.now.mono_of(at), made.now.boot_id))
    made.carry_out()


def test_a_check_stays_suppressed_on_a_cordoned_node_that_shows_it() -> None:
    spread = [0, 9, 17, 26, 34]
    made = suppressed_fleet(spread, finding(age=0.0))
    made.change(34, unschedulable=True)
    pass_time(made, LONGEST, 100.0)
    assert made.marked() == []
    restart(made)
    pass_time(made, LONGEST, 100.0)
    assert made.planner.diagnosis.suppressed_checks["gpu-lost"].recovered
    assert made.marked() == []


def test_a_suppressed_check_does_not_vote_with_reports_from_before_the_first_plan() -> None:
    # A leaf is among the nodes, and so are others in every leaf.
    spread = [*range(LEAF), *range(LEAF, 48, 4), *range(LEAF + 1, 48, 4)]
    made = suppressed_fleet(spread, FLAP)
    restart(made)
    pass_time(made, 1_200.0, 5.0)
    assert not made.planner.diagnosis.degraded_domains
    assert made.marked() == []


def test_votes_for_another_check_count_with_reports_from_before_the_first_plan() -> None:
    both = range(4)
    made = suppressed_fleet([*both, *range(LEAF, 48, 4)], FLAP)
    for number in both:
        made.report(number, replace(FLAP, age=60.0), replace(FLAP, check="port-symbol-errors"))
    restart(made)
    pass_time(made, 30.0, 5.0)
    assert set(made.planner.diagnosis.suppressed_checks) == {FLAP.check}
    assert set(made.planner.diagnosis.degraded_domains) == {FIRST}


def test_a_mark_from_after_the_episode_stays() -> None:
    made = suppressed_fleet([*range(0, 40, 3)], finding(age=0.0))
    pass_time(made, LONGEST, 100.0)
    assert made.planner.diagnosis.suppressed_checks["gpu-lost"].recovered
    made.report(47, finding(age=0.0))
    pass_time(made, 30.0, 5.0)
    assert made.marked() == [47]
    restart(made)
    pass_time(made, 1_200.0, 100.0)
    assert made.marked() == [47]


def test_the_end_of_a_suppression_of_one_version_is_the_same_after_a_restart() -> None:
    for is_restarted in (False, True):
        spread = [0, 9, 17, 26, 34, 43]
        made = fleet(48, POLICY)
        for number in range(48):
            made.report(number, inventory=Inventory(driver="580.2" if number in spread else "580.1"))
        pass_time(made, 2_000.0, 500.0)
        for number in spread:
            made.report(number, FLAP, inventory=Inventory(driver="580.2"))
        pass_time(made, 60.0, 5.0)
        assert made.planner.diagnosis.suppressed_checks["port-flap"].domain == "driver/580.2"
        for number in (2, 3):
            made.report(number, FLAP, inventory=Inventory(driver="580.1"))
        pass_time(made, 30.0, 5.0)
        [incident] = (
            item for item in made.planner.tracker.recorded.by_uid[""].values() if item.cause == "port-flap"
        )
        if is_restarted:
            restart(made, (incident, made.wall))
        else:
            made.planner.clear(incident, made.now)
            made.carry_out()
        voting = made.planner.diagnosis.voting
        # The findings elsewhere were never suppressed: they count on.
        assert sorted(voting.current_voters(made.mono)) == ["uid-2", "uid-3"]
        assert sorted(voting.firings["port-flap"].latest) == ["uid-2", "uid-3"]


def test_a_check_stays_suppressed_though_no_node_with_it_may_vote() -> None:
    spread = [0, 9, 17, 26, 34]
    made = suppressed_fleet(spread, finding(age=0.0))
    for number in spread:
        made.change(number, unschedulable=True)
    pass_time(made, LONGEST, 100.0)
    restart(made)
    pass_time(made, LONGEST, 100.0)
    assert made.marked() == []


def test_a_check_that_is_suppressed_for_a_version_is_so_on_a_cordoned_node() -> None:
    made = fleet(48, replace(POLICY, grace=GracePeriods(60.0, 60.0, 90.0)))
    broken = replace(finding(age=0.0), check="driver-broken", target="node", topologies=("driver",))
    for number in range(48):
        made.report(number, inventory=Inventory(driver="580.2" if number < 8 else "580.1"))
    pass_time(made, 2_000.0, 100.0)
    for number in (0, 3, 4, 6, 7):
        made.report(number, broken, inventory=Inventory(driver="580.2"))
    pass_time(made, 60.0, 5.0)
    assert made.planner.diagnosis.suppressed_checks["driver-broken"].domain == "driver/580.2"
    made.change(6, unschedulable=True)
    pass_time(made, 60.0, 5.0)
    assert made.marked() == []


OLD, NEW = Inventory(driver="580.1"), Inventory(driver="580.2")
WRONG = range(0, 40, 3)


def suppressed_in_one_version() -> Fleet:
    """Return a fleet with a false alarm on 14 of the 40 nodes with the old driver, which lasts for hours."""
    made = fleet(80, POLICY)
    for number in range(80):
        made.report(number, inventory=OLD if number < 40 else NEW)
    pass_time(made, 2_000.0, 500.0)
    for number in WRONG:
        made.report(number, finding(age=0.0), inventory=OLD)
    pass_time(made, LONGEST, 100.0)
    [suppressed] = made.planner.diagnosis.suppressed_checks.values()
    assert (suppressed.domain, suppressed.recovered, made.marked()) == ("driver/580.1", True, [])
    return made


def test_a_report_without_a_version_does_not_end_a_suppression() -> None:
    made = suppressed_in_one_version()
    made.report(6, finding(age=LONGEST), inventory=Inventory())
    pass_time(made, 60.0, 5.0)
    assert made.marked() == []


def test_a_false_alarm_that_lasts_in_the_next_version_stays_suppressed() -> None:
    made = suppressed_in_one_version()
    for number in WRONG:
        made.report(number, finding(age=LONGEST), inventory=NEW)
    pass_time(made, 600.0, 5.0)
    assert made.marked() == []


def test_a_restored_suppression_ends_though_some_nodes_have_no_agent() -> None:
    made = suppressed_fleet([*range(0, 40, 3)], finding(age=0.0))
    for number in range(100, 106):
        made.see(Node(f"node-{number}", f"uid-{number}", labels={"pod": "p0", "rack": "r0"}, gpus=8))
    restart(made)
    pass_time(made, 120.0, 30.0)
    for number in range(0, 40, 3):
        made.report(number)
    pass_time(made, 100_000.0, 500.0)
    assert set(made.planner.diagnosis.suppressed_checks) == set()
