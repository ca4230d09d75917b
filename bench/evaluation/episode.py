"""Episodes: some normal hours, then one shared fault or rollout, and the diagnoses that follow."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from bench.evaluation.rollouts import Rollout, rollout_reports
from nodeguard.model.diagnosis import DiagnosisPolicy, SuppressionPolicy
from nodeguard.model.policy import Mode, Policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.faults import Fault, SimulatedAgents
from nodeguard.simulate.fleet_topology import SimulatedTopology
from nodeguard.simulate.outcome_counter import CheckSuppressed, OutcomeCounter, score_diagnosis
from nodeguard.simulate.random_faults import DAY, DEFAULT_RATES, node_faults
from nodeguard.simulate.shared_faults import make_shared_fault
from nodeguard.simulate.simulated_fleet import SimulatedFleet
from nodeguard.simulate.simulation import with_topology_labels
from nodeguard.wire.report import Report

# Normal seconds before a fault by default, and seconds for which a fault is observed.
BEFORE, AFTER = 6 * 3600.0, 2.5 * 3600.0

# Seconds for which a rollout is observed after its end.
_AFTER_ROLLOUT = 1800.0

# Nodes with false alarms from which they are visible: fewer are like single faults.
_FEWEST = 5

_NO_DIAGNOSIS = DiagnosisPolicy(classes=(), suppression=SuppressionPolicy(min_nodes=1_000_000_000))


class Episode(Struct, frozen=True, kw_only=True):
    """Result of an episode.

    expected, detected: domains with the fault, and those that were diagnosed; detection_seconds: until the
    diagnosis, of each. wrong: domains that were diagnosed without the fault. quarantines: of nodes with
    the fault. max_healthy_quarantined: nodes at one time without a fault. suppressed: checks since the fault;
    wrongly_suppressed: those that should not be. is_suppressed: whether the check that should be suppressed
    was, if there is one. visible_seconds: from the fifth node with a false alarm to the suppression; empty
    for fewer nodes, or without suppression.
    """

    expected: int
    detected: int
    detection_seconds: tuple[float, ...]
    wrong: int
    quarantines: int
    max_healthy_quarantined: int
    suppressed: tuple[CheckSuppressed, ...]
    wrongly_suppressed: int
    is_suppressed: bool
    visible_seconds: tuple[float, ...] = ()


def without_diagnosis(policy: Policy) -> Policy:
    """Return a policy that enforces every mark, and never diagnoses domains or suppresses checks."""
    return with_topology_labels(replace(policy, mode=Mode.ENFORCE, diagnosis=_NO_DIAGNOSIS))


def fault_episode(
    agent: SimulatedAgent,
    fleet: SimulatedTopology,
    kind: str,
    seed: int,
    policy: Policy,
    before: float = BEFORE,
) -> Episode:
    """Run the episode of one shared fault. before: normal seconds before it."""
    random = Random(f"{seed} {kind}")
    normal = list(node_faults(fleet, DEFAULT_RATES, before + AFTER, random))
    fault = make_shared_fault(kind, fleet, before, random)
    counter = _run(SimulatedAgents(agent), fleet, [*normal, *fault.faults], policy, random, before + AFTER)
    score = score_diagnosis(counter.degraded, [fault])
    suppressed = _suppressed(counter, before)
    expected = [event for event in suppressed if event.check == fault.check and not event.domain]
    return Episode(
        expected=score.expected,
        detected=score.detected,
        detection_seconds=score.detection_seconds or tuple(event.at - before for event in expected[:1]),
        wrong=score.wrong,
        quarantines=counter.shared_fault_quarantines.total(),
        max_healthy_quarantined=counter.max_healthy_quarantined,
        suppressed=suppressed,
        wrongly_suppressed=len(suppressed) - len(expected),
        is_suppressed=bool(expected) or not fault.check,
    )


def rollout_episode(
    agent: SimulatedAgent,
    new_agent: SimulatedAgent,
    fleet: SimulatedTopology,
    rollout: Rollout,
    seed: int,
    policy: Policy,
) -> Episode:
    """Run the episode of a rollout. new_agent: with the catalogue that is rolled out."""
    random = Random(f"{seed} {rollout.check} {rollout.share} {rollout.lasts} {rollout.by_rack}")
    until = BEFORE + rollout.lasts + _AFTER_ROLLOUT
    normal = list(node_faults(fleet, DEFAULT_RATES, until, random))
    agents = SimulatedAgents(agent)
    reports = rollout_reports(rollout, fleet, agents.healthy_report, new_agent, BEFORE, random)
    counter = _run(agents, fleet, normal, policy, random, until, reports)
    suppressed = _suppressed(counter, BEFORE)
    expected = [event for event in suppressed if event.check == rollout.check]
    firing = sorted(at for at, report in reports.values() if report.findings)
    visible = firing[_FEWEST - 1 : _FEWEST]
    return Episode(
        expected=0,
        detected=0,
        detection_seconds=tuple(event.at - BEFORE for event in expected[:1]),
        wrong=len({diagnosis.domain for diagnosis in counter.degraded}),
        quarantines=0,
        max_healthy_quarantined=counter.max_healthy_quarantined,
        suppressed=suppressed,
        wrongly_suppressed=len(suppressed) - len(expected),
        is_suppressed=bool(expected),
        visible_seconds=tuple(max(0.0, event.at - at) for event, at in zip(expected, visible, strict=False)),
    )


class NormalDays(Struct, frozen=True, kw_only=True):
    """Days without shared faults. domains, nodes: diagnosed, and the nodes in them. suppressed: checks."""

    days: float
    domains: int
    nodes: int
    suppressed: int


def normal_days(
    agent: SimulatedAgent,
    fleet: SimulatedTopology,
    days: float,
    seed: int,
    policy: Policy,
    before: float = BEFORE,
) -> NormalDays:
    """Run normal days. before: seconds that do not count. A domain that is diagnosed twice counts once."""
    random = Random(f"{seed} noise")
    until = before + days * DAY
    normal = list(node_faults(fleet, DEFAULT_RATES, until, random))
    counter = _run(SimulatedAgents(agent), fleet, normal, policy, random, until)
    domains = {diagnosis.domain for diagnosis in counter.degraded if diagnosis.at >= before}
    nodes = sum(len(fleet.domains.get(domain, ())) for domain in domains)
    return NormalDays(
        days=days, domains=len(domains), nodes=nodes, suppressed=len(_suppressed(counter, before))
    )


def _run(
    agents: SimulatedAgents,
    topology: SimulatedTopology,
    faults: Sequence[Fault],
    policy: Policy,
    random: Random,
    until: float,
    rollouts: dict[int, tuple[float, Report]] | None = None,
) -> OutcomeCounter:
    counter = OutcomeCounter()
    fleet = SimulatedFleet(topology, agents, policy, [counter], random)
    fleet.run(agents.events(faults, random, rollouts), until)
    counter.close(until)
    return counter


def _suppressed(counter: OutcomeCounter, since: float) -> tuple[CheckSuppressed, ...]:
    return tuple(event for event in counter.suppressed if event.at >= since)
