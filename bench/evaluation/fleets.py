"""Fleets drawn at random: pods, leaves, racks, rows, feeds and NVLink domains, and their labels. Pure.

The ranges include published designs: a leaf of a rail-optimised pod serves 32 nodes (NVIDIA, DGX SuperPOD
reference architecture, H100: 32 nodes in a scalable unit, 4 nodes in a rack); a rack of an NVL72 has 18 nodes
of four GPUs, or 72 nodes of one GPU. The rest is assumed, wider than any of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import ceil, exp, log
from random import Random

from bench.evaluation.world import Fleet, Path

# Nodes of the fleets of each size class, from and to: the least fleet has 16.
SIZE_CLASSES: Mapping[int, tuple[int, int]] = {
    64: (16, 128),
    256: (129, 448),
    800: (449, 1400),
    2560: (1401, 4400),
    7500: (4401, 7500),
}

# Nodes of a leaf or rack, leaves of a pod, pods of a fleet; racks of a row and of a feed.
_LEAF, _LEAVES, _PODS = (2, 72), (2, 64), (1, 32)
_RACKS = (2, 20)

# Label keys by topology, coarsest first.
LABEL_KEYS: Mapping[str, tuple[str, ...]] = {
    "fabric": ("network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"),
    "rack": ("example.com/row", "example.com/rack"),
    "power": ("example.com/feed", "example.com/rack"),
    "nvlink": ("nvidia.com/gpu.clique",),
}

# Label values that name no domain.
_PLACEHOLDERS = ("unknown", "none", "default", "n/a", "0")


def log_uniform(low: float, high: float, chance: Random) -> float:
    """Return a number between two others, each order of magnitude with the same probability."""
    return exp(chance.uniform(log(low), log(high)))


def draw_fleet(size_class: int, chance: Random) -> Fleet:
    """Return a fleet of a size class."""
    count = round(log_uniform(*SIZE_CLASSES[size_class], chance))
    steps = _fabric(count, chance)
    racks = _racks(count, steps, chance)
    places = [
        {**fabric, **rack} for fabric, rack in zip(steps, racks, strict=True)
    ]  # of each node: the value of each label, as the hardware is connected
    labels = _labels(places, chance)
    muted = chance.uniform(0.0, 0.05) if chance.random() < 0.5 else 0.0
    return Fleet(
        size=count,
        true=_members(places),
        labelled=_members(labels),
        labels=tuple(labels),
        muted=frozenset(chance.sample(range(count), round(muted * count))),
    )


def _fabric(count: int, chance: Random) -> list[dict[str, str]]:
    """Return the pod and the leaf of each node."""
    least = max(_LEAF[0], ceil(count / (_PODS[1] * _LEAVES[1])))
    size = round(log_uniform(least, min(_LEAF[1], count // 2), chance))
    leaves = ceil(count / size)
    most = min(_LEAVES[1], max(_LEAVES[0], leaves))
    in_pod = round(log_uniform(max(_LEAVES[0], ceil(leaves / _PODS[1])), most, chance))
    spine, leaf = LABEL_KEYS["fabric"]
    return [
        {spine: f"p{index // size // in_pod}", leaf: f"leaf{index // size % in_pod}"}
        for index in range(count)
    ]


def _racks(count: int, fabric: list[dict[str, str]], chance: Random) -> list[dict[str, str]]:
    """Return row, rack, feed and NVLink domain of each node. In some fleets a rack is a leaf, and in some an
    NVLink domain is a rack: then two domains have the same members.
    """
    if chance.random() < 0.15:
        numbers = {place: number for number, place in enumerate(dict.fromkeys(map(_leaf_of, fabric)))}
        rack_of = [numbers[_leaf_of(place)] for place in fabric]
    else:
        size = round(log_uniform(_LEAF[0], min(_LEAF[1], count // 2), chance))
        offset = chance.randrange(size)
        rack_of = [(index + offset) // size for index in range(count)]
    in_row, on_feed = (round(log_uniform(*_RACKS, chance)) for _ in range(2))
    nvlink = chance.choice(("", "", "rack", "part", "some"))
    nvlink_racks = int(rack_of[-1] * chance.uniform(0.1, 0.6))
    part = chance.choice((2, 4, 8))
    (row, rack), (feed, _), (clique,) = (LABEL_KEYS[name] for name in ("rack", "power", "nvlink"))
    places = []
    for index, number in enumerate(rack_of):
        place = {row: f"row{number // in_row}", rack: f"r{number}", feed: f"feed{number // on_feed}"}
        if nvlink == "rack" or (nvlink == "some" and number < nvlink_racks):
            place[clique] = f"c{number}"
        elif nvlink == "part":
            place[clique] = f"c{index // part}"
        places.append(place)
    return places


def _leaf_of(place: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(place[key] for key in LABEL_KEYS["fabric"])


def _labels(places: list[dict[str, str]], chance: Random) -> list[dict[str, str]]:
    """Return the labels of the nodes: in a third of the fleets complete; else some are missing, wrong, or a
    placeholder. The shares are assumed. A topology may have no labels at all.
    """
    absent = [name for name in ("rack", "power", "nvlink") if chance.random() < 0.05]
    keys_absent = {key for name in absent for key in LABEL_KEYS[name]}
    labels = [{key: value for key, value in place.items() if key not in keys_absent} for place in places]
    if chance.random() >= 1 / 3:
        _damage(labels, places, chance)
    return labels


def _damage(labels: list[dict[str, str]], places: list[dict[str, str]], chance: Random) -> None:
    """Remove some labels, and replace others by those of another place or by a placeholder."""
    missing, wrong = chance.uniform(0.0, 0.1), chance.uniform(0.0, 0.03)
    unknown = chance.uniform(0.0, 0.15) if chance.random() < 0.3 else 0.0
    placeholder = chance.choice(_PLACEHOLDERS)
    for node in labels:
        drawn = chance.random()
        if drawn < missing:
            for key in LABEL_KEYS[chance.choice(tuple(LABEL_KEYS))]:
                node.pop(key, None)
        elif drawn < missing + wrong:
            keys = LABEL_KEYS[chance.choice(tuple(LABEL_KEYS))]
            other = chance.choice(places)
            node.update({key: other[key] for key in keys if key in node and key in other})
        elif drawn < missing + wrong + unknown:
            node.update(dict.fromkeys(node, placeholder))


def _members(labels: list[dict[str, str]]) -> dict[Path, tuple[int, ...]]:
    """Return the members of each domain that some labels name."""
    members: dict[Path, list[int]] = defaultdict(list)
    for index, node in enumerate(labels):
        for topology, keys in LABEL_KEYS.items():
            path = topology
            for key in keys:
                if key not in node:
                    break
                path = f"{path}/{node[key]}"
                members[path].append(index)
    return {path: tuple(nodes) for path, nodes in members.items()}
