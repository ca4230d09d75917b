"""Delay and cost of drains beside plain evictions, and the cost of the mode `enforce` with nothing to drain.

`python bench/drain.py [--nodes N] [--turns N] [--seconds N] [--faults N] [--pods N]`. Agents of all nodes
are connected to the aggregator. The control plane, the agents and the aggregator share the processors of
this machine; there is no kubelet. First the fleet is healthy, and `drain.mode` is `enforce` and `disabled`
in turn, in the other order every second time. With six turns, the lowest and the highest figure enclose the
median with 97% probability. Then the nodes have a fault, one after the other, without grace periods and
without limits. The delay is that from the taint of the Node to the first pod with a deletionTimestamp, both
as a watch delivers them. The reference is a plain eviction after each drain, from its request to the same
watch. The API server counts the requests of the aggregator.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import NamedTuple

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.idle import memory, process_cpu
from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.local.client_tls import client_context
from tests.controlplane.cluster import Cluster, cluster
from tests.controlplane.objects import pod
from tests.daemonset.helm import grant_rights
from tests.e2e.bulk_nodes import for_each, make_nodes, wait_until_schedulable
from tests.e2e.fleet import Aggregator, Fleet, deployed_fleet
from tests.e2e.swarm import Swarm, fatal_finding, faulty_report, healthy_report, reporting_swarm
from tests.e2e.training import running_status
from tests.e2e.watcher import CollectionWatcher, Watcher
from tests.kubelet.audit import Audit

NODES, FAULTS, PODS = 1000, 20, 1

# Turns of the two modes, and seconds of each.
TURNS, SECONDS = 6, 30.0

# Seconds until the work of a new policy is done.
ADOPTED = 3.0

NAMESPACE = "/api/v1/namespaces/default"
OWNER = "owner-of-pods"
HEALTHY = healthy_report(("driver-unresponsive",))
FAULTY = faulty_report(HEALTHY, replace(fatal_finding("driver-unresponsive"), target="node", component=""))
POLICY = """
defaultMode: enforce
budget: {fleet: 100%%, fatalReserve: 0%%, pool: 100%%, perCheck: {new: 100000, within: 10m, active: 100000}}
diagnosis: {suppression: {minNodes: 100000}}
gracePeriod: {quarantine: 0s, suspect: 0s}
drain:
  mode: %s
  rules: [{check: "*", when: immediately}]
  limits: {nodes: 100%%, newPerHour: 100000, perDomain: 100000}
"""


class PodState(NamedTuple):
    """One state of a pod. at: seconds of the monotonic clock at its arrival."""

    at: float
    name: str
    is_terminating: bool


class Evictions:
    """Evicts pods on one persistent connection."""

    def __init__(self, made: Cluster) -> None:
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", made.port, context=client_context(str(made.ca)), timeout=30
        )
        self._headers = {"Authorization": f"Bearer {made.token}", "Content-Type": "application/json"}

    def evict(self, name: str) -> None:
        """Evict a pod."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        path = f"{NAMESPACE}/pods/{name}/eviction"
        self._connection.request("POST", path, json.dumps(body), self._headers)
        response = self._connection.getresponse()
        text = response.read()
        assert response.status == 201, text


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Measure drains.")
    parser.add_argument("--nodes", type=int, default=NODES, help="nodes of the fleet (%(default)s)")
    parser.add_argument("--turns", type=int, default=TURNS, help="of each mode (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a turn (%(default)g)")
    parser.add_argument("--faults", type=int, default=FAULTS, help="nodes to drain, 0 for none (%(default)s)")
    parser.add_argument(
        "--pods", type=int, default=PODS, help="pods to evict from each, at most 8 (%(default)s)"
    )
    options = parser.parse_args()
    if options.faults == 1 or not (0 <= options.faults < options.nodes and 1 <= options.pods <= 8):
        parser.error("--faults must be 0, or between 2 and the number of nodes, and --pods between 1 and 8")
    if options.turns < 1:
        parser.error("--turns must be at least 1")
    print(f"{options.nodes} nodes, {options.faults} drains, pods of each: {options.pods}", flush=True)
    with ExitStack() as stack:
        audit = Audit(Path(stack.enter_context(TemporaryDirectory())))
        made = stack.enter_context(cluster(flags={"kube-apiserver": audit.flags()}))
        scene = stack.enter_context(deployed_fleet(made))
        scene.policy.write_text(POLICY % "disabled")
        grant_rights(made, POLICY % "enforce")
        uids = make_nodes(made, [f"gpu-{number:04}" for number in range(options.nodes)])
        aggregator, agents = stack.enter_context(reporting_swarm(scene, uids, HEALTHY))
        wait_until_schedulable(made)
        aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
        compare_modes(scene, aggregator, agents, options.turns, options.seconds)
        if options.faults:
            set_mode(scene, aggregator, "enforce")
            make_pods(made, list(uids)[: options.faults], options.pods, list(uids)[-1])
            measure_drains(made, aggregator, agents, audit, list(uids)[: options.faults], options.pods)
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")


class Turn(NamedTuple):
    """The resources of an aggregator in a turn. share: of a core. heartbeat: CPU in µs. pss: MiB."""

    share: float
    heartbeat: float
    pss: float


def compare_modes(scene: Fleet, aggregator: Aggregator, agents: Swarm, turns: int, seconds: float) -> None:
    """Print the resources of an aggregator without a fault, in both modes in turn."""
    measured: dict[str, list[Turn]] = {"disabled": [], "enforce": []}
    modes = list(measured)
    for _ in range(turns):
        for mode in modes:
            set_mode(scene, aggregator, mode)
            time.sleep(ADOPTED)
            measured[mode].append(measure_turn(aggregator.pid, agents, seconds))
        modes.reverse()
    for mode, of_mode in measured.items():
        share, heartbeat, size = (spread(values, "{:.2f}") for values in zip(*of_mode, strict=True))
        title = f"drain.mode {mode}"
        print(f"{title:24}{share}% of a core, {heartbeat} µs a heartbeat, {size} MiB PSS", flush=True)
    pairs = list(zip(measured["enforce"], measured["disabled"], strict=True))
    cpu = spread([on.heartbeat / off.heartbeat for on, off in pairs], "{:.3f}")
    size = spread([on.pss / off.pss for on, off in pairs], "{:.3f}")
    print(f"{'enforce to disabled':24}{cpu} of the CPU time of a heartbeat, {size} of the PSS", flush=True)


def measure_turn(pid: int, agents: Swarm, seconds: float) -> Turn:
    """Measure an aggregator for some seconds of heartbeats."""
    used, began, messages = process_cpu(pid), time.monotonic(), agents.messages
    time.sleep(seconds)
    used, took = process_cpu(pid) - used, time.monotonic() - began
    return Turn(used / took * 100, used / (agents.messages - messages) * 1e6, memory(pid))


def spread(values: Sequence[float], number: str) -> str:
    """Return the median with the lowest and the highest value."""
    middle, low, high = (number.format(value) for value in (median(values), min(values), max(values)))
    return f"{middle} ({low} to {high})"


def measure_drains(
    made: Cluster, aggregator: Aggregator, agents: Swarm, audit: Audit, names: list[str], pods: int
) -> None:
    """Print the delays and the requests of drains of some nodes, one after the other."""
    drained, bare, evictions = list[float](), list[float](), Evictions(made)
    since = audit.size()
    with Watcher(made) as nodes, CollectionWatcher(made, f"{NAMESPACE}/pods", _pod_state) as watcher:
        for name in names:
            agents.set_reports({name: FAULTY})
            members = [f"{name}-{number}" for number in range(pods)]
            begun = [evicted_at(watcher, member) for member in members]
            drained.append(min(begun) - tainted_at(nodes, name))
            for member in members:
                made.api.delete(f"{NAMESPACE}/pods/{member}")
            aggregator.until(partial(is_over, aggregator, len(drained) * pods))
            began = time.monotonic()
            evictions.evict(f"bare-{name}")
            bare.append(evicted_at(watcher, f"bare-{name}") - began)
    print(row("taint to first eviction", drained))
    print(row("reference: plain eviction", bare))
    print(f"requests of the aggregator for each of {len(names)} drains, with those of the mark:")
    for request, count in sorted(audit.counts(since).items()):
        if not request.startswith("watch ") and not request.endswith(" leases"):
            print(f"    {request:30}{count / len(names):6.2f}")


def tainted_at(watcher: Watcher, node: str) -> float:
    """Return when the watch delivered the taint of a Node, in seconds of the monotonic clock."""
    return watcher.first(lambda state: state.node == node and bool(state.marks)).at


def evicted_at(watcher: CollectionWatcher[PodState], name: str) -> float:
    """Return when the watch delivered that a pod ends, in seconds of the monotonic clock."""
    return watcher.first(lambda state: state.name == name and state.is_terminating).at


def set_mode(scene: Fleet, aggregator: Aggregator, mode: str) -> None:
    """Let an aggregator adopt a policy with a mode of drains, if it has another one."""
    if scene.policy.read_text() == POLICY % mode:
        return
    processes = scene.cluster.processes
    since = processes.log(aggregator.name).stat().st_size
    scene.policy.write_text(POLICY % mode)
    aggregator.until(lambda: "adopted the policy file" in processes.tail(aggregator.name, since))


def is_over(aggregator: Aggregator, evicted: int) -> bool:
    """Return whether no drain runs. evicted: number of pods that were evicted by then."""
    running = aggregator.metric('nodeguard_aggregator_drains{state="running"}')
    return running == 0 and aggregator.metric("nodeguard_aggregator_drained_pods_total") == evicted


def make_pods(made: Cluster, names: list[str], count: int, spare: str) -> None:
    """Create running pods with a GPU each on Nodes, and the pods of the reference on a spare Node.

    A ConfigMap is their controller: no new pod replaces one that ends.
    """
    uid = made.api.post(f"{NAMESPACE}/configmaps", {"metadata": {"name": OWNER}})["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": uid, "controller": True}

    async def make(api: ApiClient, place: tuple[str, str, int]) -> None:
        name, node, gpu = place
        body = pod(name)
        body["metadata"]["ownerReferences"] = [owner]
        body["spec"]["nodeName"] = node
        await api.request("POST", f"{NAMESPACE}/pods", body=body)
        path = f"{NAMESPACE}/pods/{name}/status"
        await api.request("PATCH", path, body=running_status(f"GPU-{gpu}"), content_type=MERGE_PATCH)

    places = [(f"{name}-{number}", name, number) for name in names for number in range(count)]
    for_each(made, [*places, *((f"bare-{name}", spare, 0) for name in names)], make)


def row(name: str, values: list[float]) -> str:
    """Return a row with the median and the 95th percentile in milliseconds."""
    high = quantiles(values, n=20, method="inclusive")[18]
    return (
        f"{name:34}p50 {median(values) * 1000:7.1f} ms   p95 {high * 1000:7.1f} ms   "
        f"at most {max(values) * 1000:7.1f} ms"
    )


def _pod_state(line: bytes, at: float) -> PodState:
    meta = json.loads(line)["object"]["metadata"]
    return PodState(at, meta["name"], "deletionTimestamp" in meta)


if __name__ == "__main__":
    main()
