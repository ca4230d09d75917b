"""Roll-outs of a bad catalogue: a check that fires on healthy nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Compare, Condition
from nodeguard.model.signal import Signal
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.fleet_topology import SimulatedTopology
from nodeguard.wire.report import Report

# Bad conditions by check: each is true for every healthy GPU.
BAD_CONDITIONS: Mapping[str, Condition] = {
    "gpu-reset-required": Compare("gpu.error", "is", "none"),
    "gpu-thermal-slowdown": Compare("gpu.temperature.margin", "at_most", 100),
}

# Name of the new catalogue in reports.
NAME = "rolled out"

# Seconds until an agent has evaluated the new catalogue.
_EVALUATION_SECONDS = 10.0


class Rollout(Struct, frozen=True):
    """A roll-out. check: the bad one. share: of the nodes on which it fires. lasts: seconds from the first
    node to the last. by_rack: rack after rack; else in random order.
    """

    check: str
    share: float
    lasts: float
    by_rack: bool = False


def bad_agent(catalogue: Catalogue, signals: Mapping[str, Signal], check_id: str) -> SimulatedAgent:
    """Return an agent with a catalogue in which one check is bad."""
    checks = tuple(
        replace(check, when=BAD_CONDITIONS[check_id]) if check.id == check_id else check
        for check in catalogue.checks
    )
    return SimulatedAgent(replace(catalogue, checks=checks), signals, NAME)


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
    firing = replace(new_agent.healthy_report("gpu"), passing=())
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
