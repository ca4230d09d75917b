"""Gangs that crash and start again and again: the links that their starts lose are no fault of a switch."""

from __future__ import annotations

import pytest

from nodeguard.model.mark import Mark
from tests.fleet.shared_causes.scene import BEFORE, HOUR, MINUTE, History, fabric

pytestmark = pytest.mark.slow


ACROSS_PODS = ("fabric/p1/leaf0", "fabric/p1/leaf1", "fabric/p2/leaf0", "fabric/p2/leaf1")


def crash_loop(leaves: int, share: float, seed: int) -> History:
    """Return the history of a gang that starts ten times. share: of its links that are lost for a short time at each."""
    history = History(fabric(512, 128, 32), f"gang {leaves} {share} {seed}")
    members = [node for number in range(leaves) for node in history.nodes(f"fabric/p1/leaf{number}")]
    at = BEFORE
    for start in range(10):
        flapping = [node for node in members if history.random.random() < share]
        job = f"training/gang-{seed}-{start}"
        history.fault("port-flap", flapping, at, within=MINUTE, lasts=4 * HOUR, job=job)
        at += history.random.uniform(8.0, 25.0) * MINUTE
    return history


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.03, 0.06])
def test_a_gang_on_many_leaves_that_crashes_again_and_again_names_nothing(share: float, seed: int) -> None:
    outcome = crash_loop(4, share, seed).run(BEFORE + 6 * HOUR)
    assert (outcome.domains, outcome.suppressed) == (set(), set())
    assert {node for node, mark in outcome.ever_marked if mark == Mark.QUARANTINE} == set()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.06, 0.3])
def test_a_gang_behind_one_leaf_that_crashes_again_and_again_names_at_most_this_leaf(
    share: float, seed: int
) -> None:
    """Bad starts of a job behind one leaf look like a leaf that loses links under load."""
    outcome = crash_loop(1, share, seed).run(BEFORE + 6 * HOUR)
    assert outcome.domains <= {"fabric/p1/leaf0"}
    assert outcome.suppressed == set()
    assert {node for node, mark in outcome.ever_marked if mark == Mark.QUARANTINE} == set()


@pytest.mark.parametrize("seed", range(4))
def test_a_restart_of_the_aggregator_forgets_no_start_of_a_gang_that_crashes_again_and_again(
    seed: int,
) -> None:
    """Nodes still report the links that they lost at each of four starts; their pods tell the last one."""
    history = History(fabric(512, 128, 32), f"restart {seed}")
    members = [node for leaf in ACROSS_PODS for node in history.nodes(leaf)]
    at, times = BEFORE, list[float]()
    for _ in range(4):
        flapping = [node for node in members if history.random.random() < 0.2]
        history.fault("port-flap", flapping, at, within=MINUTE, lasts=4 * HOUR, job="training/gang")
        times.append(at)
        at += history.random.uniform(8.0, 25.0) * MINUTE
    outcome = history.run(BEFORE + 4 * HOUR, [history.random.uniform(times[1], times[3])])
    assert (outcome.domains, outcome.suppressed) == (set(), set())
