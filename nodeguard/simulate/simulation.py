"""Simulation of a fleet over some days under one policy, and its result."""

from __future__ import annotations

from random import Random
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES
from nodeguard.model.policy import Mode, Policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.faults import SimulatedAgents
from nodeguard.simulate.figures import poisson, quantile, wilson
from nodeguard.simulate.fleet_topology import TOPOLOGY_LABELS, simulated_topology
from nodeguard.simulate.outcome_counter import CheckSuppressed, OutcomeCounter, score_diagnosis
from nodeguard.simulate.random_faults import DAY, DEFAULT_RATES, FaultRates, node_faults, shared_faults
from nodeguard.simulate.simulated_fleet import SimulatedFleet


class SimulationSettings(Struct, frozen=True):
    """Size and length of a simulation, and its random seed."""

    nodes: int = 7500
    days: float = 30.0
    seed: int = 1


# The low and the high end of a confidence interval at 95%.
Interval = tuple[float, float]


class Intervals(Struct, frozen=True):
    """Confidence intervals of the figures of the same name, at 95%; null where there are no tries.

    diagnosis_recall: of diagnosed_shared_faults as a share of shared_faults. correct_quarantines: as a share
    of quarantines. Those of shares are Wilson's. false_domains_per_day: as of independent events (Poisson).
    """

    diagnosis_recall: Interval | None
    diagnosis_precision: Interval | None
    correct_quarantines: Interval | None
    false_domains_per_day: Interval


class SimulationResult(Struct, frozen=True):
    """Result of a simulation. Fields may be added in version 1; none is removed or changes its meaning.

    shared_faults: domains with a fault of shared hardware; diagnosed_shared_faults: those of them that were
    diagnosed as degraded. diagnosis_precision: share of the diagnosed domains with a fault, null for none.
    false_domains_per_day: diagnosed domains without a fault. diagnosis_seconds_p50, _p95: from a fault to its
    diagnosis, null for none. quarantines: of nodes; correct_quarantines: of nodes with a fault;
    shared_fault_quarantines: of nodes with a shared fault. max_quarantined: nodes at one time.
    justified_capacity_lost, unjustified_capacity_lost: share of all node time in quarantine with a fault, and
    without one. incidents_per_day, domain_incidents_per_day: that opened, and those of domains and checks.
    suppressed_checks: each suppression of a check. intervals: of some figures.
    """

    version: Literal[1]
    settings: SimulationSettings
    shared_faults: int
    diagnosed_shared_faults: int
    diagnosis_precision: float | None
    false_domains_per_day: float
    diagnosis_seconds_p50: float | None
    diagnosis_seconds_p95: float | None
    quarantines: int
    correct_quarantines: int
    shared_fault_quarantines: int
    max_quarantined: int
    justified_capacity_lost: float
    unjustified_capacity_lost: float
    incidents_per_day: float
    domain_incidents_per_day: float
    suppressed_checks: tuple[CheckSuppressed, ...]
    intervals: Intervals


def simulate(
    agent: SimulatedAgent, policy: Policy, settings: SimulationSettings, rates: FaultRates = DEFAULT_RATES
) -> SimulationResult:
    """Simulate a fleet under a policy and return the result. Equal arguments give equal results."""
    days, seconds = settings.days, settings.days * DAY
    topology = simulated_topology(settings.nodes)
    faults = list(node_faults(topology, rates, seconds, _random(settings, "background")))
    shared = list(shared_faults(topology, rates, seconds, _random(settings, "shared faults")))
    faults += [fault for shared_fault in shared for fault in shared_fault.faults]
    agents = SimulatedAgents(agent)
    events = agents.events(faults, _random(settings, "beats"))
    counter = OutcomeCounter()
    random = _random(settings, "silence")
    fleet = SimulatedFleet(topology, agents, with_topology_labels(policy), [counter], random)
    fleet.run(events, seconds)
    counter.close(seconds)
    score, node_seconds = score_diagnosis(counter.degraded, shared), settings.nodes * seconds
    diagnosed = score.correct + score.wrong
    false_low, false_high = poisson(score.wrong)
    return SimulationResult(
        version=1,
        settings=settings,
        shared_faults=score.expected,
        diagnosed_shared_faults=score.detected,
        diagnosis_precision=score.correct / diagnosed if diagnosed else None,
        false_domains_per_day=score.wrong / days,
        diagnosis_seconds_p50=quantile(score.detection_seconds, 0.5),
        diagnosis_seconds_p95=quantile(score.detection_seconds, 0.95),
        quarantines=counter.quarantines,
        correct_quarantines=counter.correct_quarantines,
        shared_fault_quarantines=counter.shared_fault_quarantines.total(),
        max_quarantined=counter.max_quarantined,
        justified_capacity_lost=counter.justified_seconds / node_seconds,
        unjustified_capacity_lost=counter.unjustified_seconds / node_seconds,
        incidents_per_day=counter.incidents / days,
        domain_incidents_per_day=counter.domain_incidents / days,
        suppressed_checks=tuple(counter.suppressed),
        intervals=Intervals(
            _share_interval(score.detected, score.expected),
            _share_interval(score.correct, diagnosed),
            _share_interval(counter.correct_quarantines, counter.quarantines),
            (false_low / days, false_high / days),
        ),
    )


def _share_interval(hits: int, tries: int) -> Interval | None:
    return wilson(hits, tries) if tries else None


def enforce_all(policy: Policy) -> Policy:
    """Return a policy that enforces every mark of nodes and domains."""
    diagnosis = replace(policy.diagnosis, enforce=LOCATION_TOPOLOGIES)
    return with_topology_labels(replace(policy, mode=Mode.ENFORCE, diagnosis=diagnosis))


def with_topology_labels(policy: Policy) -> Policy:
    """Return a policy that declares the rack and power labels of the simulated fleet, if it has none."""
    declared = {topology.name for topology in policy.topologies}
    added = (topology for topology in TOPOLOGY_LABELS if topology.name not in declared)
    return replace(policy, topologies=(*policy.topologies, *added))


def _random(settings: SimulationSettings, purpose: str) -> Random:
    """Return a random source of one purpose, so that the use of one does not change the others."""
    return Random(f"{settings.seed} {purpose}")
