"""The big red button: a pause stops new marks at once and outlives a restart; unmarking leaves nothing."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.controlplane.cluster import Cluster
from tests.e2e import scene
from tests.e2e.devices import published, rules
from tests.e2e.fleet import Fleet
from tests.e2e.scene import at_work

DECISIONS = "nodeguard-decisions"

# A person's own, on every Node.
TAINT = {"key": "example.com/mine", "value": "x", "effect": "NoSchedule"}
CONDITION = {"type": "ExampleReady", "status": "True", "reason": "Mine", "message": "mine"}

NODES = ("marked", "late", "sliced")


def decide(made: Fleet, **said: str | None) -> None:
    """A person decides, as any tool does that can write a ConfigMap."""
    made.cluster.kubectl(
        "patch", "configmap", "-n", "nodeguard", DECISIONS, "--type=merge", "-p", json.dumps({"data": said})
    )


def paused(made: Fleet) -> bool:
    return "nodeguard_aggregator_paused 1" in made.aggregators[0].page("/metrics")


def _gist(node: dict[str, Any]) -> dict[str, Any]:
    """A Node without what every write changes."""
    left = {
        name: value
        for name, value in node["metadata"].items()
        if name not in {"managedFields", "resourceVersion"}
    }
    return {**node, "metadata": left}


def test_the_big_red_button(controlplane: Cluster) -> None:
    policy = f"{scene.ENFORCED}markWith: {{cordon: true}}\n"
    with published(controlplane, "sliced"), at_work(controlplane, policy, *NODES) as made:
        [aggregator] = made.aggregators
        controlplane.kubectl("create", "configmap", "-n", "nodeguard", DECISIONS)
        for name in NODES:
            path = f"/api/v1/nodes/{name}"
            mine = {"metadata": {"annotations": {"example.com/mine": "x"}}, "spec": {"taints": [TAINT]}}
            controlplane.api.patch(path, mine)
            controlplane.api.patch(
                f"{path}/status", {"status": {"conditions": [CONDITION]}}, "strategic-merge"
            )
        theirs = {name: _gist(scene.node(controlplane, name)) for name in NODES}
        for name in ("marked", "sliced"):
            scene.fails(made.agents[name])
        made.agents["marked"].until(lambda: scene.condition(controlplane, "marked"))
        made.agents["sliced"].until(lambda: rules(controlplane))
        assert scene.node(controlplane, "marked")["spec"]["unschedulable"]

        # New ones are withheld from now on, and what stands goes on standing.
        decide(made, pause="somebody is looking into it")
        aggregator.until(lambda: paused(made))
        scene.fails(made.agents["late"])
        made.agents["late"].until(lambda: scene.state(controlplane, "late") == "Withheld")
        [incident] = scene.incidents(controlplane, "late")
        assert incident["status"]["detail"] == "somebody is looking into it"
        aggregator.end()
        aggregator.start()
        aggregator.until(lambda: "nodeguard_aggregator_active 1" in aggregator.page("/metrics"))
        assert paused(made)
        assert (scene.is_marked(controlplane, "marked"), scene.ours(controlplane, "late")) == (True, [])
        assert scene.state(controlplane, "late") == "Withheld"

        # Every mark goes, and nothing of anybody else's.
        decide(made, unmark="ada")
        aggregator.until(lambda: not any(scene.ours(controlplane, name) for name in NODES))
        aggregator.until(lambda: not rules(controlplane))
        # The controllers take their own taint for a cordon away a moment later.
        aggregator.until(lambda: all(_gist(scene.node(controlplane, name)) == theirs[name] for name in NODES))

        def kept() -> dict[str, str]:
            path = f"/api/v1/namespaces/nodeguard/configmaps/{DECISIONS}"
            data: dict[str, str] = controlplane.api.get(path)["data"]
            return data

        aggregator.until(lambda: kept() == {"pause": "somebody is looking into it"})
        for name in NODES:
            aggregator.until(partial(scene.is_in, controlplane, name, "Withheld"))

        # Not for ever: what is still broken is marked again.
        decide(made, pause=None)
        for name in ("marked", "late"):
            aggregator.until(partial(scene.is_marked, controlplane, name))
        aggregator.until(lambda: rules(controlplane))
