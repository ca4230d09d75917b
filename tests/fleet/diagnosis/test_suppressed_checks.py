"""Tests for nodeguard.fleet.diagnosis.suppressed_checks, with the real planner: which nodes stay out."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from nodeguard.model.finding import Action, Health
from nodeguard.model.policy import Budget, Policy
from nodeguard.wire.report import Inventory, ReportedComponent, ReportedFinding
from tests.fleet.leaves import ENFORCED, PORT, down, fleet
from tests.fleet.scene import Fleet

# Default budgets.
USUAL = replace(ENFORCED, budget=Budget())

FIRMWARE = Inventory(components={PORT: ReportedComponent(firmware="28.39")})


def warning(check: str, age: float = 0.0) -> ReportedFinding:
    """Return a warning about a port, which shared hardware of the fabric can cause."""
    return replace(down(age), check=check, health=Health.WARNING, action=Action.MONITOR)


def advance(made: Fleet, seconds: float, step: float = 5.0) -> None:
    """Advance the time and carry out the plans."""
    for _ in range(int(seconds / step)):
        made.after(step)
        made.carry_out(rounds=12)


def report_in_turn(made: Fleet, numbers: Iterable[int], item: ReportedFinding, every: float) -> None:
    for number in numbers:
        made.say(number, item)
        advance(made, every)


def suppressed(made: Fleet) -> set[str]:
    return set(made.planner.diagnosis.suppressed_checks)


def degraded(made: Fleet) -> list[str]:
    return sorted(made.planner.diagnosis.degraded_domains)


def scattered(made: Fleet, count: int, seed: int = 1) -> list[int]:
    """Return the numbers of some nodes at random."""
    return random.Random(seed).sample(range(len(made.nodes)), count)


# Checks that vote in versions


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2, 0.5, 1.0])
def test_a_check_that_votes_in_versions_is_suppressed_at_every_share(share: float) -> None:
    made = fleet(400, USUAL)
    for number in range(400):
        made.say(number, inventory=FIRMWARE)
    advance(made, 900.0, 60.0)
    dead = replace(down(), check="nic-firmware-dead", topologies=("firmware",))
    for number in scattered(made, int(400 * share)):
        made.say(number, dead, inventory=FIRMWARE)
    advance(made, 60.0)
    assert suppressed(made) == {"nic-firmware-dead"}
    assert made.marked() == []


# Small fleets


def spines(count: int, leaves: int, nodes: int, policy: Policy = USUAL) -> Fleet:
    """Return a fleet of spines of leaves of nodes."""
    made = Fleet(0, policy)
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
        made.say(number, down())
    advance(made, 300.0)
    assert (degraded(made), suppressed(made)) == ([], {"port-down"})
    assert made.marked() == []
