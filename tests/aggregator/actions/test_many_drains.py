"""A hundred faults at once on 7,500 nodes, with random domains, gangs, namespaces and limits: at no time do drains exceed
a limit, and each node with a fault is drained or reports the limit that keeps its pods.

`NODEGUARD_DRAIN_FLEETS=100` sets the number of fleets.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Collection
from random import Random

import msgspec
from msgspec.structs import replace

from nodeguard.fleet.drains import fleet_drain_candidates
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.drain import DrainLimits
from nodeguard.model.pod import PodGroupKey
from nodeguard.model.policy import TopologyLabels
from tests.aggregator.actions.drain_replicas import DrainReplica, PodCluster
from tests.fleet.act.drained_fleet import DRAINS
from tests.fleet.scene import Fleet, finding

NODES, RACK, FAULTS = 7500, 8, 100
FLEETS = int(os.environ.get("NODEGUARD_DRAIN_FLEETS", "1"))
HISTORIES = 4

# Steps of a history, and seconds of a step: shorter than the grace period of a pod, so that each drain is observed.
STEPS, STEP = 150, 5.0
HOUR = 3600.0

TOPOLOGIES = tuple(TopologyLabels(name, (name,)) for name in ("rack", "power", "zone"))

# Limits, one of each is drawn for a history: parts of all nodes with the nodes that they allow, and counts.
SHARES = {0.0: 1, 0.001: 7, 0.004: 30, 1.0: NODES}
HOURLY = (5, 20, 60, 1000)
PER_DOMAIN = (1, 2, 8)
# Limits of pods, gangs and namespaces, at a time and in an hour: each history has one of them, or none.
WORK = {"pods": (4, 9, 40), "gangs": (1, 3, 8), "namespaces": (1, 2, 5)}
NAMESPACES = 8


class FaultyFleet:
    """A fleet in racks of eight, in random power domains, and in three zones that are too large to be limited.

    domains: rack and power domain, by name of the node. candidates: by name of the node, with the whole node for
    some, and the GPU `GPU-1` for the others.
    """

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        powers = random.choice((20, 100, 900))
        self.description = f"fleet {seed} with {powers} power domains"
        self.policy = replace(DRAINS, topologies=TOPOLOGIES)
        fleet = Fleet(0, self.policy)
        self.domains: dict[str, tuple[str, str]] = {}
        for number in range(NODES):
            rack, power = f"r{number // RACK}", f"p{random.randrange(powers)}"
            self.domains[f"node-{number}"] = rack, power
            fleet.add(number, labels={"rack": rack, "power": power, "zone": f"z{number % 3}"})
        racks = random.sample(range(NODES // RACK), FAULTS // 2)
        for number in random.sample([rack * RACK + place for rack in racks for place in range(RACK)], FAULTS):
            is_whole_node = random.random() < 0.25
            fleet.report(number, finding("gpu-hot", "node", component="") if is_whole_node else finding())
        fleet.carry_out()
        found = fleet_drain_candidates(fleet.planner, fleet.now)
        assert not any(candidate.blocker for candidate in found)
        self.candidates = {candidate.node: candidate for candidate in found}
        assert len(self.candidates) == FAULTS
        self.planner = fleet.planner


class History(PodCluster):
    """The drains of a fleet with limits of their own. Two pods of each candidate hold the GPU `GPU-1`, and a third one
    another GPU. waited_for: the limits that were reported.
    """

    def __init__(self, fleet: FaultyFleet, seed: int) -> None:
        super().__init__()
        random = Random(seed)
        self.share = random.choice(list(SHARES))
        part = random.choice((*WORK, ""))
        self.part = f"{part}{random.choice(('', 'PerHour'))}" if part else ""
        self.limits = msgspec.convert(
            {
                "nodes": self.share,
                "newPerHour": random.choice(HOURLY),
                "perDomain": random.choice(PER_DOMAIN),
                **{f"{name}{hour}": 9999 for name in WORK for hour in ("", "PerHour")},
                **({self.part: random.choice(WORK[part])} if part else {}),
            },
            DrainLimits,
        )
        self.description = f"{fleet.description}, history {seed} with {self.limits}"
        self.waited_for: set[str] = set()
        self.candidates = dict(fleet.candidates)
        self.nodes = self.quarantined = {candidate.uid for candidate in self.candidates.values()}
        self._domains = fleet.domains
        self._to_evict: dict[str, set[str]] = {}
        for node, candidate in self.candidates.items():
            pods = {f"{node}-{gpu}-{number}": gpu for number, gpu in enumerate(("GPU-1", "GPU-1", "GPU-2"))}
            namespace = f"team-{random.randrange(NAMESPACES)}"
            gang = PodGroupKey(namespace, node) if random.random() < 0.3 else None
            if gang is not None:
                self.whole.add(gang)
            for name, gpu in pods.items():
                self.create(node, name, gpu, {}, namespace, group=gang if gpu == "GPU-1" else None)
            self._to_evict[node] = {
                name for name, gpu in pods.items() if candidate.is_whole_node or gpu == "GPU-1"
            }
        drain = replace(fleet.policy.drain, limits=self.limits)
        fleet.planner.set_policy(replace(fleet.policy, drain=drain))
        self.leader = DrainReplica(self, fleet.planner)
        self.leader.is_leader = True

    async def play(self) -> int:
        """Let the leader drain, and check each step. Returns the number of drained nodes."""
        drained: set[str] = set()
        for _ in range(STEPS):
            await self.settle()
            drains = self.stored()
            drained = {action.node for action in drains if action.state == ActionState.SUCCEEDED}
            draining = {action.node for action in drains if not action.state.is_finished}
            draining |= {self.pods[uid][0] for uid in self.ends}
            self.check_evicted(drained | draining)
            self.check_limits(draining, drains)
            if len(drained) == FAULTS:
                break
            if not draining:
                # Nothing begins until the oldest of the drains in the hour is older.
                self.now = max(self.now, self.recent(drains)[0].created_at + HOUR - 2 * STEP)
            self.now += STEP
            self.sync()
        return len(drained)

    async def settle(self) -> None:
        """Let the leader do all that is due now."""
        writes = -1
        while writes != len(self.api.history):
            writes = len(self.api.history)
            self.leader.catch_up()
            await self.leader.runner.turn()
            while await self.leader.loop.turn():
                self.leader.catch_up()

    def recent(self, drains: list[NodeAction]) -> list[NodeAction]:
        """Return the drains that began within an hour, the oldest first."""
        recent = [action for action in drains if self.now - action.created_at < HOUR]
        return sorted(recent, key=lambda action: action.created_at)

    def check_evicted(self, begun: set[str]) -> None:
        """Check that all pods of the sets were evicted, and no others. begun: nodes that were, or are, drained."""
        evicted = {uid.rpartition("-")[0] for uid in self.evicted}
        assert evicted == set().union(*(self._to_evict[node] for node in begun))

    def check_limits(self, draining: set[str], drains: list[NodeAction]) -> None:
        """Check that no limit is exceeded, and that all nodes without a drain report one that is exhausted."""
        recent = len(self.recent(drains))
        used = Counter(domain for node in draining for domain in self._domains[node])
        assert len(draining) <= SHARES[self.share]
        assert recent <= self.limits.hourly
        assert max(used.values(), default=0) <= self.limits.domain
        running = [action for action in drains if not action.state.is_finished]
        free = {
            f"{name}{hour}": limit - len(parts(actions)[name])
            for hour, actions, limits in (
                ("", running, self.limits.at_once),
                ("PerHour", self.recent(drains), self.limits.in_an_hour),
            )
            for name, limit in limits.items()
        }
        assert min(free.values()) >= 0, free
        reports = {report.node: report for report in self.leader.runner.reports()}
        for node in self.candidates.keys() - {action.node for action in drains}:
            if len(draining) == SHARES[self.share]:
                limit = "nodes"
            elif recent == self.limits.hourly:
                limit = "newPerHour"
            elif any(used[domain] == self.limits.domain for domain in self._domains[node]):
                limit = "perDomain"
            else:
                limit = self.part
                # A set has at most three pods, one gang and one namespace.
                assert self.part, node
                assert free[self.part] < (3 if self.part.startswith("pods") else 1)
            assert f"(drain.limits.{limit})" in reports[node].reason, (reports[node], limit)
            self.waited_for.add(limit)


def parts(actions: Collection[NodeAction]) -> dict[str, set[object]]:
    """Return what some drains have."""
    pods = [pod for action in actions for pod in action.pods]
    return {
        "pods": {pod.uid for pod in pods},
        "gangs": {group for action in actions for group in action.pod_groups},
        "namespaces": {pod.namespace for pod in pods},
    }


def test_a_hundred_faults_at_once_exceed_no_limit() -> None:
    waited_for: set[str] = set()
    for seed in range(FLEETS):
        fleet = FaultyFleet(seed)
        for number in range(HISTORIES):
            history = History(fleet, seed * HISTORIES + number)
            try:
                drained = asyncio.run(history.play())
            except AssertionError as error:
                raise AssertionError(f"{history.description}: {error}") from error
            waited_for |= history.waited_for
            print(f"{history.description}: {drained} of {FAULTS} nodes drained")
    assert waited_for >= {"nodes", "newPerHour", "perDomain"}, "a limit was never reached"
    assert waited_for & {f"{name}{hour}" for name in WORK for hour in ("", "PerHour")}, waited_for
