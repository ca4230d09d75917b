from __future__ import annotations

import json
from typing import Any

import pytest

from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.kube.events import (
    BURST,
    MAX_SIMILAR,
    PATH,
    REFILL_SECONDS,
    SIMILAR_SECONDS,
    CountedEvent,
    EventContent,
    EventCorrelator,
    EventRecorder,
    pod_warning,
)
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node, pod
from tests.kube.writing import QUARANTINE, desired, read, writing

MARKED = EventContent("gpu-7", "u7", "Warning", "NodeQuarantined", "GPU 0000:3b:00 fell off the bus")


def similar(message: str, node: str = "gpu-7") -> EventContent:
    return EventContent(node, f"uid of {node}", "Warning", "NodeQuarantined", message)


def test_equal_events_are_counted() -> None:
    events = EventCorrelator("a")
    first, second = events.correlate(MARKED, 10.0), events.correlate(MARKED, 20.0)
    assert first == CountedEvent(MARKED, "gpu-7.a1", 1, 10.0, 10.0)
    assert second == CountedEvent(MARKED, "gpu-7.a1", 2, 10.0, 20.0)


def test_many_similar_events_become_one() -> None:
    events = EventCorrelator("a")
    taken = [events.correlate(similar(f"GPU {number}"), 0.0) for number in range(MAX_SIMILAR + 3)]
    assert len({event.name for event in taken[:MAX_SIMILAR] if event}) == MAX_SIMILAR
    combined = taken[MAX_SIMILAR:]
    assert [event and event.count for event in combined] == [1, 2, 3]
    assert combined[-1] is not None
    assert combined[-1].content.message == f"(combined from similar events): GPU {MAX_SIMILAR + 2}"
    later = events.correlate(similar("GPU 99"), SIMILAR_SECONDS + 1.0)
    assert later is not None
    assert later.content.message == "GPU 99"


def test_the_events_of_one_object_are_limited() -> None:
    events = EventCorrelator("a")
    taken = [events.correlate(MARKED, 0.0) for _ in range(BURST + 5)]
    assert sum(event is not None for event in taken) == BURST
    assert events.correlate(similar("other", "gpu-8"), 0.0) is not None
    assert events.correlate(MARKED, REFILL_SECONDS - 1.0) is None
    event = events.correlate(MARKED, REFILL_SECONDS + 1.0)
    assert event is not None
    # What was not sent counts all the same.
    assert event.count == BURST + 7
    assert events.correlate(MARKED, REFILL_SECONDS + 2.0) is None


def test_the_memory_of_events_is_bounded() -> None:
    events = EventCorrelator("a")
    for number in range(5000):
        events.correlate(similar("x", f"gpu-{number}"), 0.0)
    assert max(len(sent) for sent in (events._buckets, events._groups, events._counted)) <= 4096


def test_a_long_name_is_cut() -> None:
    taken = EventCorrelator("a").correlate(similar("x", "n" * 199 + "." + "n" * 50), 0.0)
    assert taken is not None
    assert taken.name == "n" * 199 + ".a1"


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


async def test_an_event_that_two_processes_send_is_one_object(api: ApiClient, controlplane: Cluster) -> None:
    controlplane.api.delete(PATH)
    controlplane.api.post("/api/v1/nodes", node("gpu-7"))
    uid = (await read(api, "gpu-7")).uid
    begun = EventContent("gpu-7", uid, "Normal", "NodeguardDrainStarted", "x", key="drain-1.started", at=10.0)
    ended = EventContent("gpu-7", uid, "Normal", "NodeguardDrainEnded", "y", key="drain-1.ended", at=20.0)
    async with writing(api) as writers:
        for pod_name in ("nodeguard-aggregator-0", "nodeguard-aggregator-1"):
            events = EventRecorder(writers.client, writers.later, pod_name, wall=lambda: 100.0)
            for content in (begun, ended):
                events.record(content)
            await writers.idle()
    found = sorted(await ours(api), key=lambda event: str(event["firstTimestamp"]))
    assert [(event["metadata"]["name"], event["count"]) for event in found] == [
        ("gpu-7.drain-1.started", 1),
        ("gpu-7.drain-1.ended", 1),
    ]
    assert [event["reportingInstance"] for event in found] == ["nodeguard-aggregator-0"] * 2
    assert [(event["firstTimestamp"], event["lastTimestamp"]) for event in found] == [
        ("1970-01-01T00:00:10Z", "1970-01-01T00:00:10Z"),
        ("1970-01-01T00:00:20Z", "1970-01-01T00:00:20Z"),
    ]
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
        writers.may = False
        assert await ours(api) == []
        writers.may = True
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
