"""Roll-outs of a catalogue that is not in order: a check that fires on what is well. Pure."""

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

# What a slip of the pen in a condition leads to, by check: it holds for every healthy GPU.
SLIPS: Mapping[str, Condition] = {
    "gpu-reset-required": Compare("gpu.error", "is", "none"),
    "gpu-thermal-slowdown": Compare("gpu.temperature.margin", "at_most", 100),
}

# What the new catalogue calls itself.
NAME = "rolled out"


class Rollout(Struct, frozen=True):
    """A roll-out. check: that is wrong in it. share: of the nodes on which it fires. lasts: seconds from the
    first node to the last. by_rack: whether a rack follows on a rack; else nodes are drawn.
    """

    check: str
    share: float
    lasts: float
    by_rack: bool = False


def slipped(catalogue: Catalogue, signals: Mapping[str, Signal], check: str) -> SimulatedAgent:
    """Agents of a catalogue with one check that is wrong."""
    checks = tuple(replace(one, when=SLIPS[check]) if one.id == check else one for one in catalogue.checks)
    return SimulatedAgent(replace(catalogue, checks=checks), signals, NAME)


def rolled_out(
    one: Rollout, fleet: SimulatedTopology, well: Report, wrong: SimulatedAgent, at: float, chance: Random
) -> dict[int, tuple[float, Report]]:
    """When each node has the new catalogue, and what it says by that beside what it says anyway.

    well: what a node says that is well. wrong: agents of the new catalogue. The node is well by all other
    checks; whether the wrong one fires is the node's lot.
    """
    fires = replace(wrong.healthy_report("gpu"), passing=())
    quiet = replace(fires, findings=(), health=well.health, digest=f"{fires.digest} quiet")
    order = list(range(len(fleet.nodes)))
    if one.by_rack:
        racks = list(fleet.domains_at("rack", 2))
        chance.shuffle(racks)
        order = [node for rack in racks for node in fleet.domains[rack]]
    else:
        chance.shuffle(order)
    hit = set(chance.sample(order, max(1, round(one.share * len(order)))))
    step = one.lasts / max(1, len(order) - 1)
    return {
        node: (at + place * step + chance.uniform(0.0, _ROUND), fires if node in hit else quiet)
        for place, node in enumerate(order)
    }


# Seconds within which an agent has looked with the new catalogue.
_ROUND = 10.0
