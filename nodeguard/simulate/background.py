"""What goes wrong in a fleet anyway: faults of nodes, what only looks like one, and shared faults. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import TypeVar

from msgspec import Struct, field

from nodeguard.simulate.shared import KINDS, Planted, planted
from nodeguard.simulate.topology import Topology
from nodeguard.simulate.troubles import Trouble

DAY = 86_400.0

_T = TypeVar("_T")

# Nodes of the fleet that rates of a fleet-day are given for.
FLEET = 7500

# Shares of the faults of nodes. Source: interruptions of a training run on 16,384 H100 in 54 days, by cause
# (The Llama 3 herd of models, table 5): GPU and NVLink 148, HBM3 72, network switch or cable 35, host 32,
# SRAM 19, GSP 17, NIC 7, heat 6. How each cause is told apart further is ours.
FAULTS: Mapping[str, float] = {
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
DECOYS: Mapping[str, float] = {"application": 92, "ecc-contained": 3, "warm": 3, "port-flap": 2}

# Seconds that a fault of a node lasts, until somebody has put it right, and how often. Ours.
_REPAIRS = {3600.0: 2, 4 * 3600.0: 4, 12 * 3600.0: 3, DAY: 1}
_SILENCES = {600.0: 5, 3600.0: 3, 4 * 3600.0: 2}

# What is behind links that are lost when a gang starts, which it survives.
GANG = "a gang's start"

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


class Rates(Struct, frozen=True):
    """How often, in a day.

    faults: of each node. decoys: of each node; lasts: seconds for which it is held against the node by who
    believes it. lemons: share of nodes with a bad cable, and how often that loses its link. bursts: starts of
    gangs in a fleet of FLEET nodes, each in one leaf, and the chance that a member loses its link once by it.
    shared: shared faults of such a fleet, by kind.
    """

    faults: float = 0.0043
    decoys: float = 1140 / FLEET
    lasts: float = 4 * 3600.0
    lemons: float = 0.002
    flaps: float = 3.0
    bursts: float = 24.0
    touched: float = 0.06
    shared: Mapping[str, float] = field(default_factory=lambda: _SHARED)


USUAL = Rates()


def background(fleet: Topology, rates: Rates, seconds: float, chance: Random) -> Iterator[Trouble]:
    """Troubles of nodes, one by one, for so many seconds."""
    many = len(fleet.nodes)

    def moments(a_day: float) -> Iterator[float]:
        at = 0.0
        while a_day > 0 and (at := at + chance.expovariate(a_day / DAY)) < seconds:
            yield at

    for at in moments(rates.faults * many):
        yield _fault(at, chance.randrange(many), chance)
    for at in moments(rates.decoys * many):
        shape = _one_of(DECOYS, chance)
        yield Trouble(
            at, at + rates.lasts, chance.randrange(many), shape, chance.randrange(_SLOTS), "a decoy"
        )
    for lemon in chance.sample(range(many), round(rates.lemons * many)):
        slot = chance.randrange(_SLOTS)
        for at in moments(rates.flaps):
            yield Trouble(at, at + rates.lasts, lemon, "port-flap", slot, "a lemon")
    leaves = fleet.of_view("fabric", 2)
    for at in moments(rates.bursts * many / FLEET if leaves else 0.0):
        for node in fleet.domains[chance.choice(leaves)]:
            if chance.random() < rates.touched:
                when = at + chance.uniform(0.0, 60.0)
                yield Trouble(when, when + rates.lasts, node, "port-flap", 0, GANG)


def shared(fleet: Topology, rates: Rates, seconds: float, chance: Random) -> Iterator[Planted]:
    """Shared faults for so many seconds, those that there is a domain for."""
    for name, a_day in rates.shared.items():
        at = 0.0
        often = a_day * len(fleet.nodes) / FLEET / DAY
        while often and (at := at + chance.expovariate(often)) < seconds:
            if KINDS[name].fits(fleet):
                yield planted(name, fleet, at, chance)


def _fault(at: float, node: int, chance: Random) -> Trouble:
    shape = _one_of(FAULTS, chance)
    lasts = _one_of(_SILENCES if shape == "silent" else _REPAIRS, chance)
    return Trouble(at, at + lasts, node, shape, chance.randrange(_SLOTS))


def _one_of(shares: Mapping[_T, float], chance: Random) -> _T:
    return chance.choices(list(shares), list(shares.values()))[0]
