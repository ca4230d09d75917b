"""docs/tasks/drain-a-node.md and drain-automatically.md, followed on a real node: each of the commands, with the outputs
that they print.

The tests run in order: each continues with the pods that the test before it left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.controlplane.objects import GPU
from tests.daemonset.manifests import NAMESPACE
from tests.docs.pages import example, text
from tests.e2e import scene
from tests.e2e.fleet import Fleet
from tests.e2e.operator import Operator
from tests.e2e.training import (
    DRAIN,
    PODS,
    REPLICA_SETS,
    TEAM,
    create_namespace,
    drain_states,
    gpu_ids,
    holder,
    replica_set,
)
from tests.kubelet.site import Site, is_ready, running_site
from tests.waiting import until

PAGE = "docs/tasks/drain-a-node.md"
NODE = "gpu-7"
AUTOMATIC = "docs/tasks/drain-automatically.md"
DRY_RUN = "nodeguard drain node gpu-7 --dry-run"
DRAINED = "nodeguard drain node gpu-7 --wait"
DESCRIBE = "nodeguard describe node gpu-7"
JOBS = f"/apis/batch/v1/namespaces/{TEAM}/jobs"

_UNTIL_SIGTERM = "trap 'exit 0' TERM; /busybox sleep 100000 & wait"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Scene:
    """An operator of a node with a pod of a Job and seven of a ReplicaSet, each with a GPU. aggregators: uids of
    the pods of the aggregators by name, which are on the same node. holders: the pods at first, by address of the GPU.
    """

    site: Site
    fleet: Fleet
    operator: Operator
    aggregators: dict[str, str]
    holders: dict[str, str]

    def run(self, command: str, answer: str = "") -> str:
        return self.operator.run(PAGE, command, answer=answer)

    def fail(self, prefix: str) -> tuple[str, str]:
        """Let the GPU of a pod fail, and wait until its drain is assessed. Returns the address of the GPU and the
        name of the pod.
        """
        gpu, pod = next((gpu, pod) for gpu, pod in self.holders.items() if pod.startswith(prefix))
        scene.inject_gpu_fault(self.fleet.agents[NODE], gpu)
        self.until_assessed(f"gpu/{gpu}")
        return gpu, pod

    def until_assessed(self, resource: str) -> None:
        [aggregator] = self.fleet.aggregators

        def is_assessed() -> bool:
            drains = aggregator.query(f"/v1/nodes/{NODE}")["drains"]
            return any(drain["resource"] == resource and drain["state"] == "would-drain" for drain in drains)

        aggregator.until(is_assessed)


def aggregators_of_node(site: Site) -> dict[str, str]:
    """Return the uids of the pods of the aggregators on the node, by name."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?fieldSelector=spec.nodeName={NODE}"
    pods = site.cluster.api.get(path)["items"]
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in pods
        if pod["metadata"]["name"].startswith("nodeguard-aggregator-")
    }


@pytest.fixture(scope="module")
def drained(pause: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    image, archive = pause
    with running_site(image, [archive], [NODE]) as site, site.network.entered():
        policy = scene.ENFORCED + DRAIN % "observe"
        with scene.running_fleet(site.cluster, policy, NODE) as fleet:
            node, [aggregator] = site.nodes[NODE], fleet.aggregators
            node.publish_gpus(dict.fromkeys(gpu_ids(fleet, NODE), "Healthy"))
            create_namespace(site.cluster)
            allocatable = "{.status.allocatable.nvidia\\.com/gpu}"
            site.until(
                lambda: (
                    is_ready(site, node)
                    and site.kubectl("get", "node", NODE, "-o", f"jsonpath={allocatable}") == "8"
                )
            )
            work = {"image": image, "command": ["/busybox", "sh", "-c", _UNTIL_SIGTERM]}
            pods = replica_set(work, terminationGracePeriodSeconds=10)
            pods["spec"]["replicas"] = 7
            site.cluster.api.post(REPLICA_SETS, pods)
            container = {"name": "work", "resources": {"limits": {GPU: "1"}}, **work}
            template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
            job = {"metadata": {"name": "eval"}, "spec": {"backoffLimit": 0, "template": template}}
            site.cluster.api.post(JOBS, job)
            site.until(lambda: len(running_pods(site)) == 8)
            operator = Operator(
                site.cluster.kubeconfig,
                site.report,
                tmp_path_factory.mktemp("operator"),
                {},
                {"NODEGUARD_AGGREGATOR_SOCKET": str(aggregator.socket)},
            )
            ids = gpu_ids(fleet, NODE)
            holders = {gpu: holder(site.cluster, uid) for gpu, uid in zip(scene.GPUS, ids, strict=True)}
            yield Scene(site, fleet, operator, aggregators_of_node(site), holders)


def running_pods(site: Site) -> set[str]:
    """Return the names of the pods on the node that run."""
    return {
        pod["metadata"]["name"]
        for pod in site.cluster.api.get(PODS)["items"]
        if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")
    }


def test_a_person_reads_the_page_at_night() -> None:
    assert len(text(PAGE).split()) <= 900


def test_the_pods_of_a_faulty_gpu_are_drained_with_the_outputs_of_the_page(drained: Scene) -> None:
    site = drained.site
    assert "no quarantine of a fatal fault is observed on it" in drained.run(DRY_RUN)
    before = running_pods(site)
    gpu, victim = drained.fail("train-")
    printed = example(PAGE, f"$ {DRY_RUN}").partition("\n")[2]
    for names in (("0000:1b:00", gpu), ("train-0", victim)):
        printed = printed.replace(*names)
    assert drained.run(DRY_RUN) == printed
    assert drained.run("nodeguard pause") != ""
    assert "1 pod would stay: paused by" in drained.run(DRY_RUN)
    drained.run("nodeguard resume")
    assert running_pods(site) == before
    assert drained.run(DRAINED, answer="yes\n") == f"1 pod evicted from {NODE}\n"
    until(lambda: victim not in running_pods(site))
    assert running_pods(site) == before - {victim}
    assert "1 pod evicted from gpu-7; quarantine of GPU" in drained.run("nodeguard get actions --kind drain")
    header, row = drained.run("kubectl get nodeactions -n nodeguard").splitlines()
    assert header.split()[1:4] == ["ACTION", "NODE", "STATE"]
    assert row.split()[1:4] == ["Drain", NODE, "Succeeded"]
    assert "team-a/train: 1 of 1 pod gone, evicted by the drain of gpu-7 since" in drained.run(DESCRIBE)


def test_a_job_that_the_eviction_ends_is_named_before(drained: Scene) -> None:
    cost = "Job team-a/eval would fail: 1 failed pod with the evictions, backoffLimit 0"
    drained.fail("eval-")
    for command in (DRY_RUN, DESCRIBE):
        assert f" cost {cost} " in " ".join(drained.run(command).split()) + " "


def test_the_policy_drains_with_the_rule_of_its_page(drained: Scene) -> None:
    """It continues with the Job, which the report of the dry run names."""
    site, policy = drained.site, drained.fleet.policy.read_text()
    status = " ".join(drained.operator.run(AUTOMATIC, "nodeguard status").split())
    assert f"drains node {NODE}: dry run: it would evict 1 pod ({TEAM}/eval-" in status
    assert " cost Job team-a/eval would fail: " in status
    drain = yaml.safe_load(example(AUTOMATIC, "policy:"))["policy"]["drain"]
    rules = [{**rule, "checks": ["gpu-gsp-failure"]} for rule in drain["rules"]]
    enforced = {"drain": {**drain, "mode": "enforce", "rules": rules}}
    drained.fleet.policy.write_text(scene.ENFORCED + yaml.safe_dump(enforced))
    site.until(lambda: drain_states(site.cluster) == ["Succeeded"] * 2)
    # Its program ends with exit code 0 at SIGTERM, so that the eviction is no failure.
    site.until(lambda: site.cluster.api.get(f"{JOBS}/eval")["status"].get("succeeded") == 1)
    assert len(running_pods(site)) == 6
    drained.fleet.policy.write_text(policy)


def test_a_faulty_node_is_drained_and_its_aggregators_stay(drained: Scene) -> None:
    """The pods of aggregators have no GPU: no drain evicts them, also if an operator requests it."""
    site = drained.site
    assert drained.aggregators
    scene.inject_switch_fault(drained.fleet.agents[NODE])
    drained.until_assessed("node")
    assert NAMESPACE not in drained.run(DRY_RUN)
    assert "evicted from gpu-7" in drained.run(DRAINED, answer="yes\n")
    assert running_pods(site) == set()
    assert aggregators_of_node(site) == drained.aggregators
    conditions = site.cluster.api.get(site.nodes[NODE].path)["status"]["conditions"]
    assert [item["reason"] for item in conditions if item["type"] == "Drained"] == ["NodeguardDrained"]


def test_kubectl_empties_the_whole_node(drained: Scene) -> None:
    node = drained.site.nodes[NODE].path
    assert f"node/{NODE} drained" in drained.run(
        "kubectl drain gpu-7 --ignore-daemonsets --delete-emptydir-data"
    )
    assert drained.site.cluster.api.get(node)["spec"]["unschedulable"]
    assert drained.run("kubectl uncordon gpu-7") == f"node/{NODE} uncordoned\n"
