"""A history of a simulated fleet, and what the planner decided in it. The agents are the real ones, the rule of the
diagnosis is `DIAGNOSIS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from random import Random

from msgspec.structs import replace

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Budget, default_policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.faults import Fault, NodeChange, SimulatedAgents
from nodeguard.simulate.fleet_topology import SimulatedTopology, TopologySizes, simulated_topology
from nodeguard.simulate.observer import Observer
from nodeguard.simulate.simulated_fleet import SimulatedFleet
from nodeguard.simulate.simulation import enforce_all
from tests.policies import FAULT_CLASSES

# The rule of the diagnosis that the scenarios judge.
DIAGNOSIS = Diagnosis

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0

# Normal seconds before the first fault: the diagnosis has measured what is usual in the longest window of most classes.
BEFORE = 6 * HOUR

# The budgets of domains have tests of their own: here every degraded domain is marked.
POLICY = replace(
    enforce_all(default_policy(FAULT_CLASSES)), budget=Budget(degraded=1.0, first=1.0, domains=1_000)
)

# Seconds between two readings of the suppressed checks.
_READING = 5 * MINUTE


@cache
def simulated_agents() -> SimulatedAgents:
    return SimulatedAgents(SimulatedAgent(*load_catalogue()))


def fabric(nodes: int, pod: int, leaf: int) -> SimulatedTopology:
    """Return a fleet with so many nodes in each pod and leaf."""
    return simulated_topology(nodes, TopologySizes(pod=pod, leaf=leaf, nvlink_share=0.0))


def rows(nodes: int, racks: int, rack: int) -> SimulatedTopology:
    """Return a fleet with so many racks in each row and nodes in each rack, and large leaves."""
    return simulated_topology(nodes, TopologySizes(row=racks, rack=rack, nvlink_share=0.0))


class Outcome(Observer):
    """What the planner decided. named: every domain that became degraded, with the time, in their order. suppressions:
    every suppression of a check, with its time. suppressed_seconds: for how long each check was suppressed.
    marks: of each node now; ever_marked: every node with each of its marks so far.
    """

    def __init__(self) -> None:
        self.named: list[tuple[str, float]] = []
        self.suppressions: list[tuple[str, float]] = []
        self.suppressed_seconds: dict[str, float] = {}
        self.marks: dict[int, frozenset[Mark]] = {}
        self.ever_marked: set[tuple[int, Mark]] = set()

    @property
    def domains(self) -> set[str]:
        """Every domain that became degraded."""
        return {domain for domain, _ in self.named}

    @property
    def suppressed(self) -> set[str]:
        """Every check that was suppressed."""
        return {check for check, _ in self.suppressions}

    def domain_degraded(self, domain: str, at: float) -> None:
        self.named.append((domain, at))

    def check_suppressed(self, check: str, at: float, *, real: bool, domain: str) -> None:
        self.suppressions.append((check, at))

    def marks_changed(self, node: int, now: frozenset[Mark], at: float) -> None:
        self.marks[node] = now
        self.ever_marked.update((node, mark) for mark in now)

    def with_mark(self, mark: Mark) -> set[int]:
        """Return the nodes with a mark now."""
        return {node for node, marks in self.marks.items() if mark in marks}


class History:
    """A fleet over some hours. Its faults and operators' changes are added first, then it is run."""

    def __init__(self, topology: SimulatedTopology, seed: int | str = 1) -> None:
        self.topology = topology
        self.random = Random(f"shared causes {seed}")
        self._seed = seed
        self.outcome = Outcome()
        self._faults: list[Fault] = []
        self._changes: list[NodeChange] = []

    def again(self) -> History:
        """Return a history of the same fleet with the same faults and changes, which has not run."""
        copy = History(self.topology, self._seed)
        copy._faults, copy._changes = list(self._faults), list(self._changes)
        return copy

    def nodes(self, domain: str) -> tuple[int, ...]:
        return self.topology.domains[domain]

    def fault(
        self,
        kind: str,
        nodes: Iterable[int],
        at: float,
        within: float = 5.0,
        lasts: float = 3 * HOUR,
        job: str = "",
    ) -> None:
        """Add the fault of some nodes, which begins at a random time within some seconds. job: that started then."""
        for node in nodes:
            start = at + self.random.uniform(0.0, within)
            self._faults.append(Fault(start, start + lasts, node, kind, 0, "shared", job, at if job else 0.0))

    def noise(self, kind: str, rate: float, until: float, lasts: tuple[float, float]) -> None:
        """Add faults of random single nodes. rate: of a node and day. lasts: seconds, at least and at most."""
        at, count = 0.0, len(self.topology.nodes)
        while (at := at + self.random.expovariate(rate * count / DAY)) < until:
            node, seconds = self.random.randrange(count), self.random.uniform(*lasts)
            self._faults.append(Fault(at, at + seconds, node, kind))

    def cordon(self, nodes: Sequence[int], start: float, end: float) -> None:
        """Add an operator's cordon of some nodes."""
        for node in nodes:
            self._changes += [NodeChange(start, node, unschedulable=True), NodeChange(end, node)]

    def run(self, until: float, restarts: Sequence[float] = ()) -> Outcome:
        """Run the fleet up to a time, with restarts of the aggregator. Returns the outcome, which grows."""
        agents = simulated_agents()
        self.fleet = SimulatedFleet(self.topology, agents, POLICY, [self.outcome], self.random)
        events = agents.events(self._faults, self.random, changes=self._changes)
        before = 0.0
        for end in sorted({*_steps(until), *restarts, until}):
            self.fleet.run([event for event in events if before < event.at <= end], end)
            for check in self.suppressed:
                seconds = self.outcome.suppressed_seconds.get(check, 0.0)
                self.outcome.suppressed_seconds[check] = seconds + end - before
            if end in restarts:
                self.fleet.restart(end)
            before = end
        return self.outcome

    @property
    def degraded(self) -> set[str]:
        """The domains that are degraded now."""
        return set(self.fleet.planner.diagnosis.degraded_domains)

    @property
    def suppressed(self) -> set[str]:
        """The checks that are suppressed now."""
        return set(self.fleet.planner.diagnosis.suppressed_checks)


def _steps(until: float) -> Iterable[float]:
    return (step * _READING for step in range(1, int(until / _READING) + 1))
