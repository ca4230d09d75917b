"""Tests for nodeguard.fleet.diagnosis.suppressed_checks, with the real planner: which nodes stay out."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Action, Health
from nodeguard.model.policy import Budget, CheckLimit, GracePeriods, Policy
from nodeguard.wire.report import Inventory, ReportedComponent, ReportedEvidence, ReportedFinding
from tests.fleet.leaves import ENFORCED, PORT, down, fleet
from tests.fleet.scene import Fleet, finding

pytestmark = pytest.mark.slow

# Default budgets; and with default grace periods.
USUAL = replace(ENFORCED, budget=Budget())
REAL = replace(USUAL, grace=GracePeriods())

LOG, NVML = ReportedEvidence("kmsg", "NVRM: Xid 79"), ReportedEvidence("nvml", "gpu.error GPU_IS_LOST")
FIRMWARE = Inventory(components={PORT: ReportedComponent(firmware="28.39")})
FIRMWARE_DEAD = replace(down(), check="nic-firmware-dead", topologies=("firmware",))
SUSPECT = replace(down(), check="port-receive-errors", health=Health.SUSPECT)


def warning(check: str, age: float = 0.0) -> ReportedFinding:
    """Return a warning about a port, which shared hardware of the fabric can cause."""
    return replace(down(age), check=check, health=Health.WARNING, action=Action.MONITOR)


def lost(*evidence: ReportedEvidence, age: float = 0.0) -> ReportedFinding:
    return finding(age=age, evidence=evidence or (NVML,))


def advance(made: Fleet, seconds: float, step: float = 5.0) -> None:
    """Advance the time and carry out the plans."""
    for _ in range(int(seconds / step)):
        made.after(step)
        made.carry_out(rounds=12)


def report_in_turn(made: Fleet, numbers: Iterable[int], item: ReportedFinding, every: float) -> None:
    for number in numbers:
        made.report(number, item)
        advance(made, every)


def suppressed(made: Fleet) -> set[str]:
    return set(made.planner.diagnosis.suppressed_checks)


def degraded(made: Fleet) -> list[str]:
    return sorted(made.planner.diagnosis.degraded_domains)


def quiet_fleet(size: int, policy: Policy = USUAL, history: float = 900.0) -> Fleet:
    """Return a fleet without faults that has run for `history` seconds, longer than the shortest window."""
    made = fleet(size, policy)
    advance(made, history, history / 15)
    return made


def scattered(made: Fleet, count: int, seed: int = 1) -> list[int]:
    """Return the numbers of some nodes at random."""
    return random.Random(seed).sample(range(len(made.nodes)), count)


# Retraction


@pytest.mark.parametrize("size", [64, 512])
def test_five_nodes_release_no_mark_of_another_node(size: int) -> None:
    made = quiet_fleet(size, ENFORCED)
    broken = range(0, 40, 8)
    report_in_turn(made, broken, lost(), 3_600.0 / 4)
    advance(made, 7_200.0, 600.0)
    made.report(1, lost())
    advance(made, 20.0)
    assert made.marked() == sorted([*broken, 1])
    report_in_turn(made, range(3, size, size // 5)[:5], lost(), 30.0)
    advance(made, 600.0)
    assert suppressed(made) == {"gpu-lost"}
    assert set(made.marked()) >= {*broken, 1}


def test_a_wide_false_alarm_releases_the_marks_since_it_began_only() -> None:
    made = quiet_fleet(120, ENFORCED)
    report_in_turn(made, (0, 8), lost(), 60.0)
    made.report(16, lost(LOG, NVML))
    advance(made, 90_000.0, 900.0)
    assert made.marked() == [0, 8, 16]
    report_in_turn(made, range(3, 91, 5), lost(), 10.0)
    made.report(99, lost(LOG, NVML))
    advance(made, 120.0)
    assert suppressed(made) == {"gpu-lost"}
    assert made.marked() == [0, 8, 16, 99]


def test_marks_are_released_no_faster_than_the_check_may_set_them() -> None:
    limit = CheckLimit(2, 600.0, 15)
    policy = replace(ENFORCED, budget=replace(ENFORCED.budget, check=limit))
    made = quiet_fleet(200, policy, history=20_000.0)
    numbers = [7 + 8 * leaf for leaf in range(25)]
    report_in_turn(made, numbers[:9], lost(), 300.0)
    before = len(made.marked())
    assert (before, suppressed(made)) == (4, {"gpu-lost"})
    for number in numbers[9:]:
        made.report(number, lost())
    remaining = []
    for _ in range(4):
        advance(made, 60.0)
        remaining.append(len(made.marked()))
        advance(made, 540.0)
    assert remaining == [before - 2, before - 4, 0, 0]


# Faults that two sources prove


def test_gpus_lost_within_an_hour_stay_out_if_the_kernel_log_and_nvml_agree() -> None:
    made = quiet_fleet(800, history=20_000.0)
    report_in_turn(made, scattered(made, 12), lost(LOG, NVML), 300.0)
    advance(made, 300.0)
    assert suppressed(made) == set()
    assert made.marked() == sorted(scattered(made, 12))


def test_repaired_gpus_that_two_sources_proved_do_not_count_later() -> None:
    made = quiet_fleet(800, history=20_000.0)
    for number in scattered(made, 12):
        made.report(number, lost(LOG, NVML))
        advance(made, 120.0)
        made.report(number)
        advance(made, 120.0)
    made.report(799, lost())
    advance(made, 60.0)
    assert (made.marked(), suppressed(made)) == ([799], set())


def test_a_node_that_two_sources_prove_broken_is_marked_although_its_check_is_suppressed() -> None:
    made = quiet_fleet(800)
    for number in scattered(made, 40):
        made.report(number, lost())
    advance(made, 30.0)
    assert suppressed(made) == {"gpu-lost"}
    other = min(set(range(800)) - set(scattered(made, 40)))
    made.report(other, lost(LOG, NVML))
    advance(made, 30.0)
    assert other in made.marked()


# Time and scope


def test_a_leaf_is_diagnosed_by_other_checks_while_one_of_its_class_is_suppressed() -> None:
    made = quiet_fleet(160)
    for number in range(0, 160, 8):
        made.report(number, warning("port-link-downed"))
    advance(made, 60.0)
    assert suppressed(made) == {"port-link-downed"}
    for number in range(16, 24):
        made.report(
            number,
            warning("port-symbol-errors"),
            *([warning("port-link-downed", 60.0)] if number == 16 else []),
        )
    advance(made, 60.0)
    assert degraded(made) == ["fabric/p0/r2"]


def test_votes_of_a_leaf_stay_when_another_check_of_its_class_is_suppressed() -> None:
    made = quiet_fleet(160)
    both = range(16, 20)
    for number in both:
        made.report(number, warning("port-link-downed"), warning("port-symbol-errors"))
    for number in set(range(0, 160, 8)) - set(both):
        made.report(number, warning("port-link-downed"))
    advance(made, 60.0)
    assert suppressed(made) == {"port-link-downed"}
    assert degraded(made) == ["fabric/p0/r2"]


def test_the_end_of_a_suppression_adds_no_votes_of_a_check_that_is_still_suppressed() -> None:
    made = quiet_fleet(160)
    made.report(16, warning("port-symbol-errors"))
    votes = made.planner.diagnosis.voting.latest_votes("fabric/p0/r2", ["link"])
    assert set(votes) == {"uid-16"}
    advance(made, 3_600.0, 60.0)
    for check in ("port-link-downed", "port-receive-errors"):
        for number in range(0, 160, 8):
            others = made.reports.get(f"uid-{number}")
            made.report(number, *(others.findings if others is not None else ()), warning(check))
        advance(made, 60.0)
    assert suppressed(made) == {"port-link-downed", "port-receive-errors"}
    incidents = made.planner.tracker.recorded.by_uid[""].values()
    made.planner.clear(next(item for item in incidents if item.cause == "port-link-downed"), made.now)
    assert suppressed(made) == {"port-receive-errors"}
    assert made.planner.diagnosis.voting.latest_votes("fabric/p0/r2", ["link"]) == votes


def test_a_leaf_is_not_diagnosed_from_votes_of_a_check_that_is_suppressed() -> None:
    made = quiet_fleet(160)
    for number in (*range(16, 22), *range(0, 160, 8)):
        made.report(number, down())
    rest = iter(sorted({*range(160)} - {*range(16, 22), *range(0, 160, 8)}))
    for _ in range(60):
        made.report(next(rest), down())
        advance(made, 1.0, 1.0)
        assert degraded(made) == []
    assert suppressed(made) == {"port-down"}


def test_a_leaf_is_diagnosed_after_scattered_flaps_have_ended() -> None:
    made = quiet_fleet(160)
    for number in range(0, 160, 8):
        made.report(number, warning("port-link-downed"))
    advance(made, 2_400.0, 30.0)
    report_in_turn(made, range(17, 24), warning("port-link-downed"), 30.0)
    advance(made, 60.0)
    assert degraded(made) == ["fabric/p0/r2"]


def test_a_false_alarm_that_lasts_stays_suppressed_on_its_nodes() -> None:
    made = quiet_fleet(160)
    numbers = scattered(made, 20)
    for number in numbers:
        made.report(number, lost())
    advance(made, 30_000.0, 40.0)
    assert (made.marked(), suppressed(made)) == ([], {"gpu-lost"})
    other = min(set(range(160)) - set(numbers))
    made.report(other, lost())
    advance(made, 60.0)
    assert made.marked() == [other]


def test_a_slow_false_alarm_stays_suppressed_while_it_spreads() -> None:
    made = quiet_fleet(400, history=20_000.0)
    marked = 0
    for number in scattered(made, 40):
        made.report(number, lost())
        advance(made, 300.0, 60.0)
        marked = max(marked, len(made.marked()))
    assert (marked, made.marked(), suppressed(made)) == (4, [], {"gpu-lost"})


@pytest.mark.parametrize("every", [1_200.0, 3_600.0])
@pytest.mark.parametrize(
    "finding", [lost(), down(), FIRMWARE_DEAD, SUSPECT], ids=lambda finding: finding.check
)
def test_a_false_alarm_that_spreads_for_hours_marks_few_nodes(finding: ReportedFinding, every: float) -> None:
    made = quiet_fleet(800, history=20_000.0)
    for number in scattered(made, 14):
        made.report(number, finding)
        advance(made, every, 120.0)
    assert suppressed(made) == {finding.check}
    assert 4 <= len(made.marked()) <= 8


def test_faults_that_two_sources_prove_do_not_hide_a_false_alarm() -> None:
    made = quiet_fleet(800, history=20_000.0)
    proven, false = scattered(made, 24)[:12], scattered(made, 24)[12:]
    for number in proven:
        made.report(number, lost(LOG, NVML))
        advance(made, 3_600.0, 120.0)
        made.report(number)
    report_in_turn(made, false, lost(), 600.0)
    assert suppressed(made) == {"gpu-lost"}
    assert len(set(made.marked()) & set(false)) <= 5


def test_warnings_are_more_frequent_than_faults() -> None:
    made = quiet_fleet(800, history=20_000.0)
    for number in scattered(made, 12):
        made.report(number, replace(warning("gpu-ecc-corrected"), topologies=()))
        advance(made, 1_200.0, 120.0)
    assert suppressed(made) == set()


# Checks that vote in versions


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2, 0.5, 1.0])
def test_a_check_that_votes_in_versions_is_suppressed_at_every_share(share: float) -> None:
    made = fleet(400, USUAL)
    for number in range(400):
        made.report(number, inventory=FIRMWARE)
    advance(made, 900.0, 60.0)
    for number in scattered(made, int(400 * share)):
        made.report(number, FIRMWARE_DEAD, inventory=FIRMWARE)
    advance(made, 60.0)
    assert suppressed(made) == {"nic-firmware-dead"}
    assert made.marked() == []


# Small fleets


def spines(count: int, leaves: int, nodes: int) -> Fleet:
    """Return a fleet of spines of leaves of nodes."""
    made = Fleet(0, USUAL)
    for number in range(count * leaves * nodes):
        leaf = number // nodes
        made.add(number, labels={"pod": f"p{leaf // leaves}", "rack": f"r{leaf}"})
    advance(made, 900.0, 60.0)
    return made


@pytest.mark.parametrize(("leaves", "nodes"), [(2, 4), (4, 4), (4, 8), (8, 16), (8, 50)])
@pytest.mark.parametrize("every", [0.0, 10.0, 30.0])
def test_one_of_two_spines_is_diagnosed(leaves: int, nodes: int, every: float) -> None:
    made = spines(2, leaves, nodes)
    members = random.Random(1).sample(range(leaves * nodes), min(60, leaves * nodes * 3 // 4))
    report_in_turn(made, members, warning("port-link-downed"), every)
    advance(made, 660.0)
    assert (degraded(made), suppressed(made)) == (["fabric/p0"], set())


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("every", [0.0, 30.0])
def test_one_of_two_leaves_is_diagnosed_in_a_fleet_of_one_pod(size: int, every: float) -> None:
    made = spines(1, 2, size // 2)
    report_in_turn(made, range(6), warning("port-link-downed"), every)
    advance(made, 660.0)
    assert (degraded(made), suppressed(made)) == (["fabric/p0/r0"], set())


@pytest.mark.parametrize("pods", [1, 2])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_false_alarm_in_a_small_fleet_is_suppressed(pods: int, share: float) -> None:
    made = spines(pods, 8, 16)
    for number in scattered(made, int(len(made.nodes) * share)):
        made.report(number, down())
    advance(made, 300.0)
    assert (degraded(made), suppressed(made)) == ([], {"port-down"})
    assert made.marked() == []
