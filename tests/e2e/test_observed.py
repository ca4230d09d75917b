"""Observing writes nothing on Nodes and devices, and says what would have been done."""

from __future__ import annotations

from functools import partial

from tests.controlplane.cluster import Cluster
from tests.e2e import scene
from tests.e2e.devices import RULES, published
from tests.e2e.scene import at_work


def test_observing_writes_on_no_node_and_no_device(controlplane: Cluster) -> None:
    policy = scene.ENFORCED.replace("enforce", "observe")
    with published(controlplane, "sliced"), at_work(controlplane, policy, "whole", "sliced") as made:
        before = {name: scene.node(controlplane, name) for name in made.agents}
        [aggregator] = made.aggregators
        for name, agent in made.agents.items():
            scene.fails(agent)
            agent.until(partial(scene.is_in, controlplane, name, "DryRun"))
        [whole] = aggregator.until(lambda: scene.events(controlplane, "whole", "NodeguardDryRun"))
        assert "; dry run: would quarantine node whole (" in whole
        [sliced] = aggregator.until(lambda: scene.events(controlplane, "sliced", "NodeguardDryRun"))
        assert "; dry run: would quarantine GPU 0000:1b:00 of sliced (" in sliced

        for name, agent in made.agents.items():
            scene.driver_is_loaded(agent)
            aggregator.until(partial(scene.is_in, controlplane, name, "Resolved"))
        # The whole of both, with who wrote which field and when, and the version of each.
        assert {name: scene.node(controlplane, name) for name in made.agents} == before
        assert controlplane.api.get(RULES)["items"] == []
