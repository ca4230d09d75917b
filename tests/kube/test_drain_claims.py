"""The GPUs that pods hold by claims which a real scheduler has allocated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio
from msgspec.structs import replace

from nodeguard.kube.client import ApiClient
from nodeguard.model.eviction import PodReadError
from nodeguard.model.pod import NodePod, PodKey
from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import pod
from tests.kube.real_pods import NODE, PODS, Pods, drain_cluster

RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
TEMPLATES = f"{RESOURCES}/namespaces/default/resourceclaimtemplates"
DRIVER = "gpu.nvidia.com"

# A resource that pods request as one of a device plugin.
EXTENDED = "nvidia.com/claimed"

CLAIMED = NodePod(PodKey("default", "train-0", "uid-0"), "1", claims=("gpus",))


def device(name: str, memory: int = 0, **attributes: str) -> Object:
    """Return a device. memory: of the GPU that can be partitioned."""
    consumed = {"counterSet": "gpu-2", "counters": {"memory": {"value": str(memory)}}}
    values = {key: {"string": value} for key, value in attributes.items()}
    return {"name": name, "attributes": values, **({"consumesCounters": [consumed]} if memory else {})}


def publish(cluster: Cluster) -> None:
    """Publish three GPUs of a Node, of which the last can be partitioned, as NVIDIA's driver does."""
    counters = [{"name": "gpu-2", "counters": {"memory": {"value": "8"}}}]
    devices = [
        device("gpu-0", uuid="GPU-0"),
        device("gpu-1", uuid="GPU-1"),
        device("gpu-2", 8, uuid="GPU-2"),
        *(device(f"gpu-2-mig-{number}", 4, parentUUID="GPU-2") for number in range(2)),
    ]
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 2}
    for name, content in (
        ("counters", {"sharedCounters": counters}),
        ("devices", {"devices": devices}),
    ):
        spec = {"driver": DRIVER, "nodeName": NODE, "pool": pool, **content}
        create(cluster, "resourceslices", "ResourceSlice", name, spec)
    selectors = [{"cel": {"expression": 'device.attributes["gpu.nvidia.com"].uuid == "GPU-1"'}}]
    create(
        cluster,
        "deviceclasses",
        "DeviceClass",
        "claimed",
        {"selectors": selectors, "extendedResourceName": EXTENDED},
    )
    create(cluster, "deviceclasses", "DeviceClass", "gpu", {})


def create(cluster: Cluster, path: str, kind: str, name: str, spec: Object) -> None:
    body = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    cluster.api.post(f"{RESOURCES}/{path}", body)


def request(attribute: str, gpu_id: str, **more: object) -> Object:
    """Return the spec of a claim for a device with an attribute."""
    name = f'device.attributes["{DRIVER}"]'
    selector = f'"{attribute}" in {name} && {name}.{attribute} == "{gpu_id}"'
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": selector}}], **more}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def template(cluster: Cluster, name: str, spec: Object) -> Object:
    """Create a template of claims, and return the reference of a pod to it."""
    create(
        cluster, "namespaces/default/resourceclaimtemplates", "ResourceClaimTemplate", name, {"spec": spec}
    )
    return {"name": "gpu", "resourceClaimTemplateName": name}


def team_claim(cluster: Cluster) -> Object:
    """Create a claim of a GPU for any number of pods, and return the reference of a pod to it."""
    path = "namespaces/default/resourceclaims"
    create(cluster, path, "ResourceClaim", "team", request("uuid", "GPU-0"))
    return {"name": "gpu", "resourceClaimName": "team"}


@pytest_asyncio.fixture
async def claimed(controlplane: Cluster, pods: Pods) -> AsyncIterator[Pods]:
    publish(controlplane)
    admin = "resource.kubernetes.io/admin-access"
    namespace = "/api/v1/namespaces/default"
    controlplane.api.patch(namespace, {"metadata": {"labels": {admin: "true"}}})
    yield pods
    controlplane.api.delete(PODS)
    for path in (CLAIMS, TEMPLATES, f"{RESOURCES}/resourceslices", f"{RESOURCES}/deviceclasses"):
        controlplane.api.delete(path)
    controlplane.api.patch(namespace, {"metadata": {"labels": {admin: None}}})


def start(cluster: Cluster, name: str, claim: Mapping[str, object] | None = None) -> None:
    """Create a pod, and wait until the scheduler has placed it. claim: of it; None for the extended resource."""
    submit(cluster, name, claim)
    cluster.until(lambda: cluster.api.get(f"{PODS}/{name}")["spec"].get("nodeName"), "kube-scheduler")


def submit(cluster: Cluster, name: str, claim: Mapping[str, object] | None) -> None:
    created = pod(name, gpus=0)
    created["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    [container] = created["spec"]["containers"]
    if claim is None:
        container["resources"] = {"limits": {EXTENDED: "1"}}
    else:
        container["resources"] = {"claims": [{"name": "gpu"}]}
        created["spec"]["resourceClaims"] = [claim]
    cluster.api.post(PODS, created)


async def test_pods_hold_the_gpus_of_their_claims(claimed: Pods, controlplane: Cluster) -> None:
    shared = team_claim(controlplane)
    part = template(controlplane, "part", request("parentUUID", "GPU-2"))
    monitor = template(controlplane, "monitor", request("uuid", "GPU-0", adminAccess=True))
    claims = {"shared-0": shared, "shared-1": shared, "part-0": part, "part-1": part, "monitor": monitor}
    for name, claim in claims.items():
        start(controlplane, name, claim)
    start(controlplane, "extended")
    claimed.run("plugin", gpu="GPU-9")

    before = await claimed.drain.node_pods(NODE)
    found = {item.key.name: item for item in await claimed.drain.with_claims(NODE, before)}
    parts = {found[name].gpu_ids for name in ("part-0", "part-1")}
    assert parts == {("GPU-2::gpu-2-mig-0",), ("GPU-2::gpu-2-mig-1",)}
    ids = {name: item.gpu_ids for name, item in found.items() if not name.startswith("part-")}
    assert ids == {
        "shared-0": ("GPU-0",),
        "shared-1": ("GPU-0",),
        "monitor": (),
        "extended": ("GPU-1",),
        "plugin": ("GPU-9",),
    }
    assert {item.claims for item in found.values()} == {()}
    assert {name for name, item in found.items() if item.keeps_gpus} == {"shared-0", "shared-1"}
    assert [len(item.claims) for item in before if item.key.name != "plugin"] == [1] * 6

    # The driver has gone, and a claim that is named does not exist.
    controlplane.api.delete(f"{RESOURCES}/resourceslices")
    missing = replace(CLAIMED, claims=("missing",))
    after = await claimed.drain.with_claims(NODE, (*before, missing))
    assert {item.key.name for item in after if not item.claims} == {"monitor", "plugin"}
    assert [item.gpu_ids for item in after if item.claims] == [()] * 6


async def test_a_further_pod_of_an_allocated_claim_gets_its_tainted_gpu(
    claimed: Pods, controlplane: Cluster
) -> None:
    """So a drain evicts no pod of such a claim if only the GPU has the mark."""
    shared, own = team_claim(controlplane), template(controlplane, "own", request("uuid", "GPU-1"))
    start(controlplane, "first", shared)
    taint = {"key": "nodeguard.dev/quarantine", "value": "gpu", "effect": "NoSchedule"}
    rule = {"deviceSelector": {"driver": DRIVER, "pool": NODE}, "taint": taint}
    create(controlplane, "devicetaintrules", "DeviceTaintRule", "mark", rule)
    try:
        submit(controlplane, "second", own)

        def is_refused() -> bool:
            conditions = claimed.stored("second")["status"].get("conditions", [])
            return any(item.get("reason") == "Unschedulable" for item in conditions)

        controlplane.until(is_refused, "kube-scheduler")
        start(controlplane, "third", shared)
        found = await claimed.drain.with_claims(NODE, await claimed.drain.node_pods(NODE))
        assert {item.key.name: item.gpu_ids for item in found} == {"first": ("GPU-0",), "third": ("GPU-0",)}
    finally:
        controlplane.api.delete(f"{RESOURCES}/devicetaintrules/mark")


async def test_without_the_right_no_claim_is_known(controlplane: Cluster) -> None:
    api = await ApiClient.connect(str(controlplane.kubeconfig), headers=[("Impersonate-User", "ann")])
    try:
        with pytest.raises(PodReadError, match=r"resourceslices.*with the value policy\.drain\.mode"):
            await drain_cluster(api).with_claims(NODE, (CLAIMED,))
        assert await drain_cluster(api).with_claims(NODE, ()) == (), "nothing is read for pods without claims"
    finally:
        await api.close()
