"""A fleet on the real control plane: from a line of the kernel log to marks that others see, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.cluster import SERVICE_ACCOUNT, Cluster
from tests.controlplane.objects import clear, node, pod
from tests.e2e import scene
from tests.e2e.fleet import Fleet
from tests.e2e.scene import ENFORCED, at_work

# Each test has a node of its own.
NODES = ("marked", "cleared", "reloaded", "full", "other", "replaced", "recreated")


@pytest.fixture(scope="module")
def made(shared_cluster: Cluster) -> Iterator[Fleet]:
    clear(shared_cluster.api)
    with at_work(shared_cluster, ENFORCED, *NODES) as fleet:
        yield fleet


def told_since(cluster: Cluster, version: str, name: str) -> list[Any]:
    """What a watcher of one Node is told since a version of it, and what it was before."""
    asked = f"watch=1&resourceVersion={version}&timeoutSeconds=1&fieldSelector=metadata.name={name}"
    said = cluster.api.text(f"/api/v1/nodes?{asked}")
    return [json.loads(line)["object"] for line in said.splitlines()]


def until_marked(made: Fleet, name: str) -> None:
    [aggregator] = made.aggregators
    made.agents[name].until(lambda: scene.is_marked(made.cluster, name))
    aggregator.until(lambda: scene.state(made.cluster, name) == "Marked")
    aggregator.until(lambda: (scene.condition(made.cluster, name) or {}).get("status") == "False")


def until_given_back(made: Fleet, name: str) -> None:
    [aggregator] = made.aggregators
    aggregator.until(lambda: scene.state(made.cluster, name) == "Resolved")
    aggregator.until(lambda: scene.condition(made.cluster, name)["status"] == "True")
    assert scene.taints(made.cluster, name) == []
    [said] = aggregator.until(lambda: scene.events(made.cluster, name, "NodeguardResolved"))
    assert said.startswith("gpu-gsp-failure on GPU 0000:1b:00: ")


def test_a_line_of_the_kernel_log_becomes_marks(made: Fleet) -> None:
    cluster = made.cluster
    before = scene.node(cluster, "marked")
    scene.fails(made.agents["marked"])
    until_marked(made, "marked")

    seen = told_since(cluster, before["metadata"]["resourceVersion"], "marked")
    [first, second] = [one for one in seen if one["spec"] != before["spec"]]
    [taint] = first["spec"]["taints"]
    assert taint["key"] == "nodeguard.dev/quarantine"
    assert (taint["value"], taint["effect"]) == ("gpu-xid", "NoSchedule")
    assert "gpu-gsp-failure" in first["metadata"]["annotations"]["nodeguard.dev/state"]
    assert first["status"] == before["status"]
    assert second["spec"] == first["spec"]
    assert {one["type"] for one in second["status"]["conditions"]} == {"Ready", "NodeguardHealthy"}

    said = scene.condition(cluster, "marked")
    assert said["reason"] == "Quarantined"
    assert said["message"] == (
        "GPU 0000:1b:00: Xid 119: No answer from the GPU System Processor (GSP) within the time-out that the line "
        "states. New work is kept off. Details: nodeguard describe node marked "
        "(gpu-gsp-failure on GPU 0000:1b:00). To do: reset the GPU."
    )
    assert "(gpu-gsp-failure on GPU 0000:1b:00). To do: reset the GPU." in cluster.kubectl(
        "describe", "node", "marked"
    )
    [event] = made.aggregators[0].until(lambda: scene.events(cluster, "marked", "NodeguardMarked"))
    [incident] = scene.incidents(cluster, "marked")
    name, status = incident["metadata"]["name"], incident["status"]
    assert event == (
        "gpu-gsp-failure on GPU 0000:1b:00: Xid 119: No answer from the GPU System Processor (GSP) within the "
        f"time-out that the line states; new work is kept off node marked ({name})"
    )
    assert (status["target"], status["scope"]) == ("gpu/0000:1b:00", "node marked")
    assert "NVRM: Xid (PCI:0000:1b:00): 119" in status["symptoms"][0]["evidence"][0]
    header, *lines = cluster.kubectl("get", "nodeincidents").splitlines()
    assert header.split() == ["NAME", "SUBJECT", "CAUSE", "HEALTH", "STATE", "AGE"]
    [line] = [line.split() for line in lines if line.startswith("marked-")]
    assert line[:5] == [name, "marked", "gpu-gsp-failure", "fatal", "Marked"]
    described = cluster.kubectl("describe", "node", "marked")
    assert "nodeguard.dev/quarantine=gpu-xid:NoSchedule" in described
    assert event in described


def test_a_person_says_that_it_is_over(made: Fleet) -> None:
    cluster = made.cluster
    scene.fails(made.agents["cleared"])
    until_marked(made, "cleared")
    [incident] = scene.incidents(cluster, "cleared")
    said = json.dumps({"spec": {"clear": {"by": "ada: card swapped"}}})
    cluster.kubectl("patch", "nodeincident", incident["metadata"]["name"], "--type=merge", "-p", said)
    until_given_back(made, "cleared")
    assert len(scene.events(cluster, "cleared", "NodeguardRecovering")) == 1


def test_the_driver_is_loaded_anew(made: Fleet) -> None:
    scene.fails(made.agents["reloaded"])
    until_marked(made, "reloaded")
    scene.driver_is_loaded(made.agents["reloaded"])
    until_given_back(made, "reloaded")

    # It comes back, and that is the same incident.
    scene.fails(made.agents["reloaded"])
    until_marked(made, "reloaded")
    [incident] = scene.incidents(made.cluster, "reloaded")
    assert incident["status"]["occurrences"] == 2


def test_work_goes_where_nothing_is_wrong(made: Fleet) -> None:
    cluster = made.cluster
    space = "/api/v1/namespaces/work"
    cluster.api.post("/api/v1/namespaces", {"metadata": {"name": "work"}})
    cluster.until(lambda: cluster.has(SERVICE_ACCOUNT.format("work")), "kube-controller-manager")
    scene.fails(made.agents["full"])
    until_marked(made, "full")

    def asks(name: str, on: str) -> None:
        asked = pod(name, gpus=8)
        asked["spec"]["nodeSelector"] = {"kubernetes.io/hostname": on}
        cluster.api.post(f"{space}/pods", asked)

    def bound(name: str) -> str:
        found: str = cluster.api.get(f"{space}/pods/{name}")["spec"].get("nodeName", "")
        return found

    def refused(name: str) -> str:
        told = cluster.api.get(f"{space}/pods/{name}")["status"].get("conditions", [])
        return next((one["message"] for one in told if one["type"] == "PodScheduled"), "")

    asks("waits", "full")
    asks("works", "other")
    assert cluster.until(lambda: bound("works"), "kube-scheduler") == "other"
    assert "untolerated taint" in cluster.until(lambda: refused("waits"), "kube-scheduler")
    assert bound("waits") == ""

    scene.driver_is_loaded(made.agents["full"])
    assert cluster.until(lambda: bound("waits"), "kube-scheduler") == "full"


def test_another_machine_of_the_same_name_begins_clean(made: Fleet) -> None:
    cluster, agent = made.cluster, made.agents["replaced"]
    scene.fails(agent)
    until_marked(made, "replaced")
    [old] = scene.incidents(cluster, "replaced")

    agent.kill()
    cluster.api.delete("/api/v1/nodes/replaced")
    agent.directory.rename(agent.directory.with_name("gone"))
    fresh = made.join("replaced")
    fresh.start()

    [aggregator] = made.aggregators
    aggregator.until(lambda: scene.state(cluster, "replaced") == "Resolved")
    [incident] = scene.incidents(cluster, "replaced")
    assert incident["metadata"]["name"] == old["metadata"]["name"]
    assert incident["status"]["detail"] == "its Node is gone"
    aggregator.until(lambda: _heard(aggregator.page("/metrics")) == len(NODES))
    fresh.ready()
    assert scene.ours(cluster, "replaced") == []

    # And it is watched: its own fault is its own incident.
    scene.fails(fresh)
    aggregator.until(lambda: len(scene.incidents(cluster, "replaced")) == 2)
    aggregator.until(lambda: scene.is_marked(cluster, "replaced"))


def test_a_token_of_a_node_that_was_created_again_is_refused_until_it_is_renewed(made: Fleet) -> None:
    cluster, agent, [aggregator] = made.cluster, made.agents["recreated"], made.aggregators
    labels = scene.node(cluster, "recreated")["metadata"]["labels"]
    cluster.api.delete("/api/v1/nodes/recreated")
    cluster.api.post("/api/v1/nodes", node("recreated", 8, labels=labels))

    log = cluster.kept.log(agent.name)
    agent.until(lambda: "it answered 403: the token is of another Node" in log.read_text())
    assert "delete the agent's pod, so that it gets a new token" in log.read_text()
    [refused] = aggregator.asked("/v1/status")["refused_messages"]
    assert (refused["node"], refused["reason"]) == ("recreated", "node-replaced")
    page = aggregator.asked("/v1/nodes/recreated")
    assert page["refused_messages"]["message"].startswith("the token is of another Node")
    assert page["last_report_age"] is None
    assert aggregator.figure('nodeguard_aggregator_refused_messages_total{reason="node-replaced"}') >= 1

    agent.renew()
    aggregator.until(lambda: aggregator.asked("/v1/nodes/recreated")["last_report_age"] is not None)
    scene.fails(agent)
    until_marked(made, "recreated")


def _heard(page: str) -> int:
    line = next(
        line for line in page.splitlines() if line.startswith("nodeguard_aggregator_agents_reporting ")
    )
    return int(float(line.split()[1]))
