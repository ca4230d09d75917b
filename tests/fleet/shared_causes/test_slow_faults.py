"""Faults that reach one node after another: the domain is named before most of its nodes are affected."""

from __future__ import annotations

import pytest

from tests.fleet.shared_causes.scene import BEFORE, HOUR, MINUTE, History, fabric


@pytest.mark.parametrize("gap", [3.0, 4.5, 6.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_leaf_that_loses_a_link_every_few_minutes(seed: int, gap: float) -> None:
    history = History(fabric(512, 128, 32), f"slow leaf {gap} {seed}")
    leaf = history.random.choice(history.topology.domains_at("fabric", 2))
    for number, node in enumerate(history.random.sample(history.nodes(leaf), 16)):
        history.fault("port-flap", [node], BEFORE + number * gap * MINUTE)
    outcome = history.run(BEFORE + 2 * HOUR)
    assert (outcome.domains, outcome.suppressed) == ({leaf}, set())
    assert outcome.named[0][1] <= BEFORE + 8 * gap * MINUTE
