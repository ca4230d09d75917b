"""Scenarios of a simulated fleet: hard histories, and the outcome that operators want. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

from msgspec import Struct

from nodeguard.model.diagnosis import STALE_CHECK
from nodeguard.simulate.fault_kinds import NODE_DOWN
from nodeguard.simulate.faults import Fault, NodeChange
from nodeguard.simulate.fleet_topology import SimulatedTopology, TopologySizes

_MINUTE, _HOUR = 60.0, 3600.0

# Normal seconds before the first event: enough for the first plan.
_START = 600.0

# Seconds after the end for which a fault lasts that is not repaired.
_LATER = _HOUR

# The domain of most scenarios, and the checks of a short link loss.
_LEAF = "fabric/p0/leaf1"
_FLAP_CHECKS = ("port-flap", "port-link-downed")

# The job of a gang.
_GANG = "training/gang"


class Expectation(Struct, frozen=True):
    """The outcome that operators want; the domains stay degraded, and the nodes quarantined, until the end.

    degraded: domains, without parts of them. recovered: domains that recover before the end; any_recovered:
    whether any may. quarantined: nodes by name. others: number of further nodes that the budget may
    quarantine one by one. may_suppress: checks that are rightly suppressed.
    """

    degraded: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    others: int = 0
    may_suppress: tuple[str, ...] = ()
    any_recovered: bool = False


class Events(Struct, frozen=True):
    """The events of a scenario. until: its end. changes: of Nodes by operators."""

    faults: tuple[Fault, ...]
    expected: Expectation
    until: float
    changes: tuple[NodeChange, ...] = ()


class Scenario(Struct, frozen=True):
    """A scenario. summary: the events, as text. nodes, sizes: of its fleet. events: returns them."""

    summary: str
    nodes: int
    events: Callable[[SimulatedTopology, Random], Events]
    sizes: TopologySizes | None = None


def node_names(fleet: SimulatedTopology, nodes: Iterable[int]) -> tuple[str, ...]:
    """Return the names of nodes, by index."""
    return tuple(fleet.nodes[node].name for node in sorted(nodes))


def _down(fleet: SimulatedTopology, domain: str, start: float, end: float, chance: Random) -> list[Fault]:
    """Return link failures of all nodes of a domain, which begin within five seconds."""
    return [
        Fault(start + chance.uniform(0.0, 5.0), end, node, "port-down", 0, domain)
        for node in fleet.domains[domain]
    ]


def _leaf_down(fleet: SimulatedTopology, chance: Random) -> Events:
    """A leaf fails."""
    until = _START + _HOUR
    faults = _down(fleet, _LEAF, _START, until + _LATER, chance)
    return Events(tuple(faults), Expectation(degraded=(_LEAF,)), until)


def _half_down(fleet: SimulatedTopology, chance: Random) -> Events:
    """One of two leaves fails."""
    return _wide_domain_down(fleet, _LEAF, chance)


def _pod_down(fleet: SimulatedTopology, chance: Random) -> Events:
    """All leaves below a spine fail."""
    return _wide_domain_down(fleet, "fabric/p0", chance)


def _wide_domain_down(fleet: SimulatedTopology, domain: str, chance: Random) -> Events:
    """A domain of half the fleet fails. Its mark exceeds the default budget of degraded domains, a quarter of
    the fleet. Then that of single nodes applies: a twentieth, at least one node.
    """
    until = _START + _HOUR
    faults = _down(fleet, domain, _START, until + _LATER, chance)
    others = max(1, len(fleet.nodes) // 20)
    return Events(tuple(faults), Expectation(degraded=(domain,), others=others), until)


def _second_event(fleet: SimulatedTopology, chance: Random) -> Events:
    """Links of a scattered job flap; three hours later those of a leaf."""
    until = _START + 3 * _HOUR + 45 * _MINUTE
    job = chance.sample(range(len(fleet.nodes)), 48)
    flaps = [(node, _START + chance.uniform(0.0, _MINUTE), "a job") for node in job]
    for node in fleet.domains[_LEAF]:
        times = (_START + 3 * _HOUR + chance.uniform(0.0, 30 * _MINUTE) for _ in range(2))
        flaps += [(node, at, _LEAF) for at in times]
    faults = tuple(Fault(at, until + _LATER, node, "port-flap", 0, cause) for node, at, cause in flaps)
    return Events(faults, Expectation(degraded=(_LEAF,), may_suppress=_FLAP_CHECKS), until)


def _in_different_racks(
    fleet: SimulatedTopology, nodes: Iterable[int], count: int, chance: Random
) -> list[int]:
    """Return some of the nodes, at most one of each rack, so that no budget of a rack binds."""
    members = set(nodes)
    racks = [sorted(members & set(fleet.domains[rack])) for rack in fleet.domains_at("rack", 2)]
    return [chance.choice(rack) for rack in chance.sample([rack for rack in racks if rack], count)]


def _bad_batch(fleet: SimulatedTopology, chance: Random) -> Events:
    """Twelve nodes far from each other lose a GPU within an hour."""
    until = _START + 3 * _HOUR
    nodes = _in_different_racks(fleet, range(len(fleet.nodes)), 12, chance)
    faults = [Fault(_START + chance.uniform(0.0, _HOUR), until + _LATER, node, "gpu-lost") for node in nodes]
    return Events(tuple(faults), Expectation(quarantined=node_names(fleet, nodes)), until)


def _site_power_return(fleet: SimulatedTopology, chance: Random) -> Events:
    """All power fails for twenty minutes; twelve nodes return without one of their GPUs. While every node is
    down, no diagnosis of a domain is right or wrong.
    """
    back, until = _START + 20 * _MINUTE, _START + 4 * _HOUR
    all_nodes = range(len(fleet.nodes))
    nodes = _in_different_racks(fleet, all_nodes, 12, chance)
    down = [
        Fault(_START + chance.uniform(0.0, 3.0), back + chance.uniform(0.0, _MINUTE), node, NODE_DOWN)
        for node in all_nodes
    ]
    lost = [Fault(back + 2 * _MINUTE, until + _LATER, node, "gpu-lost") for node in nodes]
    expected = Expectation(
        quarantined=node_names(fleet, nodes), may_suppress=(STALE_CHECK,), any_recovered=True
    )
    return Events((*down, *lost), expected, until)


def _feed_power_return(fleet: SimulatedTopology, chance: Random) -> Events:
    """Two feeds fail for twenty minutes; twelve of their nodes return without one of their GPUs."""
    feeds, back, until = ("power/feed1", "power/feed5"), _START + 20 * _MINUTE, _START + 4 * _HOUR
    members = [node for feed in feeds for node in fleet.domains[feed]]
    nodes = _in_different_racks(fleet, members, 12, chance)
    down = [
        Fault(_START + chance.uniform(0.0, 3.0), back + chance.uniform(0.0, _MINUTE), node, NODE_DOWN)
        for node in members
    ]
    lost = [Fault(back + 2 * _MINUTE, until + _LATER, node, "gpu-lost") for node in nodes]
    return Events((*down, *lost), Expectation(recovered=feeds, quarantined=node_names(fleet, nodes)), until)


def _flapping_leaf(fleet: SimulatedTopology, chance: Random) -> Events:
    """Each link of a leaf is lost for less than a reading, again and again: only its counter shows that."""
    return _recurring(fleet, "port-flap", (5 * _MINUTE, 15 * _MINUTE), chance)


def _recurring_outages(fleet: SimulatedTopology, chance: Random) -> Events:
    """Each link of a leaf is down for two minutes, again and again."""
    return _recurring(fleet, "port-down", (20 * _MINUTE, 40 * _MINUTE), chance)


def _recurring(fleet: SimulatedTopology, kind: str, pause: tuple[float, float], chance: Random) -> Events:
    """Return faults of a leaf for four hours. pause: seconds from one to the next, at least and at most."""
    until, faults = _START + 4 * _HOUR, list[Fault]()
    for node in fleet.domains[_LEAF]:
        at = _START + chance.uniform(0.0, 20.0)
        while at < until:
            faults.append(Fault(at, at + 2 * _MINUTE, node, kind, 0, _LEAF))
            at += chance.uniform(*pause)
    expected = Expectation(degraded=(_LEAF,))
    return Events(tuple(faults), expected, until)


def _cordoned_leaf(fleet: SimulatedTopology, chance: Random) -> Events:
    """A leaf fails, and an operator cordons its nodes ten minutes later."""
    until = _START + 4 * _HOUR
    changes = tuple(
        NodeChange(_START + 10 * _MINUTE + 0.5 * index, node, unschedulable=True)
        for index, node in enumerate(fleet.domains[_LEAF])
    )
    faults = _down(fleet, _LEAF, _START, until + _LATER, chance)
    return Events(tuple(faults), Expectation(degraded=(_LEAF,)), until, changes)


def _maintenance(fleet: SimulatedTopology, chance: Random) -> Events:
    """An operator announces maintenance of a leaf, which is off for half an hour, and ends it."""
    off, on, end = (_START + minutes * _MINUTE for minutes in (5.0, 35.0, 40.0))
    changes = [
        change
        for node in fleet.domains[_LEAF]
        for change in (
            NodeChange(_START, node, unschedulable=True, maintenance="switch replaced"),
            NodeChange(end, node),
        )
    ]
    faults = _down(fleet, _LEAF, off, on, chance)
    return Events(tuple(faults), Expectation(), end + _HOUR, tuple(changes))


def _gang_start(fleet: SimulatedTopology, chance: Random) -> Events:
    """A tenth of the 512 adjacent nodes of a gang lose a link while it starts."""
    until = _START + _HOUR
    nodes = chance.sample(range(len(fleet.nodes))[256:768], 51)
    faults = [
        Fault(
            _START + chance.uniform(0.0, _MINUTE), until + _LATER, node, "port-flap", 0, "a gang",
            _GANG, _START,
        )
        for node in nodes
    ]  # fmt: skip
    return Events(tuple(faults), Expectation(), until)


_SMALL_LEAVES, _TWO_PODS = TopologySizes(leaf=4), TopologySizes(pod=64, leaf=8)

SCENARIOS: Mapping[str, Scenario] = {
    "half-fleet": Scenario("one of two leaves fails", 16, _half_down),
    "small-fleet": Scenario("one of four leaves fails", 16, _leaf_down, _SMALL_LEAVES),
    "one-pod": Scenario("a leaf of the only pod fails", 64, _leaf_down),
    "two-pods": Scenario("a spine with half of the fleet below it fails", 128, _pod_down, _TWO_PODS),
    "second-event": Scenario("links of a scattered job flap; 3 h later those of a leaf", 512, _second_event),
    "bad-batch": Scenario("12 nodes lose a GPU within an hour", 512, _bad_batch),
    "site-power-return": Scenario(
        "all power fails for 20 min; 12 nodes return without a GPU", 512, _site_power_return
    ),
    "feed-power-return": Scenario(
        "two feeds fail for 20 min; 12 nodes return without a GPU", 1024, _feed_power_return
    ),
    "flapping-leaf": Scenario("the links of a leaf flap for 4 h", 64, _flapping_leaf),
    "recurring-outages": Scenario(
        "the links of a leaf are down every half hour for 4 h", 64, _recurring_outages
    ),
    "cordoned-leaf": Scenario("a leaf fails, and an operator cordons its nodes", 256, _cordoned_leaf),
    "maintenance": Scenario("a leaf is off during announced maintenance", 256, _maintenance),
    "gang-start": Scenario("a tenth of 512 adjacent nodes flap as a gang starts", 2048, _gang_start),
}
