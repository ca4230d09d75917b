"""Budgets limit the marks on a real control plane, however many faults agents report at once.

`NODEGUARD_NODES=7500` sets the size of the fleet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import Cluster
from tests.e2e.bulk_nodes import make_nodes
from tests.e2e.fleet import Aggregator, Fleet, deployed_fleet
from tests.e2e.swarm import Swarm, fatal_finding, faulty_report, healthy_report, reporting_swarm
from tests.e2e.watcher import Watcher, max_marked
from tests.waiting import until

NODES = int(os.environ.get("NODEGUARD_NODES", "160"))
FATAL = NODES * 2 // 15
BUDGET = NODES // 20

# Checks of unrelated families.
CHECKS = (
    "gpu-lost",
    "gpu-gsp-failure",
    "port-down",
    "disk-lost",
    "nvlink-down",
    "kubelet-down",
    "pcie-fatal",
)
HEALTHY = healthy_report(CHECKS)
# The message of the log when the aggregator uses a changed policy.
IN_USE = "the new policy file is in use"

WIDE = """
defaultMode: enforce
pause: {pause}
budget: {{fleet: 5%, perCheck: {{new: 10000, within: 10m, active: 10000}}}}
diagnosis: {{suppression: {{minNodes: 100000}}}}
gracePeriod: {{quarantine: 1s, suspect: 1s}}
"""
ONE_CHECK = """
defaultMode: enforce
budget: {{fleet: 25%, pool: 25%, perCheck: {{new: 5, within: {within}, active: 15}}}}
diagnosis: {{suppression: {{minNodes: 100000}}}}
gracePeriod: {{quarantine: 1s, suspect: 1s}}
"""


class Scene:
    """A fleet of healthy nodes, and an aggregator that has all their reports."""

    def __init__(self, fleet: Fleet, names: list[str], agents: Swarm, aggregator: Aggregator) -> None:
        self.fleet, self.names, self.agents, self.aggregator = fleet, names, agents, aggregator

    def change_policy(self, policy: str) -> None:
        """Write another policy, and wait until the aggregator uses it."""
        log = self.fleet.cluster.processes.log(self.aggregator.name)
        before = log.read_text().count(IN_USE)
        self.fleet.policy.write_text(policy)
        self.aggregator.until(lambda: log.read_text().count(IN_USE) > before)

    def marked(self, watcher: Watcher, count: int, seconds: float = 3.0) -> set[str]:
        """Wait until `count` Nodes are marked, and return their names. Fails if more are marked
        until some seconds later.
        """
        self.aggregator.until(lambda: len(watcher.marked()) >= count)
        self.aggregator.wait_while_it_plans(seconds)
        assert max_marked(watcher.states) == count
        return set(watcher.marked())

    def wait_for_incidents(self, state: str, count: int) -> None:
        """Wait until exactly `count` incidents are in a state."""
        until(
            lambda: (
                self.aggregator.metric(f'nodeguard_aggregator_incidents{{state="{state.lower()}"}}') == count
            ),
            lambda: self.aggregator.get("/metrics"),
            every=0.1,
        )

    def reasons(self) -> list[str]:
        """Return the reasons of all withheld incidents in the cluster."""
        items = self.fleet.cluster.api.get("/apis/nodeguard.dev/v1alpha1/nodeincidents")["items"]
        statuses = [item.get("status", {}) for item in items]
        return [status.get("detail", "") for status in statuses if status.get("state") == "Withheld"]


@pytest.fixture
def scene(controlplane: Cluster, policy: str, size: int) -> Iterator[Scene]:
    began = time.monotonic()
    with deployed_fleet(controlplane) as fleet:
        fleet.policy.write_text(policy)
        names = [f"gpu-{number:04}" for number in range(size)]
        uids = make_nodes(controlplane, names)
        with reporting_swarm(fleet, uids, HEALTHY) as (aggregator, agents):
            aggregator.ready()
            print(f"{size} nodes, all reports received after {time.monotonic() - began:.1f} s")
            yield Scene(fleet, names, agents, aggregator)


@pytest.mark.parametrize(("policy", "size"), [(WIDE.format(pause="true"), NODES)])
def test_the_worst_of_many_faults_of_many_checks_are_marked(scene: Scene, controlplane: Cluster) -> None:
    # Every second fault has evidence of two sources; the others are older, but have one source only. More faults
    # have two sources than the budget allows: the oldest of these are marked.
    broken = scene.names[:FATAL]
    worst = broken[::2]
    assert len(worst) > BUDGET
    reports = {
        name: faulty_report(
            HEALTHY, fatal_finding(CHECKS[place % len(CHECKS)], *_sources(place), age=_age(place))
        )
        for place, name in enumerate(broken)
    }
    with Watcher(controlplane) as watcher:
        scene.agents.set_reports(reports)
        print(f"{FATAL} faults received after {scene.agents.wait_until_delivered():.1f} s")
        scene.wait_for_incidents("Withheld", FATAL)
        assert not watcher.marked()
        begin = time.monotonic()
        scene.change_policy(WIDE.format(pause="false"))
        assert scene.marked(watcher, BUDGET) == set(worst[-BUDGET:])
        last = max(state.at for state in watcher.marked().values())
        print(f"{BUDGET} marked {last - begin:.1f} s after the pause")
        scene.wait_for_incidents("Marked", BUDGET)
        scene.wait_for_incidents("Withheld", FATAL - BUDGET)
        assert scene.aggregator.metric('nodeguard_aggregator_budget_used_ratio{budget="fleet"}') == 1.0
        reason = f"fleet budget has reached its limit: {BUDGET} of {BUDGET} nodes marked"
        scene.aggregator.until(lambda: scene.reasons().count(reason) == FATAL - BUDGET)


def _sources(place: int) -> tuple[str, ...]:
    return ("kmsg",) if place % 2 else ("kmsg", "nvml")


def _age(place: int) -> float:
    """Return an age in seconds: a minute more for each fault, and a week more for faults with one source."""
    return 60.0 * place + (604_800.0 if place % 2 else 0.0)


@pytest.mark.parametrize(("policy", "size"), [(ONE_CHECK.format(within="10m"), 80)])
def test_one_check_marks_five_nodes_in_ten_minutes_and_at_most_fifteen(
    scene: Scene, controlplane: Cluster
) -> None:
    broken = faulty_report(HEALTHY, fatal_finding("gpu-lost"))
    with Watcher(controlplane) as watcher:
        scene.agents.set_reports(dict.fromkeys(scene.names[:40], broken))
        scene.agents.wait_until_delivered()
        scene.marked(watcher, 5)
        # The same with a window of eight seconds in place of ten minutes.
        scene.change_policy(ONE_CHECK.format(within="8s"))
        scene.marked(watcher, 15, seconds=10.0)
        times = _first_marked(watcher)
        print([round(at - times[0], 1) for at in times])
        assert all(late - early > 4.0 for early, late in zip(times, times[5:], strict=False))
        scene.wait_for_incidents("Marked", 15)
        scene.wait_for_incidents("Withheld", 25)
        reasons = scene.reasons()
        assert reasons
        assert all(
            reason.startswith("budget of check gpu-lost has reached its limit: ") for reason in reasons
        )


def _first_marked(watcher: Watcher) -> list[float]:
    """Return the times at which nodes were first marked, in order."""
    times: dict[str, float] = {}
    for state in watcher.states:
        if state.marks:
            times.setdefault(state.node, state.at)
    return sorted(times.values())
