"""What a reading can be held against on its own node: peers, and the best it has read before. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf
from statistics import median

from nodeguard.derive.world import World
from nodeguard.model.signal import Scalar
from nodeguard.model.slot import kind

# Peers speak where more than half of them agree, and where they are at least so many.
_PEERS = 2
_PEERS_FOR_MEDIAN = 3

# By slot and signal, the best ever read.
Inventory = Mapping[str, Mapping[str, float]]


def peers(world: World, wanted: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each slot, what its peers read: `SIGNAL~peers`.

    wanted: signal → its kind. For a gauge it is the median of the peers, at least three; else the value that
    more than half of them, and at least two, share. Peers are slots of one kind and one make.
    """
    groups: dict[tuple[str, ...], list[tuple[str, Scalar]]] = {}
    for slot, signals in world.signals.items():
        what = kind(slot)
        for signal in wanted.keys() & signals.keys():
            make = (str(signals.get(name, "")) for name in _MAKES.get(what, ()) if name != signal)
            groups.setdefault((signal, what, *make), []).append((slot, signals[signal]))
    for (signal, *_), values in groups.items():
        if len(values) > _PEERS:
            told = _median(values) if wanted[signal] == "gauge" else _majority(values)
            for slot, value in told:
                yield slot, {f"{signal}~peers": value}


# What makes slots of one kind alike; a GPU that drives a screen is none beside those that compute.
_MAKES = {
    "gpu": ("pci.class", "gpu.name"),
    "pci": ("pci.class", "pci.vendor", "pci.device"),
    "port": ("port.link_layer", "port.device_type", "port.board"),
}


def _majority(values: list[tuple[str, Scalar]]) -> Iterator[tuple[str, Scalar]]:
    (most, times), *rest = Counter(value for _, value in values).most_common(2)
    if rest and rest[0][1] == times:
        return  # two camps of one size: neither is the other's measure
    others = len(values) - 1
    for slot, value in values:
        agreeing = times - (value == most)
        if agreeing >= _PEERS and agreeing * 2 > others:
            yield slot, most


def _median(values: list[tuple[str, Scalar]]) -> Iterator[tuple[str, Scalar]]:
    if len(values) <= _PEERS_FOR_MEDIAN:
        return
    numbers = [(slot, float(value)) for slot, value in values if not isinstance(value, str)]
    for slot, _ in numbers:
        yield slot, median(value for other, value in numbers if other != slot)


def inventory(world: World, wanted: frozenset[str], known: Inventory) -> dict[str, dict[str, float]]:
    """The last good inventory after this look: by slot and signal, the highest number ever read.

    wanted: signals that belong in it. known: the inventory before.
    """
    after = {slot: dict(row) for slot, row in known.items()}
    for slot, signals in world.signals.items():
        row = after.get(slot, {})
        for name in wanted & signals.keys():
            value = signals[name]
            if not isinstance(value, str):
                row[name] = max(float(value), row.get(name, -inf))
        if row:
            after[slot] = row
    return after


def before(world: World, known: Inventory, now: Inventory) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each slot, its best before this look, or now where this is the first one: `SIGNAL~inventory`."""
    for slot in world.signals:
        row = known.get(slot) or now.get(slot)
        if row:
            yield slot, {f"{name}~inventory": value for name, value in row.items()}
