"""Drains of a real node: the pods run, and the kubelet reports the GPUs that a device plugin gave to each.

The tests run in order: each continues with the pods that the test before it left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodeguard.kube.gpu_pods import decode_gpu_pods
from tests.controlplane.objects import GPU
from tests.daemonset.helm import grant_rights
from tests.e2e import scene
from tests.e2e.fleet import Aggregator, Fleet
from tests.e2e.pod_fleet import container_status
from tests.e2e.training import (
    DRAIN,
    PODS,
    REPLICA_SETS,
    TEAM,
    create_namespace,
    drain_states,
    drains,
    gpu_ids,
    holder,
    replica_set,
    running,
)
from tests.kubelet.node import Node
from tests.kubelet.site import Site, is_ready, running_site

NODE = "gpu-1"

# Ends at SIGTERM.
WORK = ["/busybox", "sh", "-c", "trap 'exit 0' TERM; /busybox sleep 100000 & wait"]

WITHOUT_STATUS = "--feature-gates=ResourceHealthStatus=false,ResourceHealthStatusMessage=false"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Training:
    """Eight pods on a node with eight GPUs. ids: of the GPUs, in the order of scene.GPUS."""

    site: Site
    fleet: Fleet
    ids: list[str]

    @property
    def node(self) -> Node:
        return self.site.nodes[NODE]

    @property
    def aggregator(self) -> Aggregator:
        return self.fleet.aggregators[0]

    def containers(self) -> dict[str, str]:
        """Return the id of the container that runs in each pod of the node."""
        names = running(self.site.cluster, NODE)
        pods = [pod for pod in self.site.cluster.api.get(PODS)["items"] if pod["metadata"]["name"] in names]
        return {pod["metadata"]["name"]: container_status(pod)["containerID"] for pod in pods}

    def held(self) -> dict[str, tuple[str, ...] | None]:
        """Return the ids of the GPUs of each pod of the node, as a drain reads them."""
        selected = f"{PODS}?fieldSelector=spec.nodeName={NODE}"
        pods = decode_gpu_pods(json.dumps(self.site.cluster.api.get(selected)).encode())
        return {pod.key.name: pod.gpu_ids for pod in pods}

    def allocated(self) -> dict[str, dict[str, set[str]]]:
        """Return the ids of the GPUs that the kubelet gave to each container, by the uid of its pod."""
        file = self.node.directory / "lib/kubelet/device-plugins/kubelet_internal_checkpoint"
        pods: dict[str, dict[str, set[str]]] = {}
        for entry in json.loads(file.read_text())["Data"]["PodDeviceEntries"]:
            ids = {gpu for gpus in entry["DeviceIDs"].values() for gpu in gpus}
            pods.setdefault(entry["PodUID"], {})[entry["ContainerName"]] = ids
        return pods

    def new_pods(self, before: set[str]) -> list[Any]:
        """Return the pods that the ReplicaSet created in the place of others."""
        return [
            pod for pod in self.site.cluster.api.get(PODS)["items"] if pod["metadata"]["name"] not in before
        ]

    def restart_kubelet(self, *flags: str) -> None:
        """Restart the kubelet, and wait until it has the GPUs of the device plugin again."""
        self.node.stop_kubelet()
        # What a kubelet reported last stays on the Node after its end.
        self.site.cluster.api.patch(f"{self.node.path}/status", {"status": {"allocatable": {GPU: "0"}}})
        self.node.start_kubelet(*flags)
        self.site.until(self.has_gpus)

    def has_gpus(self) -> bool:
        status = self.site.cluster.api.get(self.node.path)["status"]
        return is_ready(self.site, self.node) and status["allocatable"].get(GPU) == str(len(self.ids))


def eight_pods(image: str) -> Any:
    """Return a ReplicaSet of pods that test their GPU before they work."""
    test = {
        "name": "test",
        "image": image,
        "command": ["/busybox", "true"],
        "resources": {"limits": {GPU: "1"}},
    }
    work = {"image": image, "command": WORK, "volumeMounts": [{"name": "notice", "mountPath": "/notice"}]}
    field = {"fieldPath": "metadata.annotations['nodeguard.dev/drain-at']"}
    notice = {"name": "notice", "downwardAPI": {"items": [{"path": "drain-at", "fieldRef": field}]}}
    return replica_set(work, initContainers=[test], volumes=[notice], terminationGracePeriodSeconds=10)


@pytest.fixture(scope="module")
def training(pause: tuple[str, Path]) -> Iterator[Training]:
    image, archive = pause
    with running_site(image, [archive], [NODE]) as site, site.network.entered():
        policy = scene.ENFORCED + DRAIN % "enforce"
        with scene.running_fleet(site.cluster, policy, NODE) as fleet:
            training = Training(site, fleet, gpu_ids(fleet, NODE))
            training.node.publish_gpus(dict.fromkeys(training.ids, "Healthy"))
            create_namespace(site.cluster)
            training.restart_kubelet(WITHOUT_STATUS)
            site.cluster.api.post(REPLICA_SETS, eight_pods(image))
            site.until(lambda: len(training.containers()) == len(training.ids))
            yield training


def test_the_kubelet_passes_the_gpus_of_an_init_container_to_a_container_that_asks_for_the_same(
    training: Training,
) -> None:
    """It reports no GPU of an init container: a drain reads those of the container after it."""
    allocated = list(training.allocated().values())
    assert [pod["test"] for pod in allocated] == [pod["work"] for pod in allocated]
    assert {gpu for pod in allocated for gpu in pod["work"]} == set(training.ids)


def test_no_pod_is_evicted_while_the_kubelet_does_not_report_who_holds_the_gpu(training: Training) -> None:
    cluster = training.site.cluster
    assert set(training.held().values()) == {None}
    scene.inject_gpu_fault(training.fleet.agents[NODE])
    aggregator = training.aggregator
    aggregator.until(
        lambda: "it is not known which GPUs pods" in json.dumps(aggregator.query(f"/v1/nodes/{NODE}"))
    )
    assert scene.is_marked(cluster, NODE)
    assert not drains(cluster)
    assert len(training.containers()) == len(training.ids)


def test_the_pod_that_holds_the_gpu_is_evicted_once_the_kubelet_reports_it(training: Training) -> None:
    cluster = training.site.cluster
    before = training.containers()
    training.restart_kubelet()
    training.aggregator.until(lambda: drain_states(cluster) == ["Succeeded"])
    [drain] = drains(cluster)
    [victim] = drain["spec"]["pods"]
    assert training.containers() == {name: before[name] for name in before.keys() - {victim["name"]}}
    # The others have the other GPUs, each its own.
    assert set(training.held().values()) == {(gpu,) for gpu in training.ids[1:]}
    training.site.until(lambda: training.new_pods(set(before)))
    [pod] = training.new_pods(set(before))
    [condition] = training.site.until(lambda: training.new_pods(set(before))[0]["status"].get("conditions"))
    assert "nodeName" not in pod["spec"]
    assert "untolerated taint" in condition["message"]


def test_a_kubelet_that_is_restarted_reports_the_same_gpus(training: Training) -> None:
    cluster = training.site.cluster
    before, held = training.containers(), training.held()
    training.restart_kubelet()
    assert training.containers() == before
    assert training.held() == held
    # NVIDIA's device plugin reports the GPU as unhealthy, too.
    victim = holder(cluster, training.ids[1])
    training.node.publish_gpus(
        {gpu: "Unhealthy" if gpu == training.ids[1] else "Healthy" for gpu in training.ids}
    )
    scene.inject_gpu_fault(training.fleet.agents[NODE], scene.GPUS[1])
    training.aggregator.until(lambda: drain_states(cluster) == ["Succeeded"] * 2)
    assert training.containers() == {name: before[name] for name in before.keys() - {victim}}


def test_a_pod_reads_the_time_of_its_eviction_from_a_file(training: Training) -> None:
    cluster = training.site.cluster
    policy = (scene.ENFORCED + DRAIN % "enforce").replace("when: immediately", "when: deadline, after: 1h")
    grant_rights(cluster, policy)
    training.fleet.policy.write_text(policy)
    training.aggregator.kill()
    training.aggregator.start()
    training.aggregator.until(lambda: training.aggregator.metric("nodeguard_aggregator_active") == 1)
    victim = holder(cluster, training.ids[2])

    def seen(name: str) -> str:
        """Return what a container reads."""
        return training.site.kubectl("exec", "-n", TEAM, name, "--", "/busybox", "cat", "/notice/drain-at")

    def drain_at() -> str:
        annotations: dict[str, str] = cluster.api.get(f"{PODS}/{victim}")["metadata"].get("annotations", {})
        return annotations.get("nodeguard.dev/drain-at", "")

    assert seen(victim) == ""
    scene.inject_gpu_fault(training.fleet.agents[NODE], scene.GPUS[2])
    training.aggregator.until(drain_at)
    training.site.until(lambda: seen(victim) == drain_at())
    assert [seen(name) for name in training.containers() if name != victim] == [""] * 5
    assert drain_states(cluster) == ["Succeeded"] * 2
