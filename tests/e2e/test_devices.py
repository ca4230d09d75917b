"""Where a DRA driver publishes the GPUs of a node, a fault of one keeps work off that one alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster, NewCluster
from tests.controlplane.objects import GPU, pod
from tests.e2e import scene
from tests.e2e.devices import RESOURCES, RULES, claim, offer, published, rules
from tests.e2e.scene import at_work

# The third GPU that the driver counts, under the name that it has in the slice.
FAULTY, DEVICE = scene.GPUS[2], "gpu-5"

# Of the one node that there is, no more than a part may be out.
POLICY = scene.ENFORCED.replace("fleet: 100%, pool: 100%", "fleet: 20%, pool: 20%")


def claiming(name: str) -> tuple[Object, Object]:
    """A pod that asks for any one device, and its claim."""
    made = pod(name, gpus=0)
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return made, claim(name)


def asking(name: str) -> tuple[Object, None]:
    """A pod that asks as it would of a device plugin."""
    return pod(name, gpus=1), None


@pytest.mark.parametrize(("make", "extended"), [(claiming, ""), (asking, GPU)])
def test_seven_of_eight_stay_in_service(
    controlplane: Cluster,
    namespace: str,
    make: Callable[[str], tuple[Object, Object | None]],
    extended: str,
) -> None:
    with published(controlplane, "gpu-1"), at_work(controlplane, POLICY, "gpu-1", gpus=0) as made:
        offer(controlplane, extended)
        agent = made.agents["gpu-1"]
        scene.fails(agent, FAULTY)
        [(selector, taint)] = agent.until(lambda: rules(controlplane))
        assert selector == {"driver": "gpu.nvidia.com", "pool": "gpu-1", "device": DEVICE}
        assert (taint["key"], taint["effect"]) == ("nodeguard.dev/quarantine", "NoSchedule")
        agent.until(lambda: scene.state(controlplane, "gpu-1") == "Marked")
        [incident] = scene.incidents(controlplane, "gpu-1")
        assert incident["status"]["scope"] == f"GPU {FAULTY} of gpu-1"

        space = f"/api/v1/namespaces/{namespace}"
        names = [f"work-{number}" for number in range(8)]
        for name in names:
            work, asked = make(name)
            if asked is not None:
                controlplane.api.post(f"{RESOURCES}/namespaces/{namespace}/resourceclaims", asked)
            controlplane.api.post(f"{space}/pods", work)

        def waiting() -> list[str]:
            found = controlplane.api.get(f"{space}/pods")["items"]
            return [one["metadata"]["name"] for one in found if not one["spec"].get("nodeName")]

        def given() -> set[str]:
            found = controlplane.api.get(f"{RESOURCES}/namespaces/{namespace}/resourceclaims")["items"]
            held = [one["status"]["allocation"] for one in found if "allocation" in one.get("status", {})]
            return {one["devices"]["results"][0]["device"] for one in held}

        controlplane.until(lambda: len(waiting()) == 1, "kube-scheduler")
        [last] = waiting()
        path = f"{space}/pods/{last}"

        def refused() -> str:
            told = controlplane.api.get(path)["status"].get("conditions", [])
            return next((one["message"] for one in told if one["type"] == "PodScheduled"), "")

        assert "0/1 nodes are available" in controlplane.until(refused, "kube-scheduler")
        assert given() == {f"gpu-{number}" for number in range(8)} - {DEVICE}
        assert scene.ours(controlplane, "gpu-1") == []

        scene.driver_is_loaded(agent)
        agent.until(lambda: not rules(controlplane))
        controlplane.until(lambda: not waiting(), "kube-scheduler")
        assert DEVICE in given()

        # A Node that goes takes its rules along.
        scene.fails(agent, FAULTY)
        agent.until(lambda: rules(controlplane))
        controlplane.api.delete("/api/v1/nodes/gpu-1")
        agent.until(lambda: not controlplane.api.get(RULES)["items"])


def test_a_server_without_rules_has_the_node_marked(new_cluster: NewCluster) -> None:
    # A scheduler that follows rules would wait for them for ever.
    off = ["--feature-gates=DRADeviceTaintRules=false"]
    served = ["--runtime-config=resource.k8s.io/v1/devicetaintrules=false"]
    with (
        new_cluster(flags={"kube-apiserver": served, "kube-scheduler": off}) as alone,
        published(alone, "gpu-1"),
    ):
        assert "devicetaintrules" not in alone.kubectl("api-resources", "--api-group=resource.k8s.io")
        with at_work(alone, scene.ENFORCED, "gpu-1") as made:
            agent = made.agents["gpu-1"]
            scene.fails(agent, FAULTY)
            agent.until(lambda: scene.is_marked(alone, "gpu-1"))
            agent.until(lambda: scene.state(alone, "gpu-1") == "Marked")
            [incident] = scene.incidents(alone, "gpu-1")
            assert incident["status"]["scope"] == "node gpu-1"
