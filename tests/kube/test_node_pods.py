"""Tests for nodeguard.kube.node_pods."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from nodeguard.kube.node_pods import JOB_ANNOTATIONS, JOB_LABELS, jobs_of_pods
from nodeguard.model.instant import parse_rfc3339
from nodeguard.model.job import NodeJob
from tests.paths import ROOT

# Keys that mark the member of a gang, and do not name the job.
MARKERS = {
    "batch.kubernetes.io/job-completion-index",
    "kueue.x-k8s.io/podset",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "yunikorn.apache.org/task-group-name",
}
DEVICES = {"nvidia.com/gpu": "8"}


def pod(name: str = "worker-0", limits: object = None, **more: Any) -> dict[str, Any]:
    """Return a pod that uses eight GPUs. limits: others. more: of its metadata, spec and status."""
    identity = {"name": name, "namespace": "training", "uid": f"uid-{name}", "resourceVersion": "7"}
    metadata = {**identity, **more.pop("metadata", {})}
    container = {"name": "work", "resources": {"limits": DEVICES if limits is None else limits}}
    return {
        "metadata": metadata,
        "spec": {"containers": [container], **more.pop("spec", {})},
        "status": {"phase": "Running", **more.pop("status", {})},
    }


def owner(kind: str, name: str, *, controller: bool = True) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": name, "controller": controller, "uid": "u"}]}


def jobs(*pods: dict[str, Any]) -> tuple[NodeJob, ...]:
    metadata = {"resourceVersion": "9"}
    return jobs_of_pods(json.dumps({"kind": "PodList", "metadata": metadata, "items": pods}).encode())


def names(*pods: dict[str, Any]) -> list[str]:
    return [job.name for job in jobs(*pods)]


@pytest.mark.parametrize("key", JOB_LABELS)
def test_a_label_of_a_gang_names_the_job(key: str) -> None:
    assert names(pod(metadata={"labels": {key: "llama"}, **owner("Job", "llama-workers-0")})) == [
        "training/llama"
    ]


@pytest.mark.parametrize("key", JOB_ANNOTATIONS)
def test_an_annotation_of_a_gang_names_the_job(key: str) -> None:
    assert names(pod(metadata={"annotations": {key: "llama"}})) == ["training/llama"]


def test_the_keys_are_those_of_the_policy_for_single_node_work() -> None:
    text = (ROOT / "daemonset" / "fill" / "fill.yaml").read_text()
    keys = set(re.findall(r'^ {10}"([a-z.]+[a-z0-9./-]*)",', text, re.MULTILINE))
    assert keys == {*JOB_LABELS, *JOB_ANNOTATIONS, *MARKERS}


def test_the_pod_group_of_kubernetes_names_the_job() -> None:
    assert names(pod(spec={"schedulingGroup": {"podGroupName": "llama"}})) == ["training/llama"]


def test_the_label_of_a_jobset_precedes_the_job_that_it_owns() -> None:
    metadata = {"labels": {"jobset.sigs.k8s.io/jobset-name": "llama"}, **owner("Job", "llama-workers-0")}
    assert names(pod(metadata=metadata)) == ["training/llama"]


def test_without_a_gang_the_controlling_owner_names_the_job_and_else_the_pod() -> None:
    both = owner("Job", "llama")["ownerReferences"] + owner("X", "other", controller=False)["ownerReferences"]
    assert names(pod(metadata={"ownerReferences": both[::-1]})) == ["training/llama"]
    assert names(pod("shell")) == ["training/shell"]


@pytest.mark.parametrize(
    "single",
    [
        pod(limits={"cpu": "8", "memory": "1Gi", "hugepages-2Mi": "4Mi"}),
        pod(limits={"nvidia.com/gpu": "0"}),
        pod(limits={"attachable-volumes.kubernetes.io/x": "1"}),
        pod(status={"phase": "Succeeded"}),
        pod(status={"phase": "Failed"}),
        pod(metadata=owner("DaemonSet", "dcgm")),
        pod(metadata=owner("Node", "gpu-1")),
    ],
)
def test_pods_that_are_no_job_of_the_node(single: dict[str, Any]) -> None:
    assert names(single) == []


@pytest.mark.parametrize(
    "single",
    [
        pod(limits={"rdma/hca": 1}),
        pod(limits={}, spec={"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "x"}]}),
        pod(limits={}, spec={"initContainers": [{"name": "side", "resources": {"limits": DEVICES}}]}),
        pod(status={"phase": "Pending"}),
    ],
)
def test_pods_that_use_devices(single: dict[str, Any]) -> None:
    assert names(single) == ["training/worker-0"]


def test_a_job_starts_when_its_containers_with_devices_do_also_before_a_restart() -> None:
    pod_start, first, second = "2026-11-23T02:00:00Z", "2026-11-23T02:05:00Z", "2026-11-23T02:20:00Z"
    status = {
        "startTime": pod_start,
        "containerStatuses": [
            {
                "name": "work",
                "state": {"running": {"startedAt": second}},
                "lastState": {"terminated": {"exitCode": 1, "startedAt": first, "finishedAt": second}},
            },
            {"name": "side", "state": {"running": {"startedAt": "2026-11-23T03:00:00Z"}}},
        ],
    }
    [job] = jobs(pod(status=status))
    assert job.starts == (parse_rfc3339(first), parse_rfc3339(second))
    [job] = jobs(pod(status={"startTime": pod_start, "containerStatuses": []}))
    assert job.starts == (parse_rfc3339(pod_start),)
    [job] = jobs(pod(status={"startTime": None}))
    assert job.starts == ()


def test_pods_of_one_job_on_a_node_are_one_job() -> None:
    times = ["2026-11-23T02:00:00Z", "2026-11-23T02:00:04Z"]
    gang = {"labels": {"volcano.sh/job-name": "llama"}}
    pods = [pod(f"worker-{at}", metadata=gang, status={"startTime": at}) for at in times]
    other = pod("web-1", metadata={"namespace": "serving", **owner("ReplicaSet", "web")})
    assert jobs(other, *pods) == (
        NodeJob("serving/web"),
        NodeJob("training/llama", tuple(map(parse_rfc3339, times))),
    )


def test_names_are_the_callers_to_validate_and_a_wrong_type_is_an_error() -> None:
    assert names(pod(metadata={"annotations": {"pod-group-name": "\x1b[2J"}})) == ["training/\x1b[2J"]
    with pytest.raises(msgspec.MsgspecError):
        jobs(pod(metadata={"labels": "llama"}))
    assert jobs_of_pods(b'{"metadata": {"resourceVersion": "9"}, "items": []}') == ()
