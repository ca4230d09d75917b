"""The fate of evictions after kills of their leaders: from the log of the API server and the recorded drains."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from tests.daemonset.manifests import NAMESPACE
from tests.e2e.training import TEAM
from tests.kubelet.audit import AuditedWrite

# Nodes that fail together.
FAULTS = 2

# The GPU of each pod of a node, by name of the pod; the fault is of `GPU-1`.
WORK = {"first": "GPU-1", "second": "GPU-1", "third": "GPU-1", "neighbour": "GPU-2"}
STAYS = "neighbour"

_OK, _CREATED, _TIMEOUT = 200, 201, 504


class Kill(NamedTuple):
    """One kill of a leader. at: seconds since the epoch, just before. killed, successor: pods of the aggregators.
    nodes: those that had failed, the latest ones at the end. faulty_at, happened_at, led_at: when the latest ones sent
    their fault, when the step of their drain was observed, and when the successor was observed to lead.
    """

    at: float
    killed: str
    successor: str
    nodes: list[str]
    faulty_at: float
    happened_at: float
    led_at: float


@dataclass(frozen=True)
class DrainKills:
    """Some kills, and what followed. evictions, leases, statuses: writes of the aggregators, those of the states of
    NodeActions last. records: the NodeActions of all drains. left: pods in the end, by namespace and name.
    """

    nodes: list[str]
    kills: list[Kill]
    evictions: list[AuditedWrite]
    leases: list[AuditedWrite]
    statuses: list[AuditedWrite]
    records: list[Any]
    left: set[str]

    @property
    def phases(self) -> Counter[str]:
        """The number of kills in each phase of the drains of the nodes that had failed last."""
        return Counter(map(self._phase, self.kills))

    def _phase(self, kill: Kill) -> str:
        nodes = kill.nodes[-FAULTS:]
        members = faulty_pods(nodes)
        answered = {
            write.target for write in self.evictions if write.code == _CREATED and write.completed <= kill.at
        }
        if evicted := len(members & answered):
            return f"{evicted} of {len(members)} pods evicted"
        drains = {
            f"{NAMESPACE}/{item['metadata']['name']}"
            for item in self.records
            if item["spec"]["node"] in nodes
        }
        is_started = any(write.target in drains and write.completed <= kill.at for write in self.statuses)
        return "started, no pod evicted" if is_started else "not started"

    @property
    def states(self) -> dict[str, Counter[str]]:
        """How many drains of each node ended in each state."""
        states = {node: Counter[str]() for node in self.nodes}
        for item in self.records:
            states[item["spec"]["node"]][item["status"]["state"]] += 1
        return states

    @property
    def evicted(self) -> Counter[str]:
        """How often each pod was evicted."""
        return Counter(write.target for write in self.evictions if write.code == _CREATED)

    @property
    def twice(self) -> list[str]:
        """The pods that were evicted more than once."""
        return [name for name, count in self.evicted.items() if count > 1]

    @property
    def outside(self) -> set[str]:
        """The pods that were evicted, or ended, and hold no faulty GPU or are in no recorded set."""
        neighbours = {f"{TEAM}/{node}-{STAYS}" for node in self.nodes}
        gone = self.evicted.keys() | (neighbours - self.left)
        recorded = {f"{TEAM}/{member['name']}" for item in self.records for member in item["spec"]["pods"]}
        return gone - (faulty_pods(self.nodes) & recorded)

    def in_flight(self) -> int:
        """Return how many evictions the killed leaders had sent, of which the API server had not sent the answer."""
        return sum(
            write.pod == kill.killed and write.received <= kill.at < write.completed
            for kill in self.kills
            for write in self.evictions
        )

    def takeovers(self) -> list[float]:
        """Return the seconds from each takeover that left pods to evict until the first of them was evicted, also if
        that was by the leader after the next kill. They do not begin at the kill, since the lease is emptied then.
        """
        seconds = []
        for kill in self.kills:
            took_over = next(
                write.completed
                for write in self.leases
                if write.pod == kill.successor and write.code == _OK and write.received > kill.at
            )
            members = faulty_pods(kill.nodes)
            first = min(
                (
                    write.completed
                    for write in self.evictions
                    if write.target in members and write.code == _CREATED and write.completed > took_over
                ),
                default=None,
            )
            if first is not None:
                seconds.append(first - took_over)
        return seconds

    def seconds_of_a_kill(self) -> dict[str, list[float]]:
        """Return the seconds of each part of the kills, by its name."""
        pairs = pairwise(self.kills)
        return {
            "from the fault to the step": [kill.happened_at - kill.faulty_at for kill in self.kills],
            "from the step to the kill": [kill.at - kill.happened_at for kill in self.kills],
            "from the kill to the next leader": [kill.led_at - kill.at for kill in self.kills],
            "until the next fault": [later.faulty_at - kill.led_at for kill, later in pairs] or [0.0],
        }

    def problems(self) -> list[str]:
        """Return what was evicted twice, wrongly or not at all, and drains that were not whole in the end."""
        problems = [f"evicted twice: {name}" for name in self.twice]
        problems += [f"evicted outside of a recorded set: {name}" for name in sorted(self.outside)]
        # With a client that is killed, the answer can be a time-out though the eviction was stored.
        timed_out = {write.target for write in self.evictions if write.code == _TIMEOUT}
        missing = faulty_pods(self.nodes) - self.evicted.keys() - timed_out
        problems += [f"not evicted: {name}" for name in sorted(missing)]
        problems += [f"still there: {name}" for name in sorted(self.left & faulty_pods(self.nodes))]
        for node, states in self.states.items():
            # A leader that does not know the fault yet withdraws a drain without an eviction, and it is made again.
            if states["Succeeded"] != 1 or states.keys() - {"Succeeded", "Cancelled"}:
                problems.append(f"drains of {node}: {dict(states)}")
        if not (self.in_flight() or any("pods evicted" in phase for phase in self.phases)):
            problems.append("no kill was in a drain")
        return problems


def faulty_pods(nodes: list[str]) -> set[str]:
    """Return the pods of nodes that hold the faulty GPU."""
    return {f"{TEAM}/{node}-{work}" for node in nodes for work in WORK.keys() - {STAYS}}
