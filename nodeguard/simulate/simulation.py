"""A run: so many nodes for so many days, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.policy import Policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.baseline import Baseline, cordoned
from nodeguard.simulate.faults import SimulatedAgents
from nodeguard.simulate.figures import quantile
from nodeguard.simulate.fleet_topology import TOPOLOGY_LABELS, simulated_topology
from nodeguard.simulate.gangs import GPUS_PER_NODE, Gangs
from nodeguard.simulate.observer import Observer
from nodeguard.simulate.outcome_counter import CheckSuppressed, OutcomeCounter, score_diagnosis
from nodeguard.simulate.random_faults import DAY, DEFAULT_RATES, FaultRates, node_faults, shared_faults
from nodeguard.simulate.simulated_fleet import SimulatedFleet


class SimulationSettings(Struct, frozen=True):
    """What is simulated. gang: GPUs of a job."""

    nodes: int = 7500
    days: float = 30.0
    seed: int = 1
    baseline: Baseline = "nodeguard"
    gang: int = 512


class Jobs(Struct, frozen=True):
    """What gangs went through. failures: a job-day; lost: share of their time."""

    gpus: int
    jobs: int
    failures: float
    lost: float


class SimulationResult(Struct, frozen=True):
    """What came of a run.

    shared: domains with a shared fault; found: those that were blamed; precision: of the domains that were
    blamed, None where none was; false_a_day: those that should not have been. blame_p50, blame_p95: seconds
    from a shared fault to its blame. quarantines: nodes newly kept from all work; rightly: of these, those
    where something was broken; of_shared: of these, those that had a shared fault. most: nodes out at one
    time. needed, needless: share of the fleet's time that was out while something was broken there, and while
    nothing was. incidents, domains: a day, opened. held: checks that were held.
    """

    settings: SimulationSettings
    shared: int
    found: int
    precision: float | None
    false_a_day: float
    blame_p50: float | None
    blame_p95: float | None
    quarantines: int
    rightly: int
    of_shared: int
    most: int
    needed: float
    needless: float
    incidents: float
    domains: float
    gangs: Jobs
    held: tuple[CheckSuppressed, ...]


def simulate(
    agent: SimulatedAgent,
    policy: Policy,
    settings: SimulationSettings,
    watchers: Sequence[Observer] = (),
    rates: FaultRates = DEFAULT_RATES,
) -> SimulationResult:
    """Simulate it. watchers: whoever else wants to hear of it."""
    seconds, places = settings.days * DAY, simulated_topology(settings.nodes)
    troubles = list(node_faults(places, rates, seconds, _chance(settings, "background")))
    there = list(shared_faults(places, rates, seconds, _chance(settings, "shared faults")))
    troubles += [one for fault in there for one in fault.faults]
    crowd = SimulatedAgents(agent)
    moments = crowd.events(troubles, _chance(settings, "beats"))
    account = OutcomeCounter()
    gangs = Gangs(settings.nodes, settings.gang // GPUS_PER_NODE, _chance(settings, "jobs"))
    listening = [account, gangs, *watchers]
    if settings.baseline == "nodeguard":
        fleet = SimulatedFleet(
            places, crowd, with_topology_labels(policy), listening, _chance(settings, "silence")
        )
        fleet.run(moments, seconds)
    else:
        within = [one for one in moments if one.at <= seconds]
        cordoned(within, settings.nodes, listening, settings.baseline)
    account.close(seconds)
    match, days, whole = score_diagnosis(account.degraded, there), settings.days, settings.nodes * seconds
    blamed = match.correct + match.wrong
    return SimulationResult(
        settings,
        match.expected,
        match.detected,
        match.correct / blamed if blamed else None,
        match.wrong / days,
        quantile(match.detection_seconds, 0.5),
        quantile(match.detection_seconds, 0.95),
        account.quarantines,
        account.correct_quarantines,
        sum(account.shared_fault_quarantines.values()),
        account.max_quarantined,
        account.justified_seconds / whole,
        account.unjustified_seconds / whole,
        account.incidents / days,
        account.domain_incidents / days,
        _jobs(gangs, settings, seconds),
        tuple(account.suppressed),
    )


def with_topology_labels(policy: Policy) -> Policy:
    """A policy that knows by which labels the simulated fleet tells its racks and power."""
    known = {view.name for view in policy.topologies}
    return replace(
        policy, views=(*policy.topologies, *(view for view in TOPOLOGY_LABELS if view.name not in known))
    )


def _jobs(gangs: Gangs, settings: SimulationSettings, seconds: float) -> Jobs:
    days = gangs.job_days(seconds)
    failures = gangs.failures / days if days else 0.0
    lost = min(1.0, gangs.lost / (days * DAY)) if days else 0.0
    return Jobs(settings.gang, gangs.jobs, failures, lost)


def _chance(settings: SimulationSettings, of: str) -> Random:
    """Chance for one purpose, so that what is asked of another does not move it."""
    return Random(f"{settings.seed} {of}")
