"""An episode: some hours as usual, then one shared fault or roll-out, and what was made of it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from bench.simulation.rollouts import Rollout, rolled_out
from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES, DiagnosisPolicy
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

# Seconds as usual before, where nobody says otherwise; and seconds that a fault is watched for.
BEFORE, AFTER = 6 * 3600.0, 2.5 * 3600.0

# Seconds that a roll-out is watched for at most, and after its end.
_LONGEST, _REST = 3 * 3600.0, 1800.0

_UNBLAMED = DiagnosisPolicy(classes=(), held=1_000_000_000)


class Episode(Struct, frozen=True):
    """What was made of it.

    planted, found: domains with the fault, and those of them that were blamed; took: seconds until then, of
    each. wrong: domains that were blamed and should not have been. quarantines: nodes newly kept from all
    work that had the fault. most: nodes out at one time that had nothing. held: checks that were held from
    the fault on; wrongly: how many of them should not have been. labelled: whether what should be held was.
    """

    planted: int
    found: int
    took: tuple[float, ...]
    wrong: int
    quarantines: int
    most: int
    held: tuple[CheckSuppressed, ...]
    wrongly: int
    labelled: bool


def enforcing(policy: Policy, *, blames: bool = True) -> Policy:
    """A policy that marks whatever it may. blames: whether shared parts and checks are blamed at all."""
    blame = replace(policy.diagnosis, enforce=LOCATION_TOPOLOGIES) if blames else _UNBLAMED
    return with_topology_labels(replace(policy, mode=Mode.ENFORCE, blame=blame))


def fault_episode(
    agent: SimulatedAgent,
    fleet: SimulatedTopology,
    kind: str,
    seed: int,
    policy: Policy,
    before: float = BEFORE,
) -> Episode:
    """The episode of one shared fault of a kind. policy: see enforcing. before: seconds as usual."""
    chance = Random(f"{seed} {kind}")
    usual = list(node_faults(fleet, DEFAULT_RATES, before + AFTER, chance))
    fault = make_shared_fault(kind, fleet, before, chance)
    account = _watched(SimulatedAgents(agent), fleet, [*usual, *fault.faults], policy, chance, before + AFTER)
    match = score_diagnosis(account.degraded, [fault])
    held = _held(account, before)
    wanted = [one for one in held if one.check == fault.check and not one.domain]
    return Episode(
        match.expected,
        match.detected,
        match.detection_seconds or tuple(one.at - before for one in wanted[:1]),
        match.wrong,
        account.shared_fault_quarantines.total(),
        account.max_healthy_quarantined,
        held,
        len(held) - len(wanted),
        bool(wanted) or not fault.check,
    )


def rollout_episode(
    agent: SimulatedAgent,
    wrong: SimulatedAgent,
    fleet: SimulatedTopology,
    rollout: Rollout,
    seed: int,
    policy: Policy,
) -> Episode:
    """The episode of a roll-out. wrong: agents of what is rolled out."""
    chance = Random(f"{seed} {rollout.check} {rollout.share} {rollout.lasts} {rollout.by_rack}")
    until = BEFORE + min(rollout.lasts, _LONGEST) + _REST
    usual = list(node_faults(fleet, DEFAULT_RATES, until, chance))
    crowd = SimulatedAgents(agent)
    reports = rolled_out(rollout, fleet, crowd.healthy_report, wrong, BEFORE, chance)
    account = _watched(crowd, fleet, usual, policy, chance, until, reports)
    held = _held(account, BEFORE)
    wanted = [one for one in held if one.check == rollout.check]
    took = tuple(one.at - BEFORE for one in wanted[:1])
    return Episode(
        0,
        0,
        took,
        len({one.domain for one in account.degraded}),
        0,
        account.max_healthy_quarantined,
        held,
        len(held) - len(wanted),
        bool(wanted),
    )


class QuietDays(Struct, frozen=True):
    """Some days with no shared fault. domains, marked: that were blamed, and nodes in them. holds: checks."""

    days: float
    domains: int
    marked: int
    holds: int


def quiet_days(
    agent: SimulatedAgent,
    fleet: SimulatedTopology,
    days: float,
    seed: int,
    policy: Policy,
    before: float = BEFORE,
) -> QuietDays:
    """Days as usual, after seconds that do not count. A domain that is blamed twice counts once."""
    chance = Random(f"{seed} noise")
    until = before + days * DAY
    usual = list(node_faults(fleet, DEFAULT_RATES, until, chance))
    account = _watched(SimulatedAgents(agent), fleet, usual, policy, chance, until)
    domains = {one.domain for one in account.degraded if one.at >= before}
    marked = sum(len(fleet.domains.get(one, ())) for one in domains)
    return QuietDays(days, len(domains), marked, len(_held(account, before)))


def _watched(
    crowd: SimulatedAgents,
    fleet: SimulatedTopology,
    troubles: Sequence[Fault],
    policy: Policy,
    chance: Random,
    until: float,
    reports: dict[int, tuple[float, Report]] | None = None,
) -> OutcomeCounter:
    account = OutcomeCounter()
    running = SimulatedFleet(fleet, crowd, policy, [account], chance)
    running.run(crowd.events(troubles, chance, reports), until)
    account.close(until)
    return account


def _held(account: OutcomeCounter, since: float) -> tuple[CheckSuppressed, ...]:
    return tuple(one for one in account.suppressed if one.at >= since)
