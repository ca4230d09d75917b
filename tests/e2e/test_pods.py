"""nodeguard in pods of real kubelets, from the images and the chart as shipped."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests.controlplane.api import Object
from tests.controlplane.objects import GPU
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE
from tests.e2e.pod_fleet import CHECKED, VALUES, PodFleet, container_status
from tests.e2e.scene import is_marked, is_unmarked
from tests.kubelet.node import Node
from tests.kubelet.site import Site, is_ready

pytestmark = pytest.mark.slow

_PODS = "/api/v1/namespaces/default/pods"

# Runs in the container of the agent, and exceeds its limit. The kernel then kills the process with the highest score.
# The pod is in the PID namespace of the node: the agent is the first process of its cgroup, and process 1 is not its.
HOG = """
import glob
own = open("/proc/self/cgroup").read()
def of_container(path):
    try:
        return open(path).read() == own
    except OSError:
        return False
pids = [int(path.split("/")[2]) for path in glob.glob("/proc/[0-9]*/cgroup") if of_container(path)]
with open(f"/proc/{min(pids)}/oom_score_adj", "w") as score:
    score.write("1000")
taken = []
while True:
    taken.append(bytearray(8 << 20))
"""


@pytest.fixture(scope="module")
def deployed(shared_site: Site) -> Iterator[PodFleet]:
    fleet = PodFleet(shared_site)
    begin = shared_site.audit.size()
    with shared_site.network.entered():
        fleet.install(VALUES)
        fleet.settle()
    yield fleet
    assert shared_site.audit.forbidden(begin) == []


@pytest.fixture
def fleet(deployed: PodFleet, site: Site) -> Iterator[PodFleet]:
    """nodeguard on two nodes: all pods ready, all agents reporting, nothing marked, before and after the test."""
    yield deployed
    deployed.settle()


@pytest.fixture
def node(site: Site) -> Node:
    return site.nodes["node-1"]


@pytest.fixture
def _checked(fleet: PodFleet) -> None:
    """Give the fleet a check of the site."""
    if not fleet.has_check():
        fleet.upgrade(CHECKED)
        fleet.settle()


def gpu_pod(fleet: PodFleet, name: str, node: str | None = None) -> None:
    """Create a pod that requests a GPU, on one node or anywhere."""
    image = fleet.site.nodes["node-1"].settings.pause
    container = {"name": "work", "image": image, "resources": {"limits": {GPU: "1"}}}
    spec: Object = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    fleet.site.cluster.api.post(_PODS, pod)


def get_pod(fleet: PodFleet, name: str) -> Object:
    return fleet.site.cluster.api.get(f"{_PODS}/{name}")


def is_running(fleet: PodFleet, name: str) -> bool:
    return bool(get_pod(fleet, name)["status"].get("phase") == "Running")


def identity(pod: Object) -> tuple[str, str, int]:
    """Return what changes when a pod or its container is replaced."""
    status = container_status(pod)
    return pod["metadata"]["uid"], status["containerID"], status["restartCount"]


def test_agents_start_without_the_optional_config_map(fleet: PodFleet) -> None:
    assert not fleet.has_check()
    for name in fleet.site.nodes:
        assert container_status(fleet.agent(name))["restartCount"] == 0


def test_the_aggregator_is_unprivileged_on_a_read_only_root(fleet: PodFleet) -> None:
    for pod in fleet.living(AGGREGATOR):
        python = ["python", "-c", "import os; print(os.getuid(), os.access('/', os.W_OK))"]
        assert fleet.in_pod(pod, *python) == "65532 False\n"
        mounts = fleet.in_pod(pod, "cat", "/proc/mounts").splitlines()
        (root,) = [line.split() for line in mounts if line.split()[1] == "/"]
        assert "ro" in root[3].split(",")


def test_an_agent_has_a_token_for_its_node_and_none_for_the_api(fleet: PodFleet) -> None:
    for name in fleet.site.nodes:
        pod = fleet.agent(name)
        payload = fleet.in_pod(pod, "cat", "/run/secrets/nodeguard/token").split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
        assert claims["aud"] == ["nodeguard"]
        assert claims["kubernetes.io"]["node"]["name"] == name
        assert claims["kubernetes.io"]["pod"]["uid"] == pod["metadata"]["uid"]
        volumes = {mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert not any(volume.startswith("kube-api-access") for volume in volumes)


def test_an_agent_reads_its_node_through_the_mounts(fleet: PodFleet, node: Node) -> None:
    pod = fleet.agent(node.name)
    boot = (node.directory / "boot_id").read_text()
    assert fleet.in_pod(pod, "cat", "/host/proc/sys/kernel/random/boot_id") == boot
    metrics = fleet.metrics(pod)
    assert 'nodeguard_source_last_read_timestamp_seconds{source="kmsg"}' in metrics
    assert 'nodeguard_node_data_status{data_status="fresh"} 1.0' in metrics
    read = "import os; print(os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK) > 0)"
    assert fleet.in_pod(pod, "python", "-c", read) == "True\n"
    # The state and the socket are on the node, where its commands find them.
    assert any((node.directory / "lib/nodeguard").rglob("*"))
    assert (node.directory / "run/nodeguard/agent.sock").is_socket()


def test_a_mount_of_the_node_reaches_the_agent_and_can_be_removed(fleet: PodFleet, node: Node) -> None:
    node.run("mkdir", "/run/scratch")
    node.run("mount", "-t", "tmpfs", "scratch", "/run/scratch")
    mounts = fleet.in_pod(fleet.agent(node.name), "cat", "/proc/mounts")
    assert " /host/run/scratch tmpfs " in mounts
    node.run("umount", "/run/scratch")
    assert "/host/run/scratch" not in fleet.in_pod(fleet.agent(node.name), "cat", "/proc/mounts")


def test_sigterm_ends_an_agent_in_order(fleet: PodFleet, node: Node) -> None:
    pod = fleet.agent(node.name)
    container = container_status(pod)["containerID"].removeprefix("containerd://")
    node.run("ctr", "--namespace=k8s.io", "task", "kill", "--signal=SIGTERM", container)

    def last_state() -> Object | None:
        found: Object | None = container_status(fleet.agent(node.name))["lastState"].get("terminated")
        return found

    ended = fleet.until(last_state)
    assert ended is not None
    assert (ended["reason"], ended["exitCode"]) == ("Completed", 0)
    fleet.until(lambda: container_status(fleet.agent(node.name))["ready"])
    log = fleet.site.kubectl("logs", "-n", NAMESPACE, "--previous", pod["metadata"]["name"])
    assert json.loads(log.splitlines()[-1])["msg"] == "agent stopped"


def test_an_upgrade_brings_checks_of_the_site_to_one_node_after_the_other(fleet: PodFleet) -> None:
    before = {pod["metadata"]["uid"] for pod in fleet.living(AGENT)}
    fewest = len(before)
    fleet.upgrade(CHECKED)

    def is_complete() -> bool:
        nonlocal fewest
        fewest = min(fewest, fleet.count_ready(AGENT))
        return fleet.is_rolled_out()

    fleet.until(is_complete)
    assert fewest >= len(before) - 1
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in fleet.living(AGENT))
    # What `nodeguard describe node` prints after `see`.
    for pod in (fleet.agent("node-1"), fleet.leader()):
        explained = fleet.in_pod(pod, "nodeguard", "explain", "burn-in-failed")
        assert explained.startswith("burn-in-failed - Burn-in failed\n")


@pytest.mark.usefixtures("_checked")
def test_a_mark_keeps_gpu_pods_off_and_touches_no_running_one(fleet: PodFleet, node: Node) -> None:
    begin = fleet.site.audit.size()
    for other in fleet.site.nodes.values():
        fleet.publish_gpus(other, 2)
    gpu_pod(fleet, "sibling", node.name)
    fleet.until(lambda: is_running(fleet, "sibling"))
    sibling = identity(get_pod(fleet, "sibling"))

    fleet.report_burn_in(node, "fatal")
    fleet.until(lambda: is_marked(fleet.site.cluster, node.name))
    gpu_pod(fleet, "pinned", node.name)
    gpu_pod(fleet, "free")
    fleet.until(lambda: is_running(fleet, "free"))
    assert get_pod(fleet, "free")["spec"]["nodeName"] == "node-2"
    (scheduled,) = get_pod(fleet, "pinned")["status"]["conditions"]
    assert "untolerated taint" in scheduled["message"]
    assert identity(get_pod(fleet, "sibling")) == sibling

    fleet.report_burn_in(node, "ok")
    fleet.until(lambda: is_unmarked(fleet.site.cluster, node.name))
    fleet.until(lambda: is_running(fleet, "pinned"))
    assert identity(get_pod(fleet, "sibling")) == sibling
    # The aggregators wrote with the rights of the chart.
    assert {"patch nodes", "patch nodeincidents/status", "patch leases"} <= fleet.site.audit.requests(begin)
    fleet.site.cluster.api.delete(_PODS)


@pytest.mark.usefixtures("_checked")
def test_a_reboot_gives_the_agent_a_new_boot_and_releases_nothing_without_proof(
    fleet: PodFleet, node: Node
) -> None:
    fleet.report_burn_in(node, "fatal")
    fleet.until(lambda: is_marked(fleet.site.cluster, node.name))
    first = fleet.site.cluster.api.get(node.path)["status"]["nodeInfo"]["bootID"]
    agent = identity(fleet.agent(node.name))

    node.power_off()
    node.start()
    node.start_kubelet()
    fleet.until(lambda: is_ready(fleet.site, node))
    assert fleet.site.cluster.api.get(node.path)["status"]["nodeInfo"]["bootID"] != first
    fleet.until(lambda: identity(fleet.agent(node.name))[1] != agent[1])
    fleet.until(lambda: container_status(fleet.agent(node.name))["ready"])
    after = identity(fleet.agent(node.name))
    assert after[0] == agent[0]
    assert after[2] == agent[2] + 1
    # The file of the probe was in /run: nothing proves that the fault is gone.
    fleet.until(lambda: node.name in fleet.reporting())
    assert is_marked(fleet.site.cluster, node.name)
    fleet.report_burn_in(node, "ok")
    fleet.until(lambda: is_unmarked(fleet.site.cluster, node.name))


def test_a_drain_moves_the_leader_and_leaves_the_agent(fleet: PodFleet) -> None:
    leader = fleet.leader()
    (name,) = [
        pod["spec"]["nodeName"] for pod in fleet.living(AGGREGATOR) if pod["metadata"]["name"] == leader
    ]
    agent = identity(fleet.agent(name))
    fleet.site.kubectl("drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    fleet.until(lambda: fleet.leader() not in {"", leader})
    fleet.until(fleet.is_settled)
    assert identity(fleet.agent(name)) == agent
    assert fleet.site.cluster.api.get(f"/api/v1/nodes/{name}")["spec"]["unschedulable"]
    fleet.site.kubectl("uncordon", name)


def test_an_agent_that_is_killed_for_memory_comes_back(fleet: PodFleet, node: Node) -> None:
    pod = fleet.agent(node.name)
    restarts = container_status(pod)["restartCount"]
    with pytest.raises(AssertionError, match=r"137|terminated|EOF|exit code"):
        fleet.in_pod(pod, "python", "-c", HOG)
    fleet.until(lambda: container_status(fleet.agent(node.name))["restartCount"] > restarts)
    fleet.until(lambda: container_status(fleet.agent(node.name))["ready"])
    status = container_status(fleet.agent(node.name))
    assert status["lastState"]["terminated"]["reason"] == "OOMKilled"
    assert fleet.agent(node.name)["metadata"]["uid"] == pod["metadata"]["uid"]
    fleet.until(lambda: node.name in fleet.reporting(health="ok"))
    assert is_unmarked(fleet.site.cluster, node.name)


def test_a_kubelet_that_is_restarted_touches_no_pod(fleet: PodFleet, node: Node) -> None:
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"

    def renewal() -> str:
        time: str = fleet.site.cluster.api.get(lease)["spec"]["renewTime"]
        return time

    agent = identity(fleet.agent(node.name))
    node.stop_kubelet()
    before = renewal()
    node.start_kubelet()
    fleet.until(lambda: renewal() != before)
    fleet.until(lambda: is_ready(fleet.site, node))
    assert identity(fleet.agent(node.name)) == agent
