"""Random faults of a fleet: of single nodes, decoys that only look like one, and of shared hardware. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import TypeVar

from msgspec import Struct, field

from nodeguard.simulate.fault_kinds import NODE_DOWN
from nodeguard.simulate.faults import Fault
from nodeguard.simulate.fleet_topology import SimulatedTopology
from nodeguard.simulate.shared_faults import SHARED_FAULT_KINDS, SharedFault, make_shared_fault

DAY = 86_400.0

_T = TypeVar("_T")

# Nodes of the fleet for which rates of a fleet are given.
REFERENCE_NODES = 7500

# Shares of the faults of nodes. Source: interruptions of a training run on 16,384 H100 in 54 days, by cause
# (The Llama 3 herd of models, table 5): GPU and NVLink 148, HBM3 72, network switch or cable 35, host 32,
# SRAM 19, GSP 17, NIC 7, heat 6. The split of each cause into kinds is an assumption.
FAULT_SHARES: Mapping[str, float] = {
    "gpu-lost": 100,
    "nvlink-down": 48,
    "ecc-uncontained": 73,
    "row-remap-failed": 18,
    "gsp-timeout": 17,
    "port-down": 35,
    "adapter-dead": 7,
    "throttled": 6,
    NODE_DOWN: 40,
}

# Shares of decoys: application errors are about 95% of all Xids; the rest is an assumption.
DECOY_SHARES: Mapping[str, float] = {"application": 92, "ecc-contained": 3, "warm": 3, "port-flap": 2}

# Weights of the seconds until a fault is repaired. An assumption.
_REPAIRS = {3600.0: 2, 4 * 3600.0: 4, 12 * 3600.0: 3, DAY: 1}
_OUTAGES = {600.0: 5, 3600.0: 3, 4 * 3600.0: 2}

# Cause of links that are lost briefly when a gang starts.
GANG_START = "the start of a gang"

# Targets that may have a fault: enough for a node to have two.
_TARGETS = 2


_SHARED: Mapping[str, float] = {
    "leaf dead": 0.03,
    "leaf partial": 0.03,
    "leaf degraded": 0.10,
    "rack power": 0.03,
    "NVLink tray": 0.008,
    "spine degraded": 0.02,
}


class FaultRates(Struct, frozen=True):
    """Rates for one day.

    faults: of each node. decoys: of each node; decoy_seconds: for which a rule that believes one marks its
    node. bad_cables: share of nodes with one; flaps: how often such a node loses its link. gang_starts: of
    gangs in one leaf, in a fleet of REFERENCE_NODES; gang_start_flaps: probability that a member then loses
    its link. shared: faults of shared hardware in such a fleet, by kind.
    """

    faults: float = 0.0043
    decoys: float = 1140 / REFERENCE_NODES
    decoy_seconds: float = 4 * 3600.0
    bad_cables: float = 0.002
    flaps: float = 3.0
    gang_starts: float = 24.0
    gang_start_flaps: float = 0.06
    shared: Mapping[str, float] = field(default_factory=lambda: _SHARED)


DEFAULT_RATES = FaultRates()


def node_faults(
    fleet: SimulatedTopology, rates: FaultRates, seconds: float, chance: Random
) -> Iterator[Fault]:
    """Yield the faults and decoys of single nodes for so many seconds."""
    count = len(fleet.nodes)

    def times(rate: float) -> Iterator[float]:
        at = 0.0
        while rate > 0 and (at := at + chance.expovariate(rate / DAY)) < seconds:
            yield at

    for at in times(rates.faults * count):
        yield _fault(at, chance.randrange(count), chance)
    for at in times(rates.decoys * count):
        kind = _weighted_choice(DECOY_SHARES, chance)
        node = chance.randrange(count)
        yield Fault(at, at + rates.decoy_seconds, node, kind, chance.randrange(_TARGETS), "a decoy")
    for node in chance.sample(range(count), round(rates.bad_cables * count)):
        target = chance.randrange(_TARGETS)
        for at in times(rates.flaps):
            yield Fault(at, at + rates.decoy_seconds, node, "port-flap", target, "a bad cable")
    leaves = fleet.domains_at("fabric", 2)
    for at in times(rates.gang_starts * count / REFERENCE_NODES if leaves else 0.0):
        for node in fleet.domains[chance.choice(leaves)]:
            if chance.random() < rates.gang_start_flaps:
                start = at + chance.uniform(0.0, 60.0)
                end, job = start + rates.decoy_seconds, f"training/gang-{at:.0f}"
                yield Fault(start, end, node, "port-flap", 0, GANG_START, job, at)


def shared_faults(
    fleet: SimulatedTopology, rates: FaultRates, seconds: float, chance: Random
) -> Iterator[SharedFault]:
    """Yield the faults of shared hardware for so many seconds, of kinds that the fleet has a domain for."""
    for name, rate in rates.shared.items():
        at = 0.0
        fleet_rate = rate * len(fleet.nodes) / REFERENCE_NODES / DAY
        while fleet_rate and (at := at + chance.expovariate(fleet_rate)) < seconds:
            if SHARED_FAULT_KINDS[name].fits(fleet):
                yield make_shared_fault(name, fleet, at, chance)


def _fault(at: float, node: int, chance: Random) -> Fault:
    kind = _weighted_choice(FAULT_SHARES, chance)
    duration = _weighted_choice(_OUTAGES if kind == NODE_DOWN else _REPAIRS, chance)
    return Fault(at, at + duration, node, kind, chance.randrange(_TARGETS))


def _weighted_choice(weights: Mapping[_T, float], chance: Random) -> _T:
    return chance.choices(list(weights), list(weights.values()))[0]
