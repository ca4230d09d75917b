"""Emergency stop: a pause stops new marks at once and survives a restart; unmark removes all marks."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.controlplane.cluster import Cluster
from tests.e2e import scene
from tests.e2e.devices import device_taints, published_devices
from tests.e2e.fleet import Fleet
from tests.e2e.scene import running_fleet

DECISIONS = "nodeguard-decisions"

# An operator's own taint and condition, on every Node.
TAINT = {"key": "example.com/mine", "value": "x", "effect": "NoSchedule"}
CONDITION = {"type": "ExampleReady", "status": "True", "reason": "Mine", "message": "mine"}

NODES = ("marked", "late", "sliced")
REASON = "investigating"


def decide(fleet: Fleet, **decisions: str | None) -> None:
    """Record an operator's decisions in the ConfigMap, as any tool can that may write it."""
    patch = json.dumps({"data": decisions})
    fleet.cluster.kubectl("patch", "configmap", "-n", "nodeguard", DECISIONS, "--type=merge", "-p", patch)


def is_paused(fleet: Fleet) -> bool:
    return fleet.aggregators[0].metric("nodeguard_aggregator_paused") == 1


def without_versions(node: dict[str, Any]) -> dict[str, Any]:
    """Return a Node without the fields that every write changes."""
    metadata = {
        name: value
        for name, value in node["metadata"].items()
        if name not in {"managedFields", "resourceVersion"}
    }
    return {**node, "metadata": metadata}


def test_a_pause_stops_new_marks_and_unmark_removes_all(controlplane: Cluster) -> None:
    policy = f"{scene.ENFORCED}markWith: {{cordon: true}}\n"
    with published_devices(controlplane, "sliced"), running_fleet(controlplane, policy, *NODES) as fleet:
        [aggregator] = fleet.aggregators
        controlplane.kubectl("create", "configmap", "-n", "nodeguard", DECISIONS)
        for name in NODES:
            path = f"/api/v1/nodes/{name}"
            mine = {"metadata": {"annotations": {"example.com/mine": "x"}}, "spec": {"taints": [TAINT]}}
            controlplane.api.patch(path, mine)
            controlplane.api.patch(
                f"{path}/status", {"status": {"conditions": [CONDITION]}}, "strategic-merge"
            )
        before = {name: without_versions(scene.get_node(controlplane, name)) for name in NODES}
        for name in ("marked", "sliced"):
            scene.inject_gpu_fault(fleet.agents[name])
        fleet.agents["marked"].until(lambda: scene.condition(controlplane, "marked"))
        fleet.agents["sliced"].until(lambda: device_taints(controlplane))
        assert scene.get_node(controlplane, "marked")["spec"]["unschedulable"]

        # New marks are withheld from now on; the marks that are set stay.
        decide(fleet, pause=REASON)
        aggregator.until(lambda: is_paused(fleet))
        scene.inject_gpu_fault(fleet.agents["late"])
        fleet.agents["late"].until(lambda: scene.incident_state(controlplane, "late") == "Withheld")
        [incident] = scene.incidents(controlplane, "late")
        assert incident["status"]["detail"] == REASON
        aggregator.terminate()
        aggregator.start()
        aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
        assert is_paused(fleet)
        assert (scene.is_marked(controlplane, "marked"), scene.nodeguard_fields(controlplane, "late")) == (
            True,
            [],
        )
        assert scene.incident_state(controlplane, "late") == "Withheld"

        # All marks are removed, and nothing that others have written.
        decide(fleet, unmark="ada")
        aggregator.until(lambda: not any(scene.nodeguard_fields(controlplane, name) for name in NODES))
        aggregator.until(lambda: not device_taints(controlplane))
        # The node controller removes its taint of a cordon a little later.
        aggregator.until(
            lambda: all(
                without_versions(scene.get_node(controlplane, name)) == before[name] for name in NODES
            )
        )

        def recorded_decisions() -> dict[str, str]:
            path = f"/api/v1/namespaces/nodeguard/configmaps/{DECISIONS}"
            data: dict[str, str] = controlplane.api.get(path)["data"]
            return data

        aggregator.until(lambda: recorded_decisions() == {"pause": REASON})
        for name in NODES:
            aggregator.until(partial(scene.has_incident_state, controlplane, name, "Withheld"))

        # After the pause, nodes with active faults are marked again.
        decide(fleet, pause=None)
        for name in ("marked", "late"):
            aggregator.until(partial(scene.is_marked, controlplane, name))
        aggregator.until(lambda: device_taints(controlplane))
