"""Faults of shared hardware: the nodes on which each of them shows, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random

from msgspec import Struct

from nodeguard.model.diagnosis import STALE_CHECK
from nodeguard.simulate.fault_kinds import NODE_DOWN, UNREACHABLE
from nodeguard.simulate.faults import Fault
from nodeguard.simulate.fleet_topology import SimulatedTopology

_MINUTE, _HOUR = 60.0, 3600.0

# Seconds that a shared fault lasts on each member: one of these.
_DURATIONS = (_HOUR, 2 * _HOUR, 3 * _HOUR)


class SharedFault(Struct, frozen=True):
    """A fault of shared hardware. start, end: in seconds.

    kind: its name. domains: paths of the domains that should be diagnosed as degraded. faults: of its nodes.
    check: that should be suppressed instead, empty for none.
    """

    kind: str
    domains: tuple[str, ...]
    start: float
    end: float
    faults: tuple[Fault, ...]
    check: str = ""


# Returns the faults of a domain's members: from its path, its nodes, the start and a random source.
_MemberFaults = Callable[[str, tuple[int, ...], float, Random], Iterator[Fault]]


class SharedFaultKind(Struct, frozen=True):
    """A kind of shared fault. topology, depth: of its domain; the topology is empty for the whole fleet.
    member_faults: returns the faults of the members. count: of domains that fail together.
    """

    topology: str
    depth: int
    member_faults: _MemberFaults
    count: int = 1

    def fits(self, fleet: SimulatedTopology) -> bool:
        """Return whether a fleet has enough such domains. A fleet needs some nodes outside of a domain: else
        no diagnosis can distinguish its fault from a check with false alarms.
        """
        if not self.topology:
            return len(fleet.nodes) >= _MIN_NODES
        return len(_parents(self.candidates(fleet))) >= self.count

    def candidates(self, fleet: SimulatedTopology) -> list[str]:
        """Return the paths of the domains that may have such a fault."""
        return [
            path
            for path in fleet.domains_at(self.topology, self.depth)
            if _MIN_NODES <= len(fleet.domains[path]) < len(fleet.nodes)
        ]


def make_shared_fault(name: str, fleet: SimulatedTopology, start: float, chance: Random) -> SharedFault:
    """Return a fault of a kind that fits the fleet, in a random domain."""
    kind = SHARED_FAULT_KINDS[name]
    if not kind.topology:
        all_nodes = tuple(range(len(fleet.nodes)))
        faults = tuple(kind.member_faults("fleet/all", all_nodes, start, chance))
        return SharedFault(name, (), start, max(fault.end for fault in faults), faults, STALE_CHECK)
    candidates = kind.candidates(fleet)
    chosen = [
        chance.choice([path for path in candidates if _parent(path) == parent])
        for parent in chance.sample(sorted(_parents(candidates)), kind.count)
    ]
    faults = tuple(
        fault for path in chosen for fault in kind.member_faults(path, fleet.domains[path], start, chance)
    )
    return SharedFault(name, tuple(chosen), start, max(fault.end for fault in faults), faults)


# The last domains of a fleet may be much smaller than others: these never fail.
_MIN_NODES = 8


def _parent(path: str) -> str:
    return path.rpartition("/")[0] if path.count("/") > 1 else path


def _parents(paths: Iterable[str]) -> set[str]:
    return {_parent(path) for path in paths}


def _all(kind_name: str, within: float) -> _MemberFaults:
    """Faults of all members, which start within some seconds."""
    return _some(kind_name, (1.0, 1.0), within)


def _some(kind_name: str, share: tuple[float, float], within: float) -> _MemberFaults:
    """Faults of a share of the members, which start within some seconds; of at least three members."""

    def member_faults(path: str, nodes: tuple[int, ...], at: float, chance: Random) -> Iterator[Fault]:
        count, duration = max(3, round(chance.uniform(*share) * len(nodes))), chance.choice(_DURATIONS)
        for node in sorted(chance.sample(nodes, min(count, len(nodes)))):
            start = at + chance.uniform(0.0, within)
            yield Fault(start, start + duration, node, kind_name, 0, path)

    return member_faults


def _flapping(minutes: tuple[float, float], mean: float) -> _MemberFaults:
    """Short link losses of the members. mean: number of losses of each member in so many minutes."""

    def member_faults(path: str, nodes: tuple[int, ...], at: float, chance: Random) -> Iterator[Fault]:
        duration = chance.uniform(*minutes) * _MINUTE
        for node in nodes:
            start = at
            while (start := start + chance.expovariate(mean / duration)) < at + duration:
                yield Fault(start, start + _FLAP_SECONDS, node, "port-flap", 0, path)

    return member_faults


# Seconds for which a lost link counts as a fault of its node.
_FLAP_SECONDS = 4 * _HOUR


def _heating(minutes: tuple[float, float], share: tuple[float, float]) -> _MemberFaults:
    """Members overheat one after another."""

    def member_faults(path: str, nodes: tuple[int, ...], at: float, chance: Random) -> Iterator[Fault]:
        within = chance.uniform(*minutes) * _MINUTE
        yield from _some("overheated", share, within)(path, nodes, at, chance)

    return member_faults


# Shares of members and speeds are assumptions where the study that the kinds follow has none.
SHARED_FAULT_KINDS: Mapping[str, SharedFaultKind] = {
    "leaf dead": SharedFaultKind("fabric", 2, _all("port-down", 5.0)),
    "leaf partial": SharedFaultKind("fabric", 2, _some("port-down", (0.12, 0.5), 2 * _MINUTE)),
    "leaf degraded": SharedFaultKind("fabric", 2, _flapping((10.0, 120.0), 1.5)),
    "spine degraded": SharedFaultKind("fabric", 1, _flapping((10.0, 30.0), 0.6)),
    "rack power": SharedFaultKind("power", 2, _all(NODE_DOWN, 3.0)),
    "feed loss": SharedFaultKind("power", 1, _some(NODE_DOWN, (0.7, 1.0), 3.0)),
    "pod management net": SharedFaultKind("fabric", 1, _some(UNREACHABLE, (0.8, 1.0), 5.0)),
    "rack cooling": SharedFaultKind("rack", 2, _heating((10.0, 40.0), (0.6, 1.0))),
    "row cooling": SharedFaultKind("rack", 1, _heating((10.0, 30.0), (0.5, 1.0))),
    "NVLink tray": SharedFaultKind("nvlink", 1, _all("nvlink-down", 30.0)),
    "two leaves at once": SharedFaultKind("fabric", 2, _all("port-down", 5.0), 2),
    "observer partition": SharedFaultKind("", 0, _some(UNREACHABLE, (0.6, 1.0), 5.0)),
}
