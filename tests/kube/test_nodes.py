"""Decoding of Nodes."""

from __future__ import annotations

import json

import pytest

from nodeguard.kube.client import ApiClient
from nodeguard.kube.nodes import decode_node
from nodeguard.model.node import Node, NodeCondition, Taint
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node


async def test_a_node_is_decoded_without_unused_fields(api: ApiClient, controlplane: Cluster) -> None:
    body = node("node-1", labels={"rack": "r1"})
    body["metadata"]["annotations"] = {"nodeguard.dev/hold": "mine", "other.dev/state": "theirs"}
    body["spec"] = {
        "unschedulable": True,
        "taints": [
            {"key": "nodeguard.dev/suspect", "value": "link", "effect": "NoSchedule"},
            {"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
        ],
    }
    body["status"]["conditions"].append(
        {"type": "NodeguardHealthy", "status": "False", "reason": "Fault", "message": "a GPU is lost"}
    )
    body["status"]["conditions"].append({"type": "Drained", "status": "True", "reason": "KubectlDrain"})
    for kind, status in (("MaintenancePlanned", "True"), ("MaintenanceInProgress", "False")):
        body["status"]["conditions"].append({"type": kind, "status": status, "reason": "Firmware"})
    controlplane.api.post("/api/v1/nodes", body)
    raw = await api.request("GET", "/api/v1/nodes/node-1")
    meta = json.loads(raw)["metadata"]
    parsed = decode_node(raw)
    assert (parsed.name, parsed.uid, parsed.version) == ("node-1", meta["uid"], meta["resourceVersion"])
    assert parsed.labels == {"kubernetes.io/hostname": "node-1", "rack": "r1"}
    assert parsed.annotations == {"nodeguard.dev/hold": "mine"}
    assert Taint("nodeguard.dev/suspect", "NoSchedule", "link") in parsed.taints
    assert Taint("theirs", "NoExecute", time_added="2026-01-01T00:00:00Z") in parsed.taints
    assert parsed.unschedulable
    assert parsed.condition == NodeCondition("False", "Fault", "a GPU is lost")
    assert parsed.drain_conditions == {"Drained": NodeCondition("True", "KubectlDrain")}
    assert parsed.maintenance_conditions == {"MaintenancePlanned"}
    assert parsed.gpus == 8


@pytest.mark.parametrize(
    ("capacity", "gpus"),
    [
        ({}, 0),
        ({"nvidia.com/gpu": "4"}, 4),
        ({"nvidia.com/gpu": "4k"}, 0),
        ({"nvidia.com/gpu": "9" * 5000}, 0),
    ],
    ids=["none", "four", "thousands", "absurd"],
)
def test_the_number_of_gpus_is_read_from_the_capacity(capacity: dict[str, str], gpus: int) -> None:
    raw = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}, "status": {"capacity": capacity}}
    assert decode_node(json.dumps(raw).encode()) == Node("n", "u", "1", gpus=gpus)


@pytest.mark.parametrize(
    ("status", "changed", "expected"),
    [
        ("Unknown", "2026-01-01T00:00:10Z", 1_767_225_610.0),
        ("True", "2026-01-01T00:00:10Z", 0.0),
        ("False", None, 0.0),
        ("False", "yesterday", 0.0),
        ("False", "2026-01-01T00:00:10", 0.0),
    ],
)
def test_the_time_at_which_a_node_became_not_ready_is_read_if_it_is_valid(
    status: str, changed: str | None, expected: float
) -> None:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": changed}
    raw = {
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "1"},
        "status": {"conditions": [condition]},
    }
    parsed = decode_node(json.dumps(raw).encode())
    assert (parsed.ready, parsed.not_ready_since) == (status == "True", expected)
