"""Tests for nodeguard.fleet.diagnosis.candidates, in the plan of a fleet: when a domain widens to its parent."""

from __future__ import annotations

import pytest

from nodeguard.fleet.diagnosis.messages import degraded_message
from tests.fleet.leaves import ENFORCED, fails, fleet, wait
from tests.fleet.scene import Fleet

# Pods of five leaves of eight nodes: six nodes of the third leaf, and single ones of two others, or of all.
LEAF, SINGLE, SINGLE_IN_ALL = range(16, 22), (4, 25), (4, 9, 25, 33)


def degraded(made: Fleet) -> set[str]:
    return set(made.planner.diagnosis.degraded_domains)


@pytest.mark.parametrize("seconds", [0.0, 30.0, 240.0])
def test_single_faults_elsewhere_in_its_pod_do_not_widen_a_leaf(seconds: float) -> None:
    made = fleet()
    fails(made, LEAF)
    for number in SINGLE:
        wait(made, seconds / len(SINGLE))
        fails(made, (number,))
    wait(made, 1_200.0)
    assert degraded(made) == {"fabric/p0/r2"}


def test_single_faults_after_a_leaf_do_not_widen_it() -> None:
    made = fleet()
    fails(made, LEAF)
    wait(made, 2_000.0)
    fails(made, SINGLE)
    wait(made, 300.0)
    assert degraded(made) == {"fabric/p0/r2"}


def test_two_leaves_and_single_faults_are_two_domains() -> None:
    made = fleet()
    fails(made, (*LEAF, *range(6), *SINGLE_IN_ALL[2:]))
    wait(made, 300.0)
    assert degraded(made) == {"fabric/p0/r0", "fabric/p0/r2"}


def test_a_spine_that_shows_first_in_one_leaf_widens() -> None:
    made = fleet()
    fails(made, LEAF)
    wait(made, 30.0)
    assert degraded(made) == {"fabric/p0/r2"}
    fails(made, (*SINGLE_IN_ALL, 5, 34))
    wait(made, 30.0)
    assert degraded(made) == {"fabric/p0"}
    [domain] = made.planner.diagnosis.degraded_domains.values()
    assert degraded_message(domain, made.planner.diagnosis.rule).startswith("fabric/p0: 12 of 40 nodes")


# Two nodes of each leaf: too few for any leaf.
SPREAD = tuple(number for leaf in range(0, 40, 8) for number in (leaf, leaf + 1))


@pytest.mark.parametrize("affected", [SPREAD, (*SPREAD[::2], 42)])
def test_a_pod_without_an_affected_leaf_is_degraded_if_half_of_the_fleet_is_clean(
    affected: tuple[int, ...],
) -> None:
    made = fleet()
    fails(made, affected)
    wait(made, 60.0)
    assert degraded(made) == ({"fabric/p0"} if affected == SPREAD else set())


def test_few_nodes_of_small_leaves_are_a_fault_of_their_pod() -> None:
    made = Fleet(0, ENFORCED)
    for number in range(60):
        made.add(number, labels={"pod": f"p{number // 12}", "rack": f"r{number // 3}"})
    made.after(1.0)
    made.carry_out()
    fails(made, (0, 3, 6, 9))
    wait(made, 60.0)
    assert degraded(made) == {"fabric/p0"}


def test_a_pod_with_votes_in_all_leaves_at_once_is_degraded_after_a_short_wait() -> None:
    made = fleet()
    fails(made, (*LEAF, *SINGLE_IN_ALL[1:]))
    wait(made, 30.0)
    assert degraded(made) == set()  # the leaf explains the votes nearly as well
    wait(made, 90.0)
    assert degraded(made) == {"fabric/p0"}


def test_a_leaf_that_the_pod_explains_nearly_as_well_waits() -> None:
    made = fleet(size=56)
    fails(made, (*range(40, 44), 48))
    wait(made, 30.0)
    assert degraded(made) == set()
    fails(made, range(44, 48))
    wait(made, 10.0)
    assert degraded(made) == set()  # the grace period begins when the leaf is clear
    wait(made, 20.0)
    assert degraded(made) == {"fabric/p1/r5"}


@pytest.mark.parametrize(("others", "domain"), [(1, "fabric/p1/r5"), (4, "fabric/p1")])
def test_a_pod_of_two_leaves_is_degraded_if_both_are_affected(others: int, domain: str) -> None:
    made = fleet(size=56)
    fails(made, (*range(40, 46), *range(48, 48 + others)))
    wait(made, 300.0)
    assert degraded(made) == {domain}


@pytest.mark.parametrize(
    ("pause", "domains"), [(150.0, {f"fabric/p0/r{leaf}" for leaf in range(5)}), (30.0, {"fabric/p0"})]
)
def test_leaves_that_restart_one_after_the_other_are_not_their_pod(pause: float, domains: set[str]) -> None:
    made = fleet()
    for leaf in range(5):
        fails(made, range(8 * leaf, 8 * leaf + 8))
        wait(made, pause)
    assert degraded(made) == domains
