"""A drain where a DRA driver publishes the GPUs: the pod with the claim of the faulty GPU leaves, and no other."""

from __future__ import annotations

import pytest

from tests.controlplane.cluster import Cluster
from tests.e2e import scene
from tests.e2e.bulk_nodes import wait_until_schedulable
from tests.e2e.devices import DRIVER, RESOURCES, claim, create_device_class, device_taints, published_devices
from tests.e2e.scene import ENFORCED, running_fleet
from tests.e2e.training import (
    DRAIN,
    PODS,
    REPLICA_SETS,
    TEAM,
    Kubelet,
    create_namespace,
    drain_states,
    replica_set,
    running,
)
from tests.waiting import until

FAULTY, SPARE = "gpu-1", "gpu-2"

# The first GPU in the driver's order, and its name in the ResourceSlice.
DEVICE = "gpu-7"

pytestmark = pytest.mark.slow


def holder(cluster: Cluster) -> str:
    """Return the name of the pod that uses the faulty device by its claim."""
    for item in cluster.api.get(f"{RESOURCES}/namespaces/{TEAM}/resourceclaims")["items"]:
        [result] = item["status"]["allocation"]["devices"]["results"]
        if (result["driver"], result["pool"], result["device"]) == (DRIVER, FAULTY, DEVICE):
            [pod] = item["status"]["reservedFor"]
            return str(pod["name"])
    raise AssertionError(f"no pod uses {DEVICE}")


def test_only_the_pod_with_the_claim_of_the_faulty_gpu_leaves(controlplane: Cluster) -> None:
    with (
        published_devices(controlplane, FAULTY, SPARE),
        running_fleet(controlplane, ENFORCED + DRAIN % "enforce", FAULTY, SPARE, gpus=0) as fleet,
    ):
        create_device_class(controlplane)
        create_namespace(controlplane)
        template = {**claim("gpu"), "kind": "ResourceClaimTemplate"}
        template["spec"] = {"spec": template["spec"]}
        controlplane.api.post(f"{RESOURCES}/namespaces/{TEAM}/resourceclaimtemplates", template)
        wait_until_schedulable(controlplane)
        controlplane.kubectl("cordon", SPARE)
        with Kubelet(controlplane, {FAULTY: [], SPARE: []}) as kubelet:
            work = {"image": "work", "resources": {"claims": [{"name": "gpu"}]}}
            claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
            controlplane.api.post(REPLICA_SETS, replica_set(work, resourceClaims=claims))
            until(lambda: len(running(controlplane, FAULTY)) == 8)
            controlplane.kubectl("uncordon", SPARE)
            before, victim = running(controlplane, FAULTY), holder(controlplane)
            scene.inject_gpu_fault(fleet.agents[FAULTY])
            [aggregator] = fleet.aggregators
            aggregator.until(lambda: drain_states(controlplane) == ["Succeeded"])
            assert kubelet.deleted == {victim}
            aggregator.until(lambda: len(running(controlplane, SPARE)) == 1)
            assert running(controlplane, FAULTY) == before - {victim}
            [(selector, _)] = device_taints(controlplane)
            assert (selector["pool"], selector["device"]) == (FAULTY, DEVICE)
            assert scene.nodeguard_fields(controlplane, FAULTY) == []
            controlplane.kubectl("delete", "replicaset", "train", "-n", TEAM, "--wait=false")
            until(lambda: not controlplane.api.get(PODS)["items"])
