"""Tests for nodeguard.kube.rejected_pods, with the pod that a kubelet 1.37.1 rejected, and a real API server."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from nodeguard.kube import rejected_pods as module
from nodeguard.kube.client import ApiClient
from nodeguard.kube.rejected_pods import NodeBoot, read_node_boot, read_rejected_pods, rejected_pods
from nodeguard.model.instant import parse_rfc3339
from nodeguard.model.pod import MAX_REJECTED, RejectedPods
from tests.controlplane.cluster import Cluster
from tests.kube.real_pods import NODE, NODES, OTHER, PODS, Pods
from tests.kube.test_gpu_pods import RECORDED

REJECTED = RECORDED["rejected"]
CREATED = parse_rfc3339("2026-11-29T03:40:14Z")
MESSAGE = "Pod was rejected: Allocate failed due to rpc error: code = Internal desc = GPU is lost, which is unexpected"


def rejected(at: str = "2026-11-29T03:40:14Z", **status: str) -> dict[str, Any]:
    pod = deepcopy(REJECTED)
    pod["metadata"]["creationTimestamp"] = at
    pod["status"] |= status
    return pod


def counted(*pods: dict[str, Any], since: float = CREATED) -> RejectedPods:
    metadata = {"resourceVersion": "9"}
    return rejected_pods(json.dumps({"kind": "PodList", "metadata": metadata, "items": pods}).encode(), since)


def test_the_pod_that_a_device_plugin_rejected_counts() -> None:
    assert counted(REJECTED) == RejectedPods(1, CREATED, MESSAGE)


def test_the_message_of_the_latest_pod_is_shown() -> None:
    latest = rejected("2026-11-29T03:40:15Z", message="\x1b[2J" + "x" * 300)
    assert counted(latest, REJECTED) == RejectedPods(2, CREATED + 1.0, ("?[2J" + "x" * 300)[:200])


def test_pods_of_another_reason_or_without_devices_or_from_before_the_fault_do_not_count() -> None:
    without = rejected()
    del without["spec"]["containers"][0]["resources"]
    others = (rejected(reason="Evicted"), without, rejected("2026-11-29T03:40:13Z"), rejected(""))
    assert counted(*others) == RejectedPods(0, 0.0, "")


def test_a_pod_of_the_second_in_which_the_fault_began_counts() -> None:
    assert counted(REJECTED, since=CREATED + 0.7).count == 1


def test_the_number_is_limited() -> None:
    assert counted(*[REJECTED] * (MAX_REJECTED + 7)).count == MAX_REJECTED


async def test_the_failed_pods_of_one_node_are_read(
    pods: Pods, api: ApiClient, controlplane: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, host, phase in (
        ("lost", NODE, "Failed"),
        ("runs", NODE, "Running"),
        ("other", OTHER, "Failed"),
    ):
        pods.run(name, host, phase)
        status = {"reason": "UnexpectedAdmissionError", "message": MESSAGE}
        controlplane.api.patch(f"{PODS}/{name}/status", {"status": status})
    created = parse_rfc3339(pods.stored("lost")["metadata"]["creationTimestamp"])
    assert await read_rejected_pods(api, NODE, created) == RejectedPods(1, created, MESSAGE)
    assert (await read_rejected_pods(api, NODE, created + 60.0)).count == 0
    monkeypatch.setattr(module, "_MAX_BYTES", 100)
    assert await read_rejected_pods(api, NODE, created) == RejectedPods(MAX_REJECTED, 0.0, "")


async def test_the_boot_of_a_node_is_read_with_its_allocatable_gpus(
    pods: Pods, api: ApiClient, controlplane: Cluster
) -> None:
    info = dict.fromkeys(
        (
            *("machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion"),
            *("kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
        ),
        "",
    )
    status = {"nodeInfo": {**info, "bootID": "boot-7"}, "allocatable": {"nvidia.com/gpu": "7"}}
    controlplane.api.patch(f"{NODES}/{NODE}/status", {"status": status})
    controlplane.until(
        lambda: controlplane.api.get(f"{NODES}/{NODE}")["status"]["nodeInfo"]["bootID"] == "boot-7",
        "kube-apiserver",
    )
    assert await read_node_boot(api, NODE) == NodeBoot("boot-7", 7)
