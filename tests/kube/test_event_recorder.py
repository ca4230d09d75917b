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
    listed = json.loads(await api.request("GET", PATH))
    return [event for event in listed["items"] if event["source"].get("component") == "nodeguard"]


async def test_kubectl_describe_shows_the_events(api: ApiClient, controlplane: Cluster) -> None:
    controlplane.api.delete(PATH)
    controlplane.api.post("/api/v1/nodes", node("gpu-7"))
    listed = await read(api, "gpu-7")
    content = EventContent(
        "gpu-7", listed.uid, "Warning", "NodeQuarantined", "GPU 0000:3b:00 fell off the bus"
    )
    async with writing(api) as writers:
        events = EventRecorder(writers.client, writers.later, "nodeguard-aggregator-0")
        for _ in range(3):
            events.record(content)
            await writers.idle()
        (event,) = await ours(api)
        assert (event["count"], event["reason"], event["involvedObject"]["uid"]) == (
            3,
            "NodeQuarantined",
            listed.uid,
        )

        # Servers forget Events.
        await api.request("DELETE", f"{PATH}/{event['metadata']['name']}")
        events.record(content)
        await writers.idle()
        (again,) = await ours(api)
        assert (again["count"], again["firstTimestamp"]) == (4, event["firstTimestamp"])
    described = controlplane.kubectl("describe", "node", "gpu-7")
    (line,) = [line for line in described.splitlines() if "NodeQuarantined" in line]
    assert "nodeguard" in line
    assert line.endswith("GPU 0000:3b:00 fell off the bus")
    assert writers.messages == []


async def test_the_event_of_a_namespaced_object_is_in_its_namespace(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    controlplane.api.post(f"/api/v1/namespaces/{namespace}/pods", pod("one", gpus=0))
    content = await pod_warning(
        api, namespace, "one", "NodeguardPolicyInvalid", "policy.yaml:3: mode: no such word"
    )
    async with writing(api) as writers:
        events = EventRecorder(writers.client, writers.later, "nodeguard-aggregator-0")
        for _ in range(2):
            events.record(content)
            await writers.idle()
    described = controlplane.kubectl("describe", "pod", "-n", namespace, "one")
    (line,) = [line for line in described.splitlines() if "NodeguardPolicyInvalid" in line]
    assert "(x2 over" in line
    assert line.endswith("policy.yaml:3: mode: no such word")
    with pytest.raises(ApiError, match="two"):
        await pod_warning(api, namespace, "two", "NodeguardPolicyInvalid", "")


async def test_marks_are_written_before_events(api: ApiClient, controlplane: Cluster) -> None:
    controlplane.api.delete(PATH)
    names = [f"gpu-{number}" for number in range(12)]
    for name in names:
        controlplane.api.post("/api/v1/nodes", node(name))
    nodes = [await read(api, name) for name in names]
    # Two of each are sent at once; the rest of the marks takes a while.
    async with writing(api, rate=30.0, burst=2) as writers:
        events = EventRecorder(writers.client, writers.later, "nodeguard-aggregator-0")
        writers.may = False
        for listed in nodes:
            events.record(EventContent(listed.name, listed.uid, "Warning", "NodeQuarantined", "x"))
            writers.executor.set_desired(desired(listed, QUARANTINE))
        writers.may = True
        await writers.until(lambda: len(writers.outcomes) > 6)
        assert await ours(api) == []
        await writers.idle()
        assert len(await ours(api)) == len(names)


async def test_an_event_that_is_too_old_is_not_sent(api: ApiClient, controlplane: Cluster) -> None:
    controlplane.api.delete(PATH)
    wall = 1_000_000.0
    async with writing(api) as writers:
        events = EventRecorder(writers.client, writers.later, "nodeguard-aggregator-0", wall=lambda: wall)
        writers.may = False
        for number in range(1200):
            events.record(EventContent(f"gpu-{number}", f"u{number}", "Normal", "NodeReleased", "x"))
        assert writers.later.pending == 1000
        wall += 601.0
        writers.may = True
        await writers.idle()
        assert await ours(api) == []
