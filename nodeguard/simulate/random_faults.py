"""What goes wrong in a fleet anyway: faults of nodes, what only looks like one, and shared faults. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import TypeVar

from msgspec import Struct, field

from nodeguard.simulate.faults import Fault
from nodeguard.simulate.fleet_topology import SimulatedTopology
from nodeguard.simulate.shared_faults import SHARED_FAULT_KINDS, SharedFault, make_shared_fault

DAY = 86_400.0

_T = TypeVar("_T")

# Nodes of the fleet that rates of a fleet-day are given for.
REFERENCE_NODES = 7500

# Shares of the faults of nodes. Source: interruptions of a training run on 16,384 H100 in 54 days, by cause
# (The Llama 3 herd of models, table 5): GPU and NVLink 148, HBM3 72, network switch or cable 35, host 32,
# SRAM 19, GSP 17, NIC 7, heat 6. How each cause is told apart further is ours.
FAULT_SHARES: Mapping[str, float] = {
    "gpu-lost": 100,
    "nvlink-down": 48,
    "ecc-uncontained": 73,
    "row-remap-failed": 18,
    "gsp-timeout": 17,
    "port-down": 35,
    "adapter-dead": 7,
    "throttled": 6,
    "silent": 40,
}

# Shares of what others take for a fault: errors of applications are some 95% of all Xids; the rest is ours.
DECOY_SHARES: Mapping[str, float] = {"application": 92, "ecc-contained": 3, "warm": 3, "port-flap": 2}

# Seconds that a fault of a node lasts, until somebody has put it right, and how often. Ours.
_REPAIRS = {3600.0: 2, 4 * 3600.0: 4, 12 * 3600.0: 3, DAY: 1}
_SILENCES = {600.0: 5, 3600.0: 3, 4 * 3600.0: 2}

# What is behind links that are lost when a gang starts, which it survives.
GANG_START = "a gang's start"

# Slots that troubles are put on: enough for a node to have them in two places.
_SLOTS = 2


_SHARED: Mapping[str, float] = {
    "leaf dead": 0.03,
    "leaf partial": 0.03,
    "leaf degraded": 0.10,
    "rack power": 0.03,
    "NVLink tray": 0.008,
    "spine degraded": 0.02,
}


class FaultRates(Struct, frozen=True):
    """How often, in a day.

    faults: of each node. decoys: of each node; lasts: seconds for which it is held against the node by who
    believes it. lemons: share of nodes with a bad cable, and how often that loses its link. bursts: starts of
    gangs in a fleet of FLEET nodes, each in one leaf, and the chance that a member loses its link once by it.
    shared: shared faults of such a fleet, by kind.
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
    """Troubles of nodes, one by one, for so many seconds."""
    many = len(fleet.nodes)

    def moments(a_day: float) -> Iterator[float]:
        at = 0.0
        while a_day > 0 and (at := at + chance.expovariate(a_day / DAY)) < seconds:
            yield at

    for at in moments(rates.faults * many):
        yield _fault(at, chance.randrange(many), chance)
    for at in moments(rates.decoys * many):
        shape = _one_of(DECOY_SHARES, chance)
        yield Fault(
            at, at + rates.decoy_seconds, chance.randrange(many), shape, chance.randrange(_SLOTS), "a decoy"
        )
    for lemon in chance.sample(range(many), round(rates.bad_cables * many)):
        slot = chance.randrange(_SLOTS)
        for at in moments(rates.flaps):
            yield Fault(at, at + rates.decoy_seconds, lemon, "port-flap", slot, "a lemon")
    leaves = fleet.domains_at("fabric", 2)
    for at in moments(rates.gang_starts * many / REFERENCE_NODES if leaves else 0.0):
        for node in fleet.domains[chance.choice(leaves)]:
            if chance.random() < rates.gang_start_flaps:
                when = at + chance.uniform(0.0, 60.0)
                yield Fault(when, when + rates.decoy_seconds, node, "port-flap", 0, GANG_START)


def shared_faults(
    fleet: SimulatedTopology, rates: FaultRates, seconds: float, chance: Random
) -> Iterator[SharedFault]:
    """Shared faults for so many seconds, those that there is a domain for."""
    for name, a_day in rates.shared.items():
        at = 0.0
        often = a_day * len(fleet.nodes) / REFERENCE_NODES / DAY
        while often and (at := at + chance.expovariate(often)) < seconds:
            if SHARED_FAULT_KINDS[name].fits(fleet):
                yield make_shared_fault(name, fleet, at, chance)


def _fault(at: float, node: int, chance: Random) -> Fault:
    shape = _one_of(FAULT_SHARES, chance)
    lasts = _one_of(_SILENCES if shape == "silent" else _REPAIRS, chance)
    return Fault(at, at + lasts, node, shape, chance.randrange(_SLOTS))


def _one_of(shares: Mapping[_T, float], chance: Random) -> _T:
    return chance.choices(list(shares), list(shares.values()))[0]
