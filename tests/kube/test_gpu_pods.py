"""Tests for nodeguard.kube.gpu_pods, with pods as Kubernetes 1.37 returns them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodeguard.kube.gpu_pods import decode_gpu_pods
from nodeguard.kube.node_pods import jobs_of_pods
from nodeguard.model.pod import NodePod, PodKey

GPU = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
QUARANTINE = "nodeguard.dev/quarantine"

# Pods of a kubelet 1.37.1 with the device plugin of tests/kubelet, by name: each asks for one GPU in a container or more.
# The feature gate ResourceHealthStatus is on, except for one of them. The device plugin failed for the rejected one.
_LINES = Path(__file__).with_name("kubelet_pods.jsonl").read_text().splitlines()
RECORDED: dict[str, dict[str, Any]] = {item["metadata"]["name"]: item for item in map(json.loads, _LINES)}


def pod(resources: object = GPU, **more: Any) -> dict[str, Any]:
    """Return a running pod that asks for a GPU. resources: others. more: of its metadata, spec and status."""
    container = {"name": "work", "image": "work", "resources": resources}
    identity = {"name": "train-0", "namespace": "team-a", "uid": "uid-0", "resourceVersion": "812"}
    return {
        "metadata": {**identity, "creationTimestamp": "2026-11-23T02:00:00Z", **more.get("metadata", {})},
        "spec": {"containers": [container], "nodeName": "gpu-1", **more.get("spec", {})},
        "status": {"phase": "Running", **more.get("status", {})},
    }


def held(*ids: str, name: str = "work", resource: str = "nvidia.com/gpu") -> dict[str, Any]:
    """Return the status of a container that holds devices."""
    devices = [{"resourceID": device, "health": "Healthy"} for device in ids]
    return {
        "name": name,
        "ready": True,
        "allocatedResourcesStatus": [{"name": resource, "resources": devices}],
    }


def owner(kind: str, api: str = "x/v1", *, is_controller: bool = True) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "name": "o", "uid": "u", "controller": is_controller}


def decoded(*pods: dict[str, Any]) -> tuple[NodePod, ...]:
    metadata = {"resourceVersion": "900"}
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": pods}
    return decode_gpu_pods(json.dumps(body).encode())


def read(single: dict[str, Any]) -> NodePod:
    [result] = decoded(single)
    return result


def test_a_pod_is_read_with_all_that_a_drain_needs() -> None:
    ready = {"type": "Ready", "status": "True"}
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    assert read(
        pod(
            metadata={
                "labels": {"app": "train"},
                "ownerReferences": [owner("Other", is_controller=False), owner("Job", "batch/v1")],
                "deletionTimestamp": "2026-11-23T03:00:00Z",
                "annotations": {
                    "nodeguard.dev/drain-at": "soon",
                    "nodeguard.dev/drain-now": "true",
                    "batch.kubernetes.io/job-index-failure-count": "2",
                },
            },
            spec={"tolerations": [{"key": QUARANTINE, "operator": "Exists"}]},
            status={"containerStatuses": [held("GPU-614b")], "conditions": [ready, condition]},
        )
    ) == NodePod(
        PodKey("team-a", "train-0", "uid-0", "team-a/o"),
        "812",
        "gpu-1",
        gpu_ids=("GPU-614b",),
        labels={"app": "train"},
        controller="Job",
        batch_job="o",
        index_failures=2,
        tolerates_quarantine=True,
        is_terminating=True,
        is_evicted=True,
        drain_at="soon",
        agrees_to_leave=True,
    )


def test_a_job_of_volcano_is_no_job_of_kubernetes_with_failures_to_read() -> None:
    """With the metadata that the controller of Volcano 1.15.1 gave to a pod."""
    uid = "ecceae3d-6cfa-4a45-a192-50a590f92c6e"
    metadata = {
        "labels": {
            "volcano.sh/job-name": "train",
            "volcano.sh/job-namespace": "team-a",
            "volcano.sh/queue-name": "default",
            "volcano.sh/task-index": "0",
            "volcano.sh/task-spec": "worker",
        },
        "annotations": {"scheduling.k8s.io/group-name": f"train-{uid}", "volcano.sh/job-version": "0"},
        "ownerReferences": [owner("Job", "batch.volcano.sh/v1alpha1")],
    }
    volcano = read(pod(metadata=metadata))
    assert (volcano.key.job, volcano.group) == ("team-a/train", None)
    assert (volcano.controller, volcano.batch_job) == ("Job", "")


@pytest.mark.parametrize("count", ["", "-1", "many", "1" * 40])
def test_an_invalid_number_of_failures_of_an_index_is_none_as_for_the_job(count: str) -> None:
    annotations = {"batch.kubernetes.io/job-index-failure-count": count}
    assert read(pod(metadata={"annotations": annotations})).index_failures == 0


def test_a_pod_of_nothing_but_its_identity_uses_no_gpu() -> None:
    key = PodKey("team-a", "train-0", "uid-0", "team-a/train-0")
    assert read(pod({})) == NodePod(key, "812", "gpu-1", is_ready=False)


@pytest.mark.parametrize(
    ("metadata", "job"),
    [
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "llama"}}, "team-a/llama"),
        ({"annotations": {"pod-group-name": "a\x1b[2J"}}, ""),
        ({"annotations": {"pod-group-name": "a" * 300}}, ""),
    ],
)
def test_a_pod_names_its_job_as_its_incident_does(metadata: dict[str, Any], job: str) -> None:
    assert read(pod(metadata=metadata)).key.job == job
    body = {"kind": "PodList", "metadata": {"resourceVersion": "900"}, "items": [pod(metadata=metadata)]}
    [read_job] = jobs_of_pods(json.dumps(body).encode())
    assert read_job.name == (job or f"team-a/{metadata['annotations']['pod-group-name']}")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_are_left_out(phase: str) -> None:
    finished = pod(status={"phase": phase, "containerStatuses": [held("GPU-614b")]})
    assert decoded(finished) == ()


@pytest.mark.parametrize(
    ("limits", "ids"),
    [
        ({"nvidia.com/gpu": "8"}, None),
        ({"nvidia.com/gpu.shared": "1"}, None),
        ({"nvidia.com/mig-1g.10gb": "1"}, None),
        # GPUs and vGPUs of virtual machines, as the device plugins of NVIDIA and KubeVirt name them.
        ({"nvidia.com/pgpu": "1"}, None),
        ({"nvidia.com/GB100_B200": "1"}, None),
        ({"nvidia.com/GRID_A100-1-10C": "1"}, None),
        ({"nvidia.com/gpu": "0"}, ()),
        ({"rdma/hca": "1", "cpu": "4"}, ()),
        # Network adapters of NVIDIA's network operator, with a name that the site chooses.
        ({"nvidia.com/hostdev": "1"}, ()),
        ({"nvidia.com/gpu": "1", "nvidia.com/hostdev": "1"}, None),
    ],
)
def test_resources_of_the_device_plugin_are_gpus(limits: dict[str, str], ids: tuple[str, ...] | None) -> None:
    assert read(pod({"limits": limits})).gpu_ids == ids


@pytest.mark.parametrize(
    ("resource", "device", "ids"),
    [
        ("nvidia.com/hostdev", "0000:b1:00.2", ("GPU-1",)),
        ("nvidia.com/gpu.shared", "GPU-2::3", ("GPU-1", "GPU-2::3")),
        ("nvidia.com/mig-1g.10gb", "MIG-5", ("GPU-1", "MIG-5")),
        # A device plugin with other names for GPUs.
        ("nvidia.com/h100", "GPU-2", ("GPU-1", "GPU-2")),
        ("nvidia.com/h100-part", "MIG-5", ("GPU-1", "MIG-5")),
    ],
)
def test_devices_of_other_resources_are_gpus_by_their_ids(
    resource: str, device: str, ids: tuple[str, ...]
) -> None:
    status = held("GPU-1")
    status["allocatedResourcesStatus"] += held(device, resource=resource)["allocatedResourcesStatus"]
    limits = {"nvidia.com/gpu": "1", resource: "1"}
    assert read(pod({"limits": limits}, status={"containerStatuses": [status]})).gpu_ids == ids
    other = held(device, resource=resource)
    only = read(pod({"limits": {resource: "1"}}, status={"containerStatuses": [other]}))
    assert only.gpu_ids == tuple(name for name in ids if name != "GPU-1")


def test_the_claims_of_a_pod_are_named() -> None:
    named = {"name": "a", "resourceClaimName": "team-gpus"}
    created, waiting, needless = ({"name": name, "resourceClaimTemplateName": "x"} for name in "bcd")
    statuses = [{"name": "b", "resourceClaimName": "train-0-b-x7"}, {"name": "d"}]
    found = read(
        pod(
            {},
            spec={"resourceClaims": [named, created, waiting, needless]},
            status={"resourceClaimStatuses": statuses},
        )
    )
    assert (found.claims, found.gpu_ids) == (("team-gpus", "train-0-b-x7", ""), ())


def test_an_extended_resource_of_a_dra_driver_is_a_claim_and_no_gpu_of_the_device_plugin() -> None:
    mapping = {
        "containerName": "work",
        "resourceName": "nvidia.com/gpu",
        "requestName": "container-0-request-0",
    }
    extended = {"resourceClaimName": "train-0-extended-resources-x7", "requestMappings": [mapping]}
    found = read(pod(status={"extendedResourceClaimStatus": extended}))
    assert (found.claims, found.gpu_ids) == (("train-0-extended-resources-x7",), ())
    other = {**extended, "requestMappings": [{**mapping, "containerName": "other"}]}
    found = read(pod(status={"extendedResourceClaimStatus": other, "containerStatuses": [held("GPU-1")]}))
    assert (found.claims, found.gpu_ids) == (("train-0-extended-resources-x7",), ("GPU-1",))


SIDECAR = {"initContainers": [{"name": "side", "restartPolicy": "Always", "resources": GPU}]}


@pytest.mark.parametrize(
    ("status", "ids"),
    [
        ({}, None),
        ({"containerStatuses": [{"name": "work"}]}, None),
        ({"containerStatuses": [held()]}, None),
        ({"containerStatuses": [held("0", resource="rdma/hca")]}, None),
        ({"containerStatuses": [held("GPU-1", resource="claim:gpu/nvidia.com/gpu")]}, None),
        ({"containerStatuses": [held("GPU-2", "GPU-1")]}, ("GPU-1", "GPU-2")),
    ],
)
def test_ids_are_known_if_the_container_with_gpus_reports_them(
    status: dict[str, Any], ids: tuple[str, ...] | None
) -> None:
    assert read(pod(status=status)).gpu_ids == ids


def test_ids_need_those_of_each_container_with_gpus() -> None:
    work, side = held("GPU-1"), held("GPU-2", name="side")
    both = {"containerStatuses": [work], "initContainerStatuses": [side]}
    assert read(pod(spec=SIDECAR, status=both)).gpu_ids == ("GPU-1", "GPU-2")
    assert read(pod(spec=SIDECAR, status={"containerStatuses": [work]})).gpu_ids is None
    assert read(pod({}, spec=SIDECAR)).gpu_ids is None


ENDED, RUNS = {"terminated": {"exitCode": 0}}, {"running": {"startedAt": "2026-11-23T02:00:01Z"}}


@pytest.mark.parametrize(
    ("phase", "first", "ids"),
    [
        ("Running", {"state": ENDED}, ()),
        ("Running", {"state": ENDED, **held("GPU-9", name="test")}, ()),
        # Until all have ended, one that failed starts again.
        ("Pending", {"state": ENDED}, None),
        ("Pending", {"state": RUNS}, None),
        ("Pending", {"state": RUNS, **held("GPU-9", name="test")}, ("GPU-9",)),
        # The first containers of a pod run again in a new sandbox, such as after a reboot.
        ("Running", {"state": RUNS}, None),
        ("Running", {}, None),
    ],
)
def test_an_init_container_holds_gpus_until_it_has_ended(
    phase: str, first: dict[str, Any], ids: tuple[str, ...] | None
) -> None:
    test = {"initContainers": [{"name": "test", "resources": GPU}]}
    status = {"phase": phase, "initContainerStatuses": [{"name": "test", **first}]}
    assert read(pod({}, spec=test, status=status)).gpu_ids == ids


def test_an_init_container_passes_its_gpus_to_a_container_that_asks_for_the_same() -> None:
    """The kubelet reports no devices of init containers. A test of the GPU may hang, and its pod has to leave."""
    status = {
        "phase": "Pending",
        "initContainerStatuses": [{"name": "test", "state": RUNS}],
        "containerStatuses": [held("GPU-1")],
    }
    same = {"initContainers": [{"name": "test", "resources": GPU}]}
    assert read(pod(spec=same, status=status)).gpu_ids == ("GPU-1",)
    more = {"initContainers": [{"name": "test", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
    assert read(pod(spec=more, status=status)).gpu_ids is None


@pytest.mark.parametrize(("first", "ids"), [("1", ("GPU-1", "GPU-2")), ("3", None), ("1k", None)])
def test_an_init_container_passes_its_gpus_to_containers_that_ask_for_more(
    first: str, ids: tuple[str, ...] | None
) -> None:
    spec = {
        "initContainers": [{"name": "test", "resources": {"limits": {"nvidia.com/gpu": first}}}],
        "containers": [{"name": "work", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
    }
    status = {
        "phase": "Pending",
        "initContainerStatuses": [{"name": "test", "state": RUNS}],
        "containerStatuses": [held("GPU-1", "GPU-2")],
    }
    assert read(pod(spec=spec, status=status)).gpu_ids == ids


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("running", ("GPU-00000002-0a1b-2c3d-4e5f-607182930400",)),
        ("pulling", ("GPU-00000005-0a1b-2c3d-4e5f-607182930400",)),
        ("crashing", ("GPU-00000008-0a1b-2c3d-4e5f-607182930400",)),
        ("terminating", ("GPU-00000001-0a1b-2c3d-4e5f-607182930400",)),
        ("half-ended", ("GPU-0000000f-0a1b-2c3d-4e5f-607182930400",)),
        ("init-runs", ("GPU-0000000d-0a1b-2c3d-4e5f-607182930400",)),
        ("init-ended", ("GPU-0000000e-0a1b-2c3d-4e5f-607182930400",)),
        ("only-init-runs", None),
        ("only-init-ended", ()),
        ("sidecar", None),
        ("without-gate", None),
    ],
)
def test_pods_of_a_kubelet_with_a_device_plugin(name: str, ids: tuple[str, ...] | None) -> None:
    found = read(RECORDED[name])
    assert (found.gpu_ids, found.is_terminating) == (ids, name == "terminating")


@pytest.mark.parametrize("name", ["succeeded", "rejected"])
def test_pods_that_a_kubelet_ended_or_rejected_are_finished(name: str) -> None:
    assert decoded(RECORDED[name]) == ()


@pytest.mark.parametrize(
    ("phase", "status", "has_started", "is_ready"),
    [
        ("Running", "True", True, True),
        ("Running", "False", True, False),
        ("Running", "Unknown", True, False),
        ("Pending", "False", False, False),
        ("Unknown", "Unknown", True, False),
    ],
)
def test_phase_and_readiness(phase: str, status: str, has_started: bool, is_ready: bool) -> None:
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": status}]
    found = read(pod(status={"phase": phase, "conditions": conditions}))
    assert (found.has_started, found.is_ready) == (has_started, is_ready)


def test_a_mirror_pod_is_static() -> None:
    annotations = {"kubernetes.io/config.mirror": "5c02b9"}
    static = read(pod(metadata={"annotations": annotations, "ownerReferences": [owner("Node")]}))
    assert (static.is_static, static.controller) == (True, "Node")
    assert not read(pod()).is_static


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"operator": "Exists"}, True),
        ({"key": QUARANTINE, "operator": "Exists", "effect": "NoSchedule"}, True),
        # The value of the taint is the class of the fault, which a later fault changes.
        ({"key": QUARANTINE, "operator": "Equal", "value": "gpu"}, True),
        ({"key": QUARANTINE}, True),
        ({"key": QUARANTINE, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nodeguard.dev/suspect", "operator": "Exists"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, False),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_tolerations_of_the_quarantine(toleration: dict[str, str], tolerates: bool) -> None:
    other = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    assert read(pod(spec={"tolerations": [other, toleration]})).tolerates_quarantine is tolerates


@pytest.mark.parametrize(
    "change", [{"type": "Ready"}, {"status": "False"}, {"reason": "PreemptionByScheduler"}], ids=str
)
def test_another_disruption_is_no_eviction(change: dict[str, str]) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", **change}
    assert not read(pod(status={"conditions": [condition]})).is_evicted


def test_a_wrong_type_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="labels"):
        decoded(pod(metadata={"labels": "train"}))
