from __future__ import annotations

import json
from typing import Any

import pytest

from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.event_correlator import EventContent
from nodeguard.kube.event_recorder import PATH, EventRecorder, pod_warning
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node, pod
from tests.kube.writing import QUARANTINE, desired, read, writing


async def ours(api: ApiClient) -> list[Any]:
    found = json.loads(await api.request("GET", PATH))
    return [one for one in found["items"] if one["source"].get("component") == "nodeguard"]


async def test_describe_shows_what_was_said(api: ApiClient, controlplane: Cluster) -> None:
    controlplane.api.delete(PATH)
    controlplane.api.post("/api/v1/nodes", node("gpu-7"))
    found = await read(api, "gpu-7")
    said = EventContent("gpu-7", found.uid, "Warning", "NodeQuarantined", "GPU 0000:3b:00 fell off the bus")
    async with writing(api) as made:
        events = EventRecorder(made.permit, made.later, "nodeguard-aggregator-0")
        for _ in range(3):
            events.record(said)
            await made.idle()
        (one,) = await ours(api)
        assert (one["count"], one["reason"], one["involvedObject"]["uid"]) == (
            3,
            "NodeQuarantined",
            found.uid,
        )

        # Servers forget Events.
        await api.request("DELETE", f"{PATH}/{one['metadata']['name']}")
        events.record(said)
        await made.idle()
        (again,) = await ours(api)
        assert (again["count"], again["firstTimestamp"]) == (4, one["firstTimestamp"])
    described = controlplane.kubectl("describe", "node", "gpu-7")
    (line,) = [line for line in described.splitlines() if "NodeQuarantined" in line]
    assert "nodeguard" in line
    assert line.endswith("GPU 0000:3b:00 fell off the bus")
    assert made.told == []


async def test_what_has_a_namespace_is_told_of_there(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    controlplane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod("one", gpus=0))
    said = await pod_warning(
        api, namespace, "one", "NodeguardPolicyInvalid", "policy.yaml:3: mode: no such word"
    )
    async with writing(api) as made:
        events = EventRecorder(made.permit, made.later, "nodeguard-aggregator-0")
        for _ in range(2):
            events.record(said)
            await made.idle()
    described = controlplane.kubectl("describe", "pod", "-n", namespace, "one")
    (line,) = [line for line in described.splitlines() if "NodeguardPolicyInvalid" in line]
    assert "(x2 over" in line
    assert line.endswith("policy.yaml:3: mode: no such word")
    with pytest.raises(ApiError, match="two"):
        await pod_warning(api, namespace, "two", "NodeguardPolicyInvalid", "")


async def test_marks_go_first(api: ApiClient, controlplane: Cluster) -> None:
    controlplane.api.delete(PATH)
    names = [f"gpu-{number}" for number in range(12)]
    for name in names:
        controlplane.api.post("/api/v1/nodes", node(name))
    nodes = [await read(api, name) for name in names]
    # Two of each are sent at once; the rest of the marks takes a while.
    async with writing(api, rate=30.0, burst=2) as made:
        events = EventRecorder(made.permit, made.later, "nodeguard-aggregator-0")
        made.may = False
        for found in nodes:
            events.record(EventContent(found.name, found.uid, "Warning", "NodeQuarantined", "x"))
            made.executor.set_desired(desired(found, QUARANTINE))
        made.may = True
        await made.until(lambda: len(made.outcomes) > 6)
        assert await ours(api) == []
        await made.idle()
        assert len(await ours(api)) == len(names)


async def test_what_waited_too_long_is_not_sent(api: ApiClient, controlplane: Cluster) -> None:
    controlplane.api.delete(PATH)
    wall = 1_000_000.0
    async with writing(api) as made:
        events = EventRecorder(made.permit, made.later, "nodeguard-aggregator-0", wall=lambda: wall)
        made.may = False
        for number in range(1200):
            events.record(EventContent(f"gpu-{number}", f"u{number}", "Normal", "NodeReleased", "x"))
        assert made.later.pending == 1000
        wall += 601.0
        made.may = True
        await made.idle()
        assert await ours(api) == []
