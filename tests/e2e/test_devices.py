"""With a DRA driver, a fault of one GPU taints that device only, not the node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster, NewCluster
from tests.controlplane.objects import GPU, pod
from tests.e2e import scene
from tests.e2e.devices import RESOURCES, RULES, claim, create_device_class, device_taints, published_devices
from tests.e2e.scene import running_fleet

# The third GPU in the driver's order, and its name in the ResourceSlice.
FAULTY, DEVICE = scene.GPUS[2], "gpu-5"

# The budget allows a part of the only node.
POLICY = scene.ENFORCED.replace("fleet: 100%, pool: 100%", "fleet: 20%, pool: 20%")


def pod_with_claim(name: str) -> tuple[Object, Object]:
    """Return a pod that uses a claim of one GPU, and the claim."""
    manifest = pod(name, gpus=0)
    manifest["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    manifest["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return manifest, claim(name)


def pod_with_resource(name: str) -> tuple[Object, None]:
    """Return a pod that requests a GPU as an extended resource."""
    return pod(name, gpus=1), None


@pytest.mark.parametrize(("make", "extended"), [(pod_with_claim, ""), (pod_with_resource, GPU)])
def test_seven_of_eight_stay_in_service(
    controlplane: Cluster, namespace: str, make: Callable[[str], tuple[Object, Object | None]], extended: str
) -> None:
    with (
        published_devices(controlplane, "gpu-1"),
        running_fleet(controlplane, POLICY, "gpu-1", gpus=0) as fleet,
    ):
        create_device_class(controlplane, extended)
        agent = fleet.agents["gpu-1"]
        scene.inject_gpu_fault(agent, FAULTY)
        [(selector, taint)] = agent.until(lambda: device_taints(controlplane))
        assert selector == {"driver": "gpu.nvidia.com", "pool": "gpu-1", "device": DEVICE}
        assert (taint["key"], taint["effect"]) == ("nodeguard.dev/quarantine", "NoSchedule")
        agent.until(lambda: scene.incident_state(controlplane, "gpu-1") == "Marked")
        [incident] = scene.incidents(controlplane, "gpu-1")
        assert incident["status"]["scope"] == f"GPU {FAULTY} of gpu-1"

        path = f"/api/v1/namespaces/{namespace}/pods"
        names = [f"work-{number}" for number in range(8)]
        for name in names:
            manifest, resource_claim = make(name)
            if resource_claim is not None:
                controlplane.api.post(f"{RESOURCES}/namespaces/{namespace}/resourceclaims", resource_claim)
            controlplane.api.post(path, manifest)

        def pending_pods() -> list[str]:
            items = controlplane.api.get(path)["items"]
            return [item["metadata"]["name"] for item in items if not item["spec"].get("nodeName")]

        def allocated_devices() -> set[str]:
            items = controlplane.api.get(f"{RESOURCES}/namespaces/{namespace}/resourceclaims")["items"]
            allocations = [
                item["status"]["allocation"] for item in items if "allocation" in item.get("status", {})
            ]
            return {allocation["devices"]["results"][0]["device"] for allocation in allocations}

        controlplane.until(lambda: len(pending_pods()) == 1, "kube-scheduler")
        [pending] = pending_pods()

        def scheduling_error() -> str:
            conditions = controlplane.api.get(f"{path}/{pending}")["status"].get("conditions", [])
            return next((item["message"] for item in conditions if item["type"] == "PodScheduled"), "")

        assert "0/1 nodes are available" in controlplane.until(scheduling_error, "kube-scheduler")
        assert allocated_devices() == {f"gpu-{number}" for number in range(8)} - {DEVICE}
        assert scene.nodeguard_fields(controlplane, "gpu-1") == []

        scene.log_driver_load(agent)
        agent.until(lambda: not device_taints(controlplane))
        controlplane.until(lambda: not pending_pods(), "kube-scheduler")
        assert DEVICE in allocated_devices()

        # The rules of a deleted Node are deleted.
        scene.inject_gpu_fault(agent, FAULTY)
        agent.until(lambda: device_taints(controlplane))
        controlplane.api.delete("/api/v1/nodes/gpu-1")
        agent.until(lambda: not controlplane.api.get(RULES)["items"])


def test_without_device_taint_rules_the_node_is_marked(new_cluster: NewCluster) -> None:
    # A scheduler with this feature would wait forever for the rules.
    off = ["--feature-gates=DRADeviceTaintRules=false"]
    served = ["--runtime-config=resource.k8s.io/v1/devicetaintrules=false"]
    with (
        new_cluster(flags={"kube-apiserver": served, "kube-scheduler": off}) as cluster,
        published_devices(cluster, "gpu-1"),
    ):
        assert "devicetaintrules" not in cluster.kubectl("api-resources", "--api-group=resource.k8s.io")
        with running_fleet(cluster, scene.ENFORCED, "gpu-1") as fleet:
            agent = fleet.agents["gpu-1"]
            scene.inject_gpu_fault(agent, FAULTY)
            agent.until(lambda: scene.is_marked(cluster, "gpu-1"))
            agent.until(lambda: scene.incident_state(cluster, "gpu-1") == "Marked")
            [incident] = scene.incidents(cluster, "gpu-1")
            assert incident["status"]["scope"] == "node gpu-1"
