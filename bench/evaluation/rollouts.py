"""Rollouts of a bad catalogue: a check that fires on healthy nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.judge.formatting import format_duration
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check, Compare, Condition
from nodeguard.model.signal import Signal
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.fleet_topology import SimulatedTopology
from nodeguard.simulate.simulated_machine import SUBSYSTEMS
from nodeguard.wire.report import Report

# Bad conditions by the kind of target: each is true for a healthy one.
_BAD_CONDITIONS: Mapping[str, Condition] = {
    "gpu": Compare("gpu.error", "is", "none"),
    "node": Compare("nvml.library", "is", value=True),
    "nvlink": Compare("nvlink.active", "is", value=True),
    "port": Compare("port.up", "is", value=True),
}

# Name of the new catalogue in reports.
NAME = "rolled out"

# Seconds until an agent has evaluated the new catalogue.
_EVALUATION_SECONDS = 10.0


class Rollout(Struct, frozen=True):
    """A rollout. check: the bad one. share: of the nodes on which it fires. lasts: seconds from the first
    node to the last. by_rack: rack after rack; else in random order.
    """

    check: str
    share: float
    lasts: float
    by_rack: bool = False


def rollout_title(rollout: Rollout) -> str:
    """Return check, share, duration and order of a rollout: `port-down on 10% over 2 h`."""
    pace = f"over {format_duration(round(rollout.lasts))}" if rollout.lasts else "at once"
    order = ", rack by rack" if rollout.by_rack else ""
    return f"{rollout.check} on {rollout.share:.0%} {pace}{order}"


def bad_agent(catalogue: Catalogue, signals: Mapping[str, Signal], check_id: str) -> SimulatedAgent:
    """Return an agent with a catalogue in which one check is bad."""
    checks = tuple(_bad_check(check) if check.id == check_id else check for check in catalogue.checks)
    return SimulatedAgent(replace(catalogue, checks=checks), signals, NAME)


def _bad_check(check: Check) -> Check:
    """Return a check that fires on healthy targets of its first kind."""
    condition = _BAD_CONDITIONS[check.targets[0]]
    return replace(check, when=condition, targets=check.targets[:1], hardware=(), applies_when=None)


def rollout_reports(
    rollout: Rollout,
    fleet: SimulatedTopology,
    healthy_report: Report,
    new_agent: SimulatedAgent,
    at: float,
    random: Random,
) -> dict[int, tuple[float, Report]]:
    """Return the time at which each node has the new catalogue, and its report then.

    Nodes are healthy by all other checks. A random share of them has the finding of the bad check.
    """
    reports = (new_agent.healthy_report(subsystem) for subsystem in SUBSYSTEMS)
    firing = next(
        replace(report, passing=())
        for report in reports
        if any(finding.check == rollout.check for finding in report.findings)
    )
    passing = replace(firing, findings=(), health=healthy_report.health, digest=f"{firing.digest} quiet")
    order = list(range(len(fleet.nodes)))
    if rollout.by_rack:
        racks = list(fleet.domains_at("rack", 2))
        random.shuffle(racks)
        order = [node for rack in racks for node in fleet.domains[rack]]
    else:
        random.shuffle(order)
    affected = set(random.sample(order, max(1, round(rollout.share * len(order)))))
    step = rollout.lasts / max(1, len(order) - 1)
    return {
        node: (
            at + index * step + random.uniform(0.0, _EVALUATION_SECONDS),
            firing if node in affected else passing,
        )
        for index, node in enumerate(order)
    }
