"""Gangs avoid a degraded leaf, single-node work fills it, and after its recovery a waiting gang gets it.

The schedulers are the real ones: kube-scheduler and Kueue.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.controlplane.cluster import NewCluster
from tests.controlplane.commands import GANGS
from tests.controlplane.kueue_process import start_kueue
from tests.controlplane.objects import GPU
from tests.daemonset.manifests import fill
from tests.e2e.devices import RULES, create_device_class, published_devices
from tests.e2e.gang_faults import AgentFaults, agent_faults
from tests.e2e.gang_schedulers import QUEUE, GangScheduler, KueueGangs, PodGroupGangs
from tests.e2e.gangs import GPUS, LEAVES, NODES, SIZE, GangNodes, Namespace
from tests.e2e.training import Kubelet
from tests.waiting import PROMPTLY

DEGRADED_LEAF, SUSPECT_LEAF = LEAVES[3], LEAVES[1]

# One more gang than fits behind the seven other leaves.
NAMES = tuple(f"gang-{number:02}" for number in range(7 * NODES // SIZE + 1))


@pytest.fixture(scope="module")
def nodes(new_cluster: NewCluster) -> Iterator[GangNodes]:
    """Nodes of a control plane with gang scheduling."""
    with new_cluster(flags=GANGS) as cluster:
        fill(cluster)
        yield GangNodes(cluster)


@pytest.fixture(scope="module")
def kueue(nodes: GangNodes) -> KueueGangs:
    """Kueue on the same cluster."""
    start_kueue(nodes.cluster)
    return KueueGangs(nodes.cluster)


@pytest.fixture(params=["kube-scheduler", "Kueue"])
def gangs(request: pytest.FixtureRequest) -> GangScheduler:
    if request.param == "Kueue":
        scheduler: KueueGangs = request.getfixturevalue("kueue")
        return scheduler
    return PodGroupGangs()


@pytest.fixture
def namespace(nodes: GangNodes) -> Iterator[Namespace]:
    work = Namespace(nodes, f"work-{secrets.token_hex(4)}")
    yield work
    work.clear()


@pytest.fixture(scope="module")
def agents(nodes: GangNodes) -> Iterator[AgentFaults]:
    """Agents of all nodes, and an aggregator to which they report."""
    with agent_faults(nodes) as made:
        yield made


@pytest.fixture
def faults(agents: AgentFaults) -> Iterator[AgentFaults]:
    yield agents
    agents.clear()


def test_gangs_avoid_a_degraded_leaf_and_single_node_work_fills_it(
    nodes: GangNodes, gangs: GangScheduler, namespace: Namespace, faults: AgentFaults
) -> None:
    suspect = nodes.nodes_behind(SUSPECT_LEAF)[:SIZE]
    faults.degrade(DEGRADED_LEAF)
    faults.suspect(*suspect)

    # Three gangs have no room: two behind the degraded leaf, one on the suspect nodes.
    gangs.submit(namespace, NAMES)
    room = len(NAMES) - 2
    nodes.until(lambda: len(namespace.placed_gangs()) == room, gangs.component)
    nodes.until(lambda: len(gangs.waiting_gangs(namespace)) == len(NAMES) - room, gangs.component)
    placed = namespace.gang_nodes()
    assert placed.keys() == set(NAMES) - gangs.waiting_gangs(namespace)
    taken = {name for names in placed.values() for name in names}
    assert taken.isdisjoint([*nodes.nodes_behind(DEGRADED_LEAF), *suspect])

    # A pod that does not tolerate the taints waits, too.
    namespace.create_pod("intolerant", labels={"nodeguard.dev/fill": "false"})
    assert "untolerated taint" in nodes.until(lambda: namespace.scheduling_error("intolerant"))
    namespace.delete_pods("intolerant")

    # Single-node work takes the nodes that the gangs leave.
    singles = [f"single-{number:02}" for number in range(NODES + SIZE)]
    for name in singles:
        namespace.create_pod(name)
    nodes.until(lambda: len(namespace.bound_pods()) == len(singles))
    assert sorted(namespace.bound_pods().values()) == sorted([*nodes.nodes_behind(DEGRADED_LEAF), *suspect])
    assert namespace.gang_nodes() == placed

    # Half of the leaf is free when it recovers: one gang gets it, and the other half stays in use.
    there = [
        name for name, place in namespace.bound_pods().items() if place in nodes.nodes_behind(DEGRADED_LEAF)
    ]
    namespace.delete_pods(*there[:SIZE])
    begin = time.monotonic()
    faults.recover(DEGRADED_LEAF)
    nodes.until(lambda: len(namespace.placed_gangs()) == room + 1, gangs.component)
    took = time.monotonic() - begin
    print(f"bound {took:.1f} s after the leaf's recovery")
    assert took < PROMPTLY
    [gang] = namespace.placed_gangs().keys() - placed.keys()
    assert namespace.placed_gangs()[gang] == DEGRADED_LEAF


def test_without_marks_gangs_use_the_leaf(
    nodes: GangNodes, gangs: GangScheduler, namespace: Namespace
) -> None:
    gangs.submit(namespace, NAMES)
    nodes.until(lambda: len(namespace.placed_gangs()) == len(NAMES), gangs.component)
    assert DEGRADED_LEAF in namespace.placed_gangs().values()


def test_a_pod_queued_by_kueue_fills_a_degraded_leaf(
    nodes: GangNodes, kueue: KueueGangs, namespace: Namespace, faults: AgentFaults
) -> None:
    faults.degrade(DEGRADED_LEAF)
    kueue.create_queue(namespace)
    namespace.create_pod("intolerant", labels={**QUEUE, "nodeguard.dev/fill": "false"}, leaf=DEGRADED_LEAF)
    namespace.create_pod("single", labels=QUEUE, leaf=DEGRADED_LEAF)
    nodes.until(
        lambda: namespace.bound_pods().get("single") in nodes.nodes_behind(DEGRADED_LEAF), kueue.component
    )
    nodes.until(lambda: kueue.waiting_gangs(namespace), kueue.component)
    assert namespace.bound_pods().keys() == {"single"}


def test_kueue_replaces_the_node_of_a_drained_pod_and_the_gang_keeps_its_leaf(
    nodes: GangNodes, kueue: KueueGangs, namespace: Namespace, faults: AgentFaults
) -> None:
    ids = {name: [f"GPU-{number + 1}" for number in range(GPUS)] for name in nodes.leaves}
    with Kubelet(nodes.cluster, ids, namespace.name) as kubelet:
        kueue.submit(namespace, ["gang"])
        nodes.until(lambda: len(namespace.running_pods()) == SIZE, kueue.component)
        before = namespace.running_pods()
        faulty = before[victim := min(before)]
        faults.lose_gpu(faulty)
        begin = time.monotonic()
        nodes.until(lambda: len(namespace.running_pods().keys() - {victim}) == SIZE, kueue.component)
        print(f"the gang is whole {time.monotonic() - begin:.1f} s after the mark")
        after = namespace.running_pods()

    # One pod has left, and its node is replaced behind the same leaf.
    assert kubelet.deleted == {victim}
    assert len(after.items() & before.items()) == SIZE - 1
    assert faulty not in after.values()
    assert len(set(after.values())) == SIZE
    assert len({nodes.leaves[name] for name in after.values()}) == 1


def test_kueue_evicts_the_whole_gang_that_loses_two_nodes(
    nodes: GangNodes, kueue: KueueGangs, namespace: Namespace, faults: AgentFaults
) -> None:
    ids = {name: [f"GPU-{number + 1}" for number in range(GPUS)] for name in nodes.leaves}
    with Kubelet(nodes.cluster, ids, namespace.name) as kubelet:
        kueue.submit(namespace, ["gang"])
        nodes.until(lambda: len(namespace.running_pods()) == SIZE, kueue.component)
        before = namespace.running_pods()
        # The drain evicts the pods of these two nodes only.
        faults.lose_gpu(*sorted(before.values())[:2])
        nodes.until(lambda: kubelet.deleted == before.keys(), kueue.component)


def test_a_gang_avoids_a_node_with_a_tainted_device_and_single_gpu_pods_use_it(
    nodes: GangNodes, namespace: Namespace
) -> None:
    api, leaf = nodes.cluster.api, "leaf-devices"
    with ExitStack() as stack:
        names = stack.enter_context(nodes.temporary_nodes(leaf, SIZE + 1, gpus=0))
        faulty = names[2]
        selector = {"driver": "gpu.nvidia.com", "pool": faulty, "device": "gpu-5"}
        taint = {"key": "nodeguard.dev/quarantine", "value": "gpu-xid", "effect": "NoSchedule"}
        rule = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": faulty}}
        # Before the devices: the scheduler could see the gang before a later rule.
        api.post(RULES, {**rule, "spec": {"deviceSelector": selector, "taint": taint}})
        create_device_class(nodes.cluster, GPU)
        stack.enter_context(published_devices(nodes.cluster, *names))

        PodGroupGangs().submit(namespace, ["gang"], leaf)
        nodes.until(lambda: namespace.placed_gangs() == {"gang": leaf})
        assert set(namespace.gang_nodes()["gang"]) == {*names} - {faulty}

        for number in range(GPUS):
            namespace.create_pod(f"single-{number}", gpus=1, leaf=leaf)
        nodes.until(lambda: len(namespace.bound_pods()) == GPUS - 1)
        assert set(namespace.bound_pods().values()) == {faulty}
        [last] = {f"single-{number}" for number in range(GPUS)} - namespace.bound_pods().keys()
        nodes.until(lambda: namespace.scheduling_error(last))

        api.delete(f"{RULES}/{faulty}")
        nodes.until(lambda: len(namespace.bound_pods()) == GPUS)
