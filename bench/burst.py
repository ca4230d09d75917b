"""Seconds until 750 of 1,000 nodes that fail at once are tainted, beside a bare loop of patches.

`python bench/burst.py [--nodes N] [--unhealthy N]`. Agents of all nodes are connected to the aggregator. It
writes 50 marks a second after the first 50, without grace periods and without limits of budgets. The patches
are made one after the other. The times are those of a watch, from the time at which all agents have their new
report. The control plane, the agents and the aggregator share the processors of this machine.

The last figures are the writes of the aggregator as the API server counts them, until none has followed for
ten seconds. Conditions, incidents and Events follow the marks, 20 of them a second.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent))

from nodeguard.kube.client import MERGE_PATCH, ApiClient
from tests.controlplane.cluster import Cluster, cluster
from tests.e2e.bulk_nodes import for_each, make_nodes, wait_until_schedulable
from tests.e2e.fleet import deployed_fleet
from tests.e2e.swarm import Swarm, fatal_finding, faulty_report, healthy_report, swarm
from tests.e2e.watcher import Watcher
from tests.kubelet.audit import Audit

NODES = 1000
UNHEALTHY = 750

# Seconds without a write after which the burst is over. A write that is not observed is repeated after five.
QUIET = 10.0

CHECKS = ("gpu-lost", "gpu-gsp-failure", "port-down", "disk-lost", "nvlink-down")
HEALTHY = healthy_report(CHECKS)
POLICY = """
defaultMode: enforce
budget: {fleet: 100%, fatalReserve: 0%, pool: 100%, perCheck: {new: 100000, within: 10m, active: 100000}}
diagnosis: {suppression: {minNodes: 100000}}
gracePeriod: {quarantine: 0s, suspect: 0s}
"""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Measure a burst of faults.")
    parser.add_argument("--nodes", type=int, default=NODES, help="nodes of the fleet (%(default)s)")
    parser.add_argument(
        "--unhealthy", type=int, default=UNHEALTHY, help="nodes that fail at once (%(default)s)"
    )
    options = parser.parse_args()
    if not 0 < options.unhealthy <= options.nodes:
        parser.error("--unhealthy: must be between 1 and the number of nodes")
    measure(options.nodes, options.unhealthy)


def measure(nodes: int, unhealthy: int) -> None:
    """Print the figures of a fleet. unhealthy: number of nodes that fail at once."""
    names = [f"gpu-{number:04}" for number in range(nodes)]
    print(f"{unhealthy} of {nodes} nodes")
    with (
        TemporaryDirectory() as directory,
        cluster(flags={"kube-apiserver": (audit := Audit(Path(directory))).flags()}) as made,
        deployed_fleet(made) as scene,
    ):
        scene.policy.write_text(POLICY)
        uids = make_nodes(made, names)
        wait_until_schedulable(made)
        with Watcher(made) as watcher:
            row("reference: bare patches", *patched(made, watcher, names[:unhealthy]))
        [aggregator] = scene.add_aggregators(1)
        aggregator.start()
        scene.distribute_ca()
        with (
            swarm(scene, uids, HEALTHY, aggregator) as agents,
            Watcher(made) as watcher,
            ThreadPoolExecutor(1) as pool,
        ):
            agents.start()
            agents.wait_until_delivered()
            aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
            reports = {
                name: faulty_report(HEALTHY, fatal_finding(CHECKS[place % len(CHECKS)]))
                for place, name in enumerate(names[:unhealthy])
            }
            before, written = cpu(aggregator.pid), audit.size()
            began = agents.set_reports(reports)
            delivery = pool.submit(delivered, agents)
            watcher.first(lambda state: bool(state.marks))
            until_first = cpu(aggregator.pid) - before
            received = delivery.result() - began
            aggregator.until(lambda: len(watcher.marked()) == unhealthy)
            times = sorted(state.at - began for state in watcher.marked().values())
            row(f"{unhealthy} faults at once", times[0], times[unhealthy // 2], times[-1])
            print(f"{'all reports acknowledged':34}{received:6.2f} s")
            total = cpu(aggregator.pid) - before
            print(f"{'CPU of the aggregator':34}{total:6.2f} s   until the first taint {until_first:.2f}")
            last_write = wait_until_quiet(audit, written)
            print(f"{'last write of the burst':34}{last_write - began:6.2f} s")
            for request, count in sorted(audit.writes(written).items()):
                print(f"{request:34}{count:6}")
            aggregator.terminate()
    print(f"load of the machine in the last minute: {os.getloadavg()[0]:.2f}")


def patched(made: Cluster, watcher: Watcher, names: list[str]) -> tuple[float, float, float]:
    """Label Nodes one by one. Returns the seconds until a watch shows the first, half of them, and all."""

    async def label(api: ApiClient, name: str) -> None:
        body = {"metadata": {"labels": {"bare": "yes"}}}
        await api.request("PATCH", f"/api/v1/nodes/{name}", body=body, content_type=MERGE_PATCH)

    began = time.monotonic()
    for_each(made, names, label, at_once=1)
    watcher.first(lambda state: state.node == names[-1] and "bare" in state.labels)
    times = [state.at - began for state in watcher.states if "bare" in state.labels]
    return times[0], times[len(times) // 2], times[-1]


def delivered(agents: Swarm) -> float:
    """Wait until all reports are acknowledged. Returns the monotonic time."""
    agents.wait_until_delivered()
    return time.monotonic()


def wait_until_quiet(audit: Audit, since: int) -> float:
    """Wait until the aggregator writes nothing more. Returns the monotonic time of its last write."""
    count, changed_at = 0, time.monotonic()
    while time.monotonic() - changed_at < QUIET:
        if (total := audit.writes(since).total()) != count:
            count, changed_at = total, time.monotonic()
        time.sleep(0.5)
    return changed_at


def row(name: str, first: float, half: float, last: float) -> None:
    print(f"{name:34}{last:6.2f} s   first after {first:.2f}, half after {half:.2f}")


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    main()
