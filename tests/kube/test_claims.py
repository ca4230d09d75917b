"""The GPUs of pods by their ResourceClaims, with claims as Kubernetes 1.37 stores them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_set import drain_set
from nodeguard.kube.claims import (
    Claim,
    ClaimKey,
    claim_keys,
    consuming_groups,
    decode_claim,
    with_claimed_gpus,
)
from nodeguard.model.drain import UnknownHolders
from nodeguard.model.pod import NodePod, PodGroupKey, PodKey

DRIVER = "gpu.nvidia.com"
GANG = PodGroupKey("team-a", "gang")
POD = NodePod(PodKey("team-a", "train-0", "uid-0"), "812", claims=("gpus",))
IDS = {
    (DRIVER, "gpu-1", "gpu-0"): "GPU-1",
    (DRIVER, "gpu-1", "gpu-1"): "GPU-2",
    (DRIVER, "gpu-1", "gpu-1-mig-1g"): "GPU-2::gpu-1-mig-1g",
    ("compute-domain.nvidia.com", "gpu-1", "channel-0"): "",
}


def result(device: str, driver: str = DRIVER, **more: Any) -> dict[str, Any]:
    """Return the allocation of a device of Node gpu-1."""
    return {"request": "gpu", "driver": driver, "pool": "gpu-1", "device": device, **more}


def claim(*results: dict[str, Any], owner: str = "uid-0", users: tuple[str, ...] = ("uid-0",)) -> Claim:
    """Return an allocated claim. owner: uid of the pod that it was created for. users: uids of pods."""
    owners = (
        [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": True}] if owner else []
    )
    return stored(
        {
            "allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": []}},
            "reservedFor": [{"resource": "pods", "name": f"pod-of-{uid}", "uid": uid} for uid in users],
        },
        ownerReferences=owners,
    )


def stored(status: dict[str, Any], **metadata: Any) -> Claim:
    identity = {"name": "gpus", "namespace": "team-a", "uid": "c", "resourceVersion": "9", **metadata}
    return decode_claim(
        json.dumps({"metadata": identity, "spec": {"devices": {}}, "status": status}).encode()
    )


def read(found: Claim | None, pod: NodePod = POD, group_uid: str = "uid-g") -> NodePod:
    """Return a pod with its GPUs. group_uid: of PodGroup `gang`; empty for none."""
    claims: dict[ClaimKey, Claim] = {} if found is None else {("team-a", "gpus"): found}
    return with_claimed_gpus(pod, claims, IDS, {GANG: group_uid} if group_uid else {})


def test_a_pod_holds_each_gpu_of_its_claim() -> None:
    assert read(claim(result("gpu-0"))) == replace(POD, gpu_ids=("GPU-1",), claims=())
    assert read(claim(result("gpu-1"), result("gpu-0"))).gpu_ids == ("GPU-1", "GPU-2")


def test_all_pods_of_a_claim_hold_its_gpus_and_new_ones_in_their_place_would_too() -> None:
    shared = claim(result("gpu-0"), owner="", users=("uid-0", "uid-1"))
    pods = (POD, replace(POD, key=PodKey("team-a", "train-1", "uid-1")))
    for pod in pods:
        assert read(shared, pod) == replace(pod, gpu_ids=("GPU-1",), claims=(), keeps_gpus=True)


def test_a_claim_of_a_pod_group_is_used_by_its_pods_only() -> None:
    status = {
        "allocation": {"devices": {"results": [result("gpu-0")]}},
        "reservedFor": [
            {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "uid-g"}
        ],
    }
    member = replace(POD, group=GANG)
    assert read(stored(status), member).gpu_ids == ("GPU-1",)
    assert read(stored(status), member).keeps_gpus
    for other in (POD, replace(POD, group=PodGroupKey("team-a", "other"))):
        assert read(stored(status), other).claims == ("gpus",)
    # A PodGroup of the same name was created since, or none.
    for uid in ("uid-of-a-later-one", ""):
        assert read(stored(status), member, uid).claims == ("gpus",)
    claims: dict[ClaimKey, Claim] = {("team-a", "gpus"): stored(status)}
    assert consuming_groups([member, POD], claims) == [GANG]
    assert consuming_groups([member], {("team-a", "gpus"): claim(result("gpu-0"))}) == []
    assert consuming_groups([replace(member, claims=("others",))], claims) == []


def test_parts_and_shares_of_a_gpu_are_no_whole_gpus() -> None:
    assert read(claim(result("gpu-1-mig-1g"))).gpu_ids == ("GPU-2::gpu-1-mig-1g",)
    assert read(claim(result("gpu-0", shareID="5f1c"))).gpu_ids == ("GPU-1::5f1c",)
    assert read(claim(result("gpu-1-mig-1g", shareID="5f1c"))).gpu_ids == ("GPU-2::gpu-1-mig-1g",)


def test_a_monitor_with_admin_access_holds_no_gpu() -> None:
    assert read(claim(result("gpu-0", adminAccess=True), owner="")) == replace(POD, claims=())
    both = claim(result("gpu-0", adminAccess=True), result("gpu-1", adminAccess=False))
    assert read(both).gpu_ids == ("GPU-2",)


def test_a_device_that_is_no_gpu_makes_no_holder() -> None:
    channel = result("channel-0", "compute-domain.nvidia.com")
    assert read(claim(channel, owner="")) == replace(POD, claims=())


@pytest.mark.parametrize(
    "found",
    [
        None,
        stored({}),
        stored({"reservedFor": [{"resource": "pods", "name": "train-0", "uid": "uid-0"}]}),
        claim(result("gpu-0"), users=("uid-1",)),
        claim(result("gpu-7")),
        claim(result("gpu-0", "gpu.amd.com")),
    ],
    ids=[
        "missing",
        "new",
        "deallocated",
        "of another pod",
        "device is not published",
        "driver without devices",
    ],
)
def test_without_a_known_device_the_claim_stays_unknown(found: Claim | None) -> None:
    assert read(found) == POD


def test_an_unknown_claim_hides_no_known_gpu() -> None:
    pod = replace(POD, gpu_ids=("GPU-3",), claims=("", "gpus", "gone"))
    assert claim_keys([pod, POD]) == [("team-a", "gone"), ("team-a", "gpus")]
    found = read(claim(result("gpu-0")), pod)
    assert (found.gpu_ids, found.claims) == (("GPU-1", "GPU-3"), ("", "gone"))
    partly = read(claim(result("gpu-0"), result("gpu-7")))
    assert (partly.gpu_ids, partly.claims) == (("GPU-1",), ("gpus",))


def test_unreported_gpus_of_a_device_plugin_hide_no_gpu_of_a_shared_claim() -> None:
    shared = claim(result("gpu-0"), owner="", users=("uid-0", "uid-1"))
    unreported = replace(POD, gpu_ids=None, controller="Job")
    other = replace(POD, key=PodKey("team-a", "train-1", "uid-1"), controller="Job")
    pods = (read(shared, unreported), read(shared, other))
    faulty = DrainCandidate("uid-n", "gpu-1", "gpu/0000:3b:00", 100.0, ("gpu-lost",), ("GPU-1",))
    assert drain_set(faulty, pods, UnknownHolders.NONE).pods == pods
    elsewhere = drain_set(replace(faulty, gpu_ids=("GPU-2",)), pods, UnknownHolders.NONE)
    assert (elsewhere.pods, "pod team-a/train-0 holds" in elsewhere.reason) == ((), True)
    assert read(stored({}), unreported) == unreported


@pytest.mark.parametrize(
    ("toleration", "keeps"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "nodeguard.dev/quarantine", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu.nvidia.com/xid", "operator": "Exists"}, False),
    ],
)
def test_a_claim_that_tolerates_the_mark_keeps_its_gpus(toleration: dict[str, str], keeps: bool) -> None:
    assert read(claim(result("gpu-0", tolerations=[toleration]))).keeps_gpus is keeps
    channel = result("channel-0", "compute-domain.nvidia.com", tolerations=[toleration])
    assert not read(claim(result("gpu-0"), channel)).keeps_gpus
