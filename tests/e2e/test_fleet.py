"""A fleet on a real control plane: a line of the kernel log becomes marks, and their release."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.cluster import SERVICE_ACCOUNT, Cluster
from tests.controlplane.objects import clear_cluster, node, pod
from tests.e2e import scene
from tests.e2e.bulk_nodes import TokenIssuer
from tests.e2e.fleet import Fleet
from tests.e2e.scene import ENFORCED, running_fleet

# Each test has a node of its own.
NODES = ("marked", "cleared", "reloaded", "full", "other", "replaced", "recreated")


@pytest.fixture(scope="module")
def fleet(shared_cluster: Cluster) -> Iterator[Fleet]:
    clear_cluster(shared_cluster)
    with running_fleet(shared_cluster, ENFORCED, *NODES) as running:
        yield running


def versions_since(cluster: Cluster, version: str, name: str) -> list[Any]:
    """Return all versions of a Node after a resource version, as a watch delivers them."""
    query = f"watch=1&resourceVersion={version}&timeoutSeconds=5&fieldSelector=metadata.name={name}"
    events = cluster.api.text(f"/api/v1/nodes?{query}")
    return [json.loads(line)["object"] for line in events.splitlines()]


def until_marked(fleet: Fleet, name: str) -> None:
    [aggregator] = fleet.aggregators
    fleet.agents[name].until(lambda: scene.is_marked(fleet.cluster, name))
    aggregator.until(lambda: scene.incident_state(fleet.cluster, name) == "Marked")
    aggregator.until(lambda: (scene.condition(fleet.cluster, name) or {}).get("status") == "False")


def until_released(fleet: Fleet, name: str) -> None:
    [aggregator] = fleet.aggregators
    aggregator.until(lambda: scene.incident_state(fleet.cluster, name) == "Resolved")
    aggregator.until(lambda: scene.condition(fleet.cluster, name)["status"] == "True")
    assert scene.taints(fleet.cluster, name) == []
    [message] = aggregator.until(lambda: scene.events(fleet.cluster, name, "NodeguardResolved"))
    assert message.startswith("gpu-gsp-failure on GPU 0 (0000:1b:00, serial 1650522100000, module 1): ")


def test_a_kernel_log_line_sets_marks(fleet: Fleet) -> None:
    cluster = fleet.cluster
    before = scene.get_node(cluster, "marked")
    scene.inject_gpu_fault(fleet.agents["marked"])
    until_marked(fleet, "marked")
    for duration in ("detection_delay", "mark_write_duration"):
        count = fleet.aggregators[0].metric(f"nodeguard_aggregator_{duration}_seconds_count")
        seconds = fleet.aggregators[0].metric(f"nodeguard_aggregator_{duration}_seconds_sum")
        print(f"{duration}: {count:.0f}, {seconds:.3f} s in all")
        assert count >= 1

    versions = versions_since(cluster, before["metadata"]["resourceVersion"], "marked")
    [first, second] = [version for version in versions if version["spec"] != before["spec"]]
    [taint] = first["spec"]["taints"]
    assert taint["key"] == "nodeguard.dev/quarantine"
    assert (taint["value"], taint["effect"]) == ("gpu-xid", "NoSchedule")
    assert "gpu-gsp-failure" in first["metadata"]["annotations"]["nodeguard.dev/state"]
    assert first["status"] == before["status"]
    assert second["spec"] == first["spec"]
    assert {item["type"] for item in second["status"]["conditions"]} == {"Ready", "NodeguardHealthy"}

    condition = scene.condition(cluster, "marked")
    assert condition["reason"] == "GPUFaultResetGPU"
    assert condition["message"] == (
        "GPU 0000:1b:00: Xid 119: GPU firmware (GSP) did not answer in time. All new work is kept off. "
        "Details: nodeguard describe node marked "
        "(gpu-gsp-failure on GPU 0000:1b:00). To do: reset the GPU."
    )
    assert "(gpu-gsp-failure on GPU 0000:1b:00). To do: reset the GPU." in cluster.kubectl(
        "describe", "node", "marked"
    )
    [event] = fleet.aggregators[0].until(lambda: scene.events(cluster, "marked", "NodeguardMarked"))
    [incident] = scene.incidents(cluster, "marked")
    name, status = incident["metadata"]["name"], incident["status"]
    assert event == (
        "gpu-gsp-failure on GPU 0 (0000:1b:00, serial 1650522100000, module 1): "
        "Xid 119: GPU firmware (GSP) did not answer in time; "
        f"new work is kept off node marked; to do: reset the GPU ({name})"
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


def test_an_operator_clears_an_incident(fleet: Fleet) -> None:
    cluster = fleet.cluster
    scene.inject_gpu_fault(fleet.agents["cleared"])
    until_marked(fleet, "cleared")
    [incident] = scene.incidents(cluster, "cleared")
    patch = json.dumps({"spec": {"clear": {"by": "ada: card swapped"}}})
    cluster.kubectl("patch", "nodeincident", incident["metadata"]["name"], "--type=merge", "-p", patch)
    until_released(fleet, "cleared")
    assert len(scene.events(cluster, "cleared", "NodeguardRecovering")) == 1


def test_a_driver_load_releases_the_marks(fleet: Fleet) -> None:
    scene.inject_gpu_fault(fleet.agents["reloaded"])
    until_marked(fleet, "reloaded")
    scene.log_driver_load(fleet.agents["reloaded"])
    until_released(fleet, "reloaded")

    # The fault returns: it is the same incident.
    scene.inject_gpu_fault(fleet.agents["reloaded"])
    until_marked(fleet, "reloaded")
    [incident] = scene.incidents(fleet.cluster, "reloaded")
    assert incident["status"]["occurrences"] == 2


def test_the_scheduler_uses_only_unmarked_nodes(fleet: Fleet) -> None:
    cluster = fleet.cluster
    namespace = "/api/v1/namespaces/work"
    cluster.api.post("/api/v1/namespaces", {"metadata": {"name": "work"}})
    cluster.until(lambda: cluster.has(SERVICE_ACCOUNT.format("work")), "kube-controller-manager")
    scene.inject_gpu_fault(fleet.agents["full"])
    until_marked(fleet, "full")

    def create_pod(name: str, node_name: str) -> None:
        manifest = pod(name, gpus=8)
        manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node_name}
        cluster.api.post(f"{namespace}/pods", manifest)

    def bound_node(name: str) -> str:
        bound: str = cluster.api.get(f"{namespace}/pods/{name}")["spec"].get("nodeName", "")
        return bound

    def scheduling_error(name: str) -> str:
        conditions = cluster.api.get(f"{namespace}/pods/{name}")["status"].get("conditions", [])
        return next((item["message"] for item in conditions if item["type"] == "PodScheduled"), "")

    create_pod("waits", "full")
    create_pod("works", "other")
    assert cluster.until(lambda: bound_node("works"), "kube-scheduler") == "other"
    assert "untolerated taint" in cluster.until(lambda: scheduling_error("waits"), "kube-scheduler")
    assert bound_node("waits") == ""

    scene.log_driver_load(fleet.agents["full"])
    assert cluster.until(lambda: bound_node("waits"), "kube-scheduler") == "full"


def test_a_new_machine_of_the_same_name_starts_without_marks(fleet: Fleet) -> None:
    cluster, agent = fleet.cluster, fleet.agents["replaced"]
    scene.inject_gpu_fault(agent)
    until_marked(fleet, "replaced")
    [old] = scene.incidents(cluster, "replaced")

    agent.kill()
    cluster.api.delete("/api/v1/nodes/replaced")
    agent.directory.rename(agent.directory.with_name("gone"))
    replacement = fleet.add_node("replaced")
    replacement.start()

    [aggregator] = fleet.aggregators
    aggregator.until(lambda: scene.incident_state(cluster, "replaced") == "Resolved")
    [incident] = scene.incidents(cluster, "replaced")
    assert incident["metadata"]["name"] == old["metadata"]["name"]
    assert incident["status"]["detail"] == "its Node is gone"
    aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_agents_reporting") == len(NODES))
    replacement.ready()
    assert scene.nodeguard_fields(cluster, "replaced") == []

    # A fault of the new machine is a new incident.
    scene.inject_gpu_fault(replacement)
    aggregator.until(lambda: len(scene.incidents(cluster, "replaced")) == 2)
    aggregator.until(lambda: scene.is_marked(cluster, "replaced"))


def test_a_token_of_a_recreated_node_is_refused_until_it_is_renewed(fleet: Fleet) -> None:
    cluster, agent, [aggregator] = fleet.cluster, fleet.agents["recreated"], fleet.aggregators
    labels = scene.get_node(cluster, "recreated")["metadata"]["labels"]
    cluster.api.delete("/api/v1/nodes/recreated")
    cluster.api.post("/api/v1/nodes", node("recreated", 8, labels=labels))

    log = cluster.processes.log(agent.name)
    agent.until(lambda: "it answered 403: the token is of another Node" in log.read_text())
    assert "delete the agent's pod, so that it gets a new token" in log.read_text()
    [refused] = aggregator.query("/v1/status")["refused_messages"]
    assert (refused["node"], refused["reason"]) == ("recreated", "node-replaced")
    view = aggregator.query("/v1/nodes/recreated")
    assert view["refused_messages"]["message"].startswith("the token is of another Node")
    assert view["last_report_age"] is None
    # A new series begins at 0.
    assert aggregator.metric('nodeguard_aggregator_refused_messages_total{reason="node-replaced"}') == 0

    agent.renew_token()
    aggregator.until(lambda: aggregator.query("/v1/nodes/recreated")["last_report_age"] is not None)
    scene.inject_gpu_fault(agent)
    until_marked(fleet, "recreated")


def test_the_node_of_an_expired_token_is_named(fleet: Fleet) -> None:
    [aggregator] = fleet.aggregators
    agent, uid = fleet.agents["other"], scene.get_node(fleet.cluster, "other")["metadata"]["uid"]
    agent.kill()
    agent.token.write_text(TokenIssuer(fleet.cluster).token("other", uid, lifetime=-7200))
    agent.start()

    def refused() -> Any:
        messages = aggregator.query("/v1/status").get("refused_messages", [])
        return next((item for item in messages if item["reason"] == "token-expired"), None)

    shown = aggregator.until(refused)
    assert (shown["node"], shown["since"] != "") == ("other", True)
    assert shown["message"].startswith("the token has expired: check that the kubelet renews it")
    agent.kill()
    agent.renew_token()
    agent.start()
    aggregator.until(lambda: aggregator.query("/v1/nodes/other")["health"] == "ok")
