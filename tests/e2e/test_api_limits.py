"""Limits of the API server on the size of a Node: a fault is marked, and the mark is released, all the same."""

from __future__ import annotations

from functools import partial

from tests.controlplane.cluster import Cluster
from tests.e2e import scene
from tests.e2e.scene import running_fleet

_FILLING = "example.com/filling"
_ROOM = 100


def test_a_node_without_room_for_the_record_is_tainted_and_released(controlplane: Cluster) -> None:
    with running_fleet(controlplane, scene.ENFORCED, "full") as fleet:
        [aggregator], agent = fleet.aggregators, fleet.agents["full"]
        filling = {_FILLING: "x" * (256 * 1024 - len(_FILLING) - _ROOM)}
        controlplane.api.patch("/api/v1/nodes/full", {"metadata": {"annotations": filling}})
        scene.inject_gpu_fault(agent)
        aggregator.until(partial(scene.is_marked, controlplane, "full"))
        aggregator.until(partial(scene.has_incident_state, controlplane, "full", "Marked"))
        node = aggregator.query("/v1/nodes/full")
        assert "metadata.annotations: Too long" in node["record_problem"]
        assert [mark["mark"] for mark in node["marks"]] == ["quarantine"]
        assert node["unknown_taints"] == []
        scene.log_driver_load(agent)
        aggregator.until(partial(scene.is_unmarked, controlplane, "full"))
        aggregator.until(partial(scene.has_incident_state, controlplane, "full", "Resolved"))
        assert scene.events(controlplane, "full", "NodeguardMarked") != []
