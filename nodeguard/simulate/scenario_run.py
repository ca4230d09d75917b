"""Run of a scenario: the outcome under a policy, compared with the one that operators want."""

from __future__ import annotations

from random import Random
from typing import Literal

from msgspec import Struct

from nodeguard.model.mark import Mark
from nodeguard.model.policy import Policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.faults import SimulatedAgents
from nodeguard.simulate.fleet_topology import simulated_topology
from nodeguard.simulate.observer import keeps_all_work_away
from nodeguard.simulate.outcome_counter import OutcomeCounter
from nodeguard.simulate.scenarios import SCENARIOS, Expectation, node_names
from nodeguard.simulate.simulated_fleet import SimulatedFleet
from nodeguard.simulate.simulation import with_topology_labels


class Outcome(Struct, frozen=True):
    """The outcome of a scenario.

    degraded: domains that are degraded at the end; recovered: those that were before. quarantined: nodes at
    the end, by name; released: nodes that were quarantined before. suppressed: checks.
    """

    degraded: tuple[str, ...]
    recovered: tuple[str, ...]
    quarantined: tuple[str, ...]
    released: tuple[str, ...]
    suppressed: tuple[str, ...]

    def is_as(self, expected: Expectation) -> bool:
        """Return whether this is the wanted outcome."""
        others = {*self.quarantined, *self.released} - set(expected.quarantined)
        return (
            self.degraded == expected.degraded
            and (expected.any_recovered or self.recovered == expected.recovered)
            and set(expected.quarantined) <= set(self.quarantined)
            and len(others) <= expected.others
            and set(self.suppressed) <= set(expected.may_suppress)
        )


class ScenarioResult(Struct, frozen=True):
    """The result of a scenario: the wanted outcome and the real one. hours: of virtual time.

    Fields may be added in version 1; none is removed or changes its meaning.
    """

    version: Literal[1]
    scenario: str
    summary: str
    nodes: int
    hours: float
    seed: int
    expected: Expectation
    outcome: Outcome
    as_expected: bool


def run_scenario(agent: SimulatedAgent, name: str, policy: Policy, seed: int) -> ScenarioResult:
    """Run a scenario under a policy. Equal arguments give equal results."""
    scenario, random = SCENARIOS[name], Random(f"{seed} {name}")
    topology = simulated_topology(scenario.nodes, scenario.sizes)
    events, recorder = scenario.events(topology, random), _Recorder()
    agents = SimulatedAgents(agent)
    fleet = SimulatedFleet(topology, agents, with_topology_labels(policy), [recorder], random)
    fleet.run(agents.events(events.faults, random, changes=events.changes), events.until)
    degraded = fleet.planner.diagnosis.degraded_domains.keys()
    outcome = Outcome(
        degraded=tuple(sorted(degraded)),
        recovered=tuple(sorted({diagnosis.domain for diagnosis in recorder.degraded} - degraded)),
        quarantined=node_names(topology, recorder.quarantined),
        released=node_names(topology, recorder.released - recorder.quarantined),
        suppressed=tuple(sorted({event.check for event in recorder.suppressed})),
    )
    return ScenarioResult(
        version=1,
        scenario=name,
        summary=scenario.summary,
        nodes=scenario.nodes,
        hours=events.until / 3600.0,
        seed=seed,
        expected=events.expected,
        outcome=outcome,
        as_expected=outcome.is_as(events.expected),
    )


class _Recorder(OutcomeCounter):
    """Records also which nodes were quarantined and released."""

    def __init__(self) -> None:
        super().__init__()
        self.quarantined: set[int] = set()
        self.released: set[int] = set()

    def marks_changed(self, node: int, now: frozenset[Mark], at: float) -> None:
        """See Observer."""
        super().marks_changed(node, now, at)
        if keeps_all_work_away(now):
            self.quarantined.add(node)
        elif node in self.quarantined:
            self.quarantined.remove(node)
            self.released.add(node)
