"""Faults of what nodes share: which nodes each of them shows on, how, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random

from msgspec import Struct

from nodeguard.model.blame import SILENT
from nodeguard.simulate.shapes import UNHEARD
from nodeguard.simulate.topology import Topology
from nodeguard.simulate.troubles import Trouble

_MINUTE, _HOUR = 60.0, 3600.0

# Seconds that a shared fault lasts on each member: any of these.
_LASTS = (_HOUR, 2 * _HOUR, 3 * _HOUR)


class Planted(Struct, frozen=True):
    """A shared fault that is there from one moment to another, in seconds.

    kind: its name. domains: the paths that are to be blamed, none where none is; check: what the checks are
    about that are to be held instead, empty for none.
    """

    kind: str
    domains: tuple[str, ...]
    at: float
    until: float
    troubles: tuple[Trouble, ...]
    check: str = ""


# Troubles of the members of some domains, from the moment of the fault on.
_Shows = Callable[[str, tuple[int, ...], float, Random], Iterator[Trouble]]


class Kind(Struct, frozen=True):
    """A kind of shared fault. view, depth: of its domain, see Topology.of_view; view is empty for the whole
    fleet. shows: on which nodes, and when. times: of how many domains at once.
    """

    view: str
    depth: int
    shows: _Shows
    times: int = 1

    def fits(self, fleet: Topology) -> bool:
        """Whether a fleet has what it befalls."""
        return not self.view or len(_parents(fleet.of_view(self.view, self.depth))) >= self.times


def planted(name: str, fleet: Topology, at: float, chance: Random) -> Planted:
    """A fault of a kind, in a domain of its own choice."""
    kind = KINDS[name]
    if not kind.view:
        troubles = tuple(kind.shows("fleet/all", tuple(range(len(fleet.nodes))), at, chance))
        return Planted(name, (), at, max(one.until for one in troubles), troubles, SILENT)
    among = [path for path in fleet.of_view(kind.view, kind.depth) if len(fleet.domains[path]) >= _LEAST]
    chosen = [
        chance.choice([path for path in among if _parent(path) == parent])
        for parent in chance.sample(sorted(_parents(among)), kind.times)
    ]
    troubles = tuple(one for path in chosen for one in kind.shows(path, fleet.domains[path], at, chance))
    return Planted(name, tuple(chosen), at, max(one.until for one in troubles), troubles)


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

    def shows(path: str, nodes: tuple[int, ...], at: float, chance: Random) -> Iterator[Trouble]:
        many, lasts = max(3, round(chance.uniform(*share) * len(nodes))), chance.choice(_LASTS)
        for node in sorted(chance.sample(nodes, min(many, len(nodes)))):
            began = at + chance.uniform(0.0, within)
            yield Trouble(began, began + lasts, node, shape, 0, path)

    return shows


def _flapping(minutes: tuple[float, float], mean: float) -> _Shows:
    """Members lose their links now and then, a mean number of times each in so many minutes."""

    def shows(path: str, nodes: tuple[int, ...], at: float, chance: Random) -> Iterator[Trouble]:
        lasts = chance.uniform(*minutes) * _MINUTE
        for node in nodes:
            when = at
            while (when := when + chance.expovariate(mean / lasts)) < at + lasts:
                yield Trouble(when, when + _FLAP, node, "port-flap", 0, path)

    return shows


# Seconds for which a lost link is held against a node by who believes it.
_FLAP = 4 * _HOUR


def _heating(minutes: tuple[float, float], share: tuple[float, float]) -> _Shows:
    """One node after the other gets too hot."""

    def shows(path: str, nodes: tuple[int, ...], at: float, chance: Random) -> Iterator[Trouble]:
        within = chance.uniform(*minutes) * _MINUTE
        yield from _some("overheated", share, within)(path, nodes, at, chance)

    return shows


# Which members show a fault, and how fast, where the study that they follow does not say it, is ours.
KINDS: Mapping[str, Kind] = {
    "leaf dead": Kind("fabric", 2, _all("port-down", 5.0)),
    "leaf partial": Kind("fabric", 2, _some("port-down", (0.12, 0.5), 2 * _MINUTE)),
    "leaf degraded": Kind("fabric", 2, _flapping((10.0, 120.0), 1.5)),
    "spine degraded": Kind("fabric", 1, _flapping((10.0, 30.0), 0.6)),
    "rack power": Kind("power", 2, _all("silent", 3.0)),
    "feed loss": Kind("power", 1, _some("silent", (0.7, 1.0), 3.0)),
    "pod management net": Kind("fabric", 1, _some(UNHEARD, (0.8, 1.0), 5.0)),
    "rack cooling": Kind("rack", 2, _heating((10.0, 40.0), (0.6, 1.0))),
    "row cooling": Kind("rack", 1, _heating((10.0, 30.0), (0.5, 1.0))),
    "NVLink tray": Kind("nvlink", 1, _all("nvlink-down", 30.0)),
    "two leaves at once": Kind("fabric", 2, _all("port-down", 5.0), 2),
    "observer partition": Kind("", 0, _some(UNHEARD, (0.6, 1.0), 5.0)),
}
