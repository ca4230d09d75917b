"""The firmware of switches, leaf after leaf: each leaf is named while its links are down, and its nodes stay in service."""

from __future__ import annotations

import pytest

from nodeguard.model.mark import Mark
from tests.fleet.shared_causes.scene import BEFORE, HOUR, MINUTE, History, fabric


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gap", [6.0, 15.0, 40.0])
def test_leaves_that_restart_one_after_another(gap: float, seed: int) -> None:
    history = History(fabric(256, 64, 16), f"firmware {gap} {seed}")
    leaves = [f"fabric/p1/leaf{number}" for number in history.random.sample(range(4), 4)]
    at = BEFORE
    for leaf in leaves:
        history.fault("port-down", history.nodes(leaf), at, lasts=history.random.uniform(3.0, 5.0) * MINUTE)
        at += gap * MINUTE
    outcome = history.run(at + HOUR)
    assert (outcome.domains, outcome.suppressed) == (set(leaves), set())
    assert {node for node, mark in outcome.ever_marked if mark == Mark.QUARANTINE} == set()


@pytest.mark.parametrize("seed", range(3))
def test_leaves_of_many_pods_one_after_another(seed: int) -> None:
    history = History(fabric(512, 64, 16), f"firmware of pods {seed}")
    leaves = [f"fabric/p{pod}/leaf{history.random.randrange(4)}" for pod in range(6)]
    for number, leaf in enumerate(leaves):
        history.fault("port-down", history.nodes(leaf), BEFORE + number * 10 * MINUTE, lasts=4 * MINUTE)
    outcome = history.run(BEFORE + 2 * HOUR)
    assert outcome.suppressed == set()
    assert outcome.domains == set(leaves)
    assert {node for node, mark in outcome.ever_marked if mark == Mark.QUARANTINE} == set()
