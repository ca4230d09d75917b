"""Observe mode writes nothing to Nodes and devices, and reports the marks that enforce mode would set."""

from __future__ import annotations

from functools import partial

from tests.controlplane.cluster import Cluster
from tests.e2e import scene
from tests.e2e.devices import RULES, published_devices
from tests.e2e.scene import running_fleet


def test_observe_mode_writes_to_no_node_and_no_device(controlplane: Cluster) -> None:
    policy = scene.ENFORCED.replace("enforce", "observe")
    with (
        published_devices(controlplane, "with-slice"),
        running_fleet(controlplane, policy, "without-slice", "with-slice") as fleet,
    ):
        before = {name: scene.get_node(controlplane, name) for name in fleet.agents}
        [aggregator] = fleet.aggregators
        for name, agent in fleet.agents.items():
            scene.inject_gpu_fault(agent)
            agent.until(partial(scene.has_incident_state, controlplane, name, "DryRun"))
        [without_slice] = aggregator.until(
            lambda: scene.events(controlplane, "without-slice", "NodeguardDryRun")
        )
        assert "; dry run: would quarantine node without-slice; to do: reset the GPU (" in without_slice
        [with_slice] = aggregator.until(lambda: scene.events(controlplane, "with-slice", "NodeguardDryRun"))
        assert (
            "; dry run: would quarantine GPU 0000:1b:00 of with-slice; to do: reset the GPU (" in with_slice
        )

        for name, agent in fleet.agents.items():
            scene.log_driver_load(agent)
            aggregator.until(partial(scene.has_incident_state, controlplane, name, "Resolved"))
        # Equal in all fields, including managedFields and resourceVersion.
        assert {name: scene.get_node(controlplane, name) for name in fleet.agents} == before
        assert controlplane.api.get(RULES)["items"] == []
