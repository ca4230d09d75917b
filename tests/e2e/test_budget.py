"""A budget holds on the real control plane, whatever the agents of a fleet tell at once.

`NODEGUARD_NODES=7500` has the fleet that large.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import Cluster
from tests.e2e.fleet import Aggregator, Fleet, fleet
from tests.e2e.minted import make_nodes
from tests.e2e.swarm import Swarm, fault, in_order, sick, swarm
from tests.e2e.watcher import Watcher, most
from tests.waiting import until

NODES = int(os.environ.get("NODEGUARD_NODES", "1500"))
FATAL = NODES * 2 // 15
BUDGET = NODES // 20

# Of families that have nothing to do with each other.
CHECKS = (
    "gpu-lost",
    "gpu-gsp-failure",
    "port-down",
    "disk-lost",
    "nvlink-down",
    "kubelet-down",
    "pcie-fatal",
)
HEALTHY = in_order(CHECKS)

WIDE = """
defaultMode: enforce
pause: {pause}
budget: {{fleet: 5%, perCheck: {{new: 10000, within: 10m, active: 10000}}}}
diagnosis: {{suppression: {{minNodes: 100000}}}}
gracePeriod: {{quarantine: 1s, suspect: 1s}}
"""
ONE_CHECK = """
defaultMode: enforce
budget: {{fleet: 5%, perCheck: {{new: 5, within: {within}, active: 15}}}}
diagnosis: {{suppression: {{minNodes: 100000}}}}
gracePeriod: {{quarantine: 1s, suspect: 1s}}
"""


class Scene:
    """A fleet whose agents say that all is well, and an aggregator that has heard it."""

    def __init__(self, made: Fleet, names: list[str], agents: Swarm, aggregator: Aggregator) -> None:
        self.fleet, self.names, self.agents, self.aggregator = made, names, agents, aggregator

    def rule(self, policy: str) -> None:
        """Have another policy, and wait until the aggregator has it."""
        log = self.fleet.cluster.kept.log(self.aggregator.name)
        before = log.read_text().count("adopted")
        self.fleet.policy.write_text(policy)
        self.aggregator.until(lambda: log.read_text().count("adopted") > before)

    def marked(self, watcher: Watcher, count: int) -> set[str]:
        """Names of the Nodes that are marked, once these are so many; and more there never were, nor will be."""
        self.aggregator.until(lambda: len(watcher.marked()) >= count)
        self.plans(3)
        assert most(watcher.states) == count
        return set(watcher.marked())

    def plans(self, count: int) -> None:
        """Wait until so many plans more are made."""
        before = self.aggregator.figure("nodeguard_aggregator_plans_total")
        self.aggregator.until(
            lambda: self.aggregator.figure("nodeguard_aggregator_plans_total") >= before + count
        )

    def incidents(self, state: str, count: int) -> None:
        """Wait until so many incidents are in a state."""
        until(
            lambda: (
                self.aggregator.figure(f'nodeguard_aggregator_incidents{{state="{state.lower()}"}}') == count
            ),
            lambda: self.aggregator.page("/metrics"),
            every=0.1,
        )

    def reasons(self) -> list[str]:
        """Why incidents are withheld, as the cluster tells it."""
        items = self.fleet.cluster.api.get("/apis/nodeguard.dev/v1alpha1/nodeincidents")["items"]
        said = [one.get("status", {}) for one in items]
        return [one.get("detail", "") for one in said if one.get("state") == "Withheld"]


@pytest.fixture
def scene(controlplane: Cluster, policy: str, size: int) -> Iterator[Scene]:
    began = time.monotonic()
    with fleet(controlplane) as made:
        made.policy.write_text(policy)
        names = [f"gpu-{number:04}" for number in range(size)]
        uids = make_nodes(controlplane, names)
        [aggregator] = made.aggregate(1)
        aggregator.start()
        made.trust()
        with swarm(made, uids, HEALTHY, aggregator) as agents:
            agents.speak()
            agents.heard()
            aggregator.ready()
            print(f"{size} nodes, heard after {time.monotonic() - began:.1f} s")
            yield Scene(made, names, agents, aggregator)


@pytest.mark.parametrize(("policy", "size"), [(WIDE.format(pause="true"), NODES)])
def test_of_a_thousand_faults_of_many_checks_the_worst_are_marked(
    scene: Scene, controlplane: Cluster
) -> None:
    # Every second one is spoken for by two sources, and of those that are not, each has stood for longer than any
    # of those that are. Of these there are more than the budget has: the oldest of them are meant.
    broken = scene.names[:FATAL]
    worst = broken[::2]
    assert len(worst) > BUDGET
    words = {
        name: sick(HEALTHY, fault(CHECKS[place % len(CHECKS)], *_seen(place), age=_age(place)))
        for place, name in enumerate(broken)
    }
    with Watcher(controlplane) as watcher:
        scene.agents.say(words)
        print(f"{FATAL} faults heard after {scene.agents.heard():.1f} s")
        scene.incidents("Withheld", FATAL)
        assert not watcher.marked()
        begin = time.monotonic()
        scene.rule(WIDE.format(pause="false"))
        assert scene.marked(watcher, BUDGET) == set(worst[-BUDGET:])
        last = max(one.at for one in watcher.marked().values())
        print(f"{BUDGET} marked {last - begin:.1f} s after the pause")
        scene.incidents("Marked", BUDGET)
        scene.incidents("Withheld", FATAL - BUDGET)
        assert scene.aggregator.figure('nodeguard_aggregator_budget_used_ratio{budget="fleet"}') == 1.0
        reason = f"fleet budget used up: {BUDGET} of {BUDGET} nodes marked"
        scene.aggregator.until(lambda: scene.reasons().count(reason) == FATAL - BUDGET)


def _seen(place: int) -> tuple[str, ...]:
    return ("kmsg",) if place % 2 else ("kmsg", "nvml")


def _age(place: int) -> float:
    """Seconds: a minute more with each, and a week more of what one source alone speaks for."""
    return 60.0 * place + (604_800.0 if place % 2 else 0.0)


@pytest.mark.parametrize(("policy", "size"), [(ONE_CHECK.format(within="10m"), 600)])
def test_one_check_takes_out_five_and_fifteen_in_the_end(scene: Scene, controlplane: Cluster) -> None:
    broken = sick(HEALTHY, fault("gpu-lost"))
    with Watcher(controlplane) as watcher:
        scene.agents.say(dict.fromkeys(scene.names[:100], broken))
        scene.agents.heard()
        scene.marked(watcher, 5)
        # No test waits ten minutes: the same again with a window of eight seconds.
        scene.rule(ONE_CHECK.format(within="8s"))
        scene.marked(watcher, 15)
        firsts = _firsts(watcher)
        print([round(at - firsts[0], 1) for at in firsts])
        assert all(late - early > 7.0 for early, late in zip(firsts, firsts[5:], strict=False))
        scene.incidents("Marked", 15)
        scene.incidents("Withheld", 85)
        reasons = scene.reasons()
        assert reasons
        assert all(one.startswith("budget of check gpu-lost used up: ") for one in reasons)


def _firsts(watcher: Watcher) -> list[float]:
    """When each node was first marked."""
    first: dict[str, float] = {}
    for one in watcher.states:
        if one.marks:
            first.setdefault(one.node, one.at)
    return sorted(first.values())
