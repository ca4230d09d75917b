"""Faults of what nodes share: which nodes each of them shows on, how, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random

from msgspec import Struct

from nodeguard.model.diagnosis import STALE_CHECK
from nodeguard.simulate.fault_kinds import UNREACHABLE
from nodeguard.simulate.faults import Fault
from nodeguard.simulate.fleet_topology import SimulatedTopology

_MINUTE, _HOUR = 60.0, 3600.0

# Seconds that a shared fault lasts on each member: any of these.
_LASTS = (_HOUR, 2 * _HOUR, 3 * _HOUR)


class SharedFault(Struct, frozen=True):
    """A shared fault that is there from one moment to another, in seconds.

    kind: its name. domains: the paths that are to be blamed, none where none is; check: what the checks are
    about that are to be held instead, empty for none.
    """

    kind: str
    domains: tuple[str, ...]
    start: float
    end: float
    faults: tuple[Fault, ...]
    check: str = ""


# Troubles of the members of some domains, from the moment of the fault on.
_Shows = Callable[[str, tuple[int, ...], float, Random], Iterator[Fault]]


class SharedFaultKind(Struct, frozen=True):
    """A kind of shared fault. view, depth: of its domain, see Topology.of_view; view is empty for the whole
    fleet. shows: on which nodes, and when. times: of how many domains at once.
    """

    topology: str
    depth: int
    member_faults: _Shows
    count: int = 1

    def fits(self, fleet: SimulatedTopology) -> bool:
        """Whether a fleet has what it befalls."""
        return not self.topology or len(_parents(fleet.domains_at(self.topology, self.depth))) >= self.count


def make_shared_fault(name: str, fleet: SimulatedTopology, at: float, chance: Random) -> SharedFault:
    """A fault of a kind, in a domain of its own choice."""
    kind = SHARED_FAULT_KINDS[name]
    if not kind.topology:
        troubles = tuple(kind.member_faults("fleet/all", tuple(range(len(fleet.nodes))), at, chance))
        return SharedFault(name, (), at, max(one.end for one in troubles), troubles, STALE_CHECK)
    among = [
        path for path in fleet.domains_at(kind.topology, kind.depth) if len(fleet.domains[path]) >= _LEAST
    ]
    chosen = [
        chance.choice([path for path in among if _parent(path) == parent])
        for parent in chance.sample(sorted(_parents(among)), kind.count)
    ]
    troubles = tuple(
        one for path in chosen for one in kind.member_faults(path, fleet.domains[path], at, chance)
    )
    return SharedFault(name, tuple(chosen), at, max(one.end for one in troubles), troubles)


# Domains that are much smaller than others of their kind, as the last ones of a fleet may be, are left alone.
_LEAST = 8


def _parent(path: str) -> str:
    return path.rpartition("/")[0] if path.count("/") > 1 else path


def _parents(paths: Iterable[str]) -> set[str]:
    return {_parent(path) for path in paths}


def _all(shape: str, within: float) -> _Shows:
    """All members, within so many seconds."""
    return _some(shape, (1.0, 1.0), within)


def _some(shape: str, share: tuple[float, float], within: float) -> _Shows:
    """A share of the members, within so many seconds; at least three, as fewer are no shared fault."""

    def shows(path: str, nodes: tuple[int, ...], at: float, chance: Random) -> Iterator[Fault]:
        many, lasts = max(3, round(chance.uniform(*share) * len(nodes))), chance.choice(_LASTS)
        for node in sorted(chance.sample(nodes, min(many, len(nodes)))):
            began = at + chance.uniform(0.0, within)
            yield Fault(began, began + lasts, node, shape, 0, path)

    return shows


def _flapping(minutes: tuple[float, float], mean: float) -> _Shows:
    """Members lose their links now and then, a mean number of times each in so many minutes."""

    def shows(path: str, nodes: tuple[int, ...], at: float, chance: Random) -> Iterator[Fault]:
        lasts = chance.uniform(*minutes) * _MINUTE
        for node in nodes:
            when = at
            while (when := when + chance.expovariate(mean / lasts)) < at + lasts:
                yield Fault(when, when + _FLAP, node, "port-flap", 0, path)

    return shows


# Seconds for which a lost link is held against a node by who believes it.
_FLAP = 4 * _HOUR


def _heating(minutes: tuple[float, float], share: tuple[float, float]) -> _Shows:
    """One node after the other gets too hot."""

    def shows(path: str, nodes: tuple[int, ...], at: float, chance: Random) -> Iterator[Fault]:
        within = chance.uniform(*minutes) * _MINUTE
        yield from _some("overheated", share, within)(path, nodes, at, chance)

    return shows


# Which members show a fault, and how fast, where the study that they follow does not say it, is ours.
SHARED_FAULT_KINDS: Mapping[str, SharedFaultKind] = {
    "leaf dead": SharedFaultKind("fabric", 2, _all("port-down", 5.0)),
    "leaf partial": SharedFaultKind("fabric", 2, _some("port-down", (0.12, 0.5), 2 * _MINUTE)),
    "leaf degraded": SharedFaultKind("fabric", 2, _flapping((10.0, 120.0), 1.5)),
    "spine degraded": SharedFaultKind("fabric", 1, _flapping((10.0, 30.0), 0.6)),
    "rack power": SharedFaultKind("power", 2, _all("silent", 3.0)),
    "feed loss": SharedFaultKind("power", 1, _some("silent", (0.7, 1.0), 3.0)),
    "pod management net": SharedFaultKind("fabric", 1, _some(UNREACHABLE, (0.8, 1.0), 5.0)),
    "rack cooling": SharedFaultKind("rack", 2, _heating((10.0, 40.0), (0.6, 1.0))),
    "row cooling": SharedFaultKind("rack", 1, _heating((10.0, 30.0), (0.5, 1.0))),
    "NVLink tray": SharedFaultKind("nvlink", 1, _all("nvlink-down", 30.0)),
    "two leaves at once": SharedFaultKind("fabric", 2, _all("port-down", 5.0), 2),
    "observer partition": SharedFaultKind("", 0, _some(UNREACHABLE, (0.6, 1.0), 5.0)),
}
