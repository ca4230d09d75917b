"""What a reading can be held against on its own node: peers, and the best it has read before. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import median

from nodeguard.derive.world import World
from nodeguard.model.signal import Scalar
from nodeguard.model.slot import kind

# Peers speak where more than half of them agree, and where they are at least so many.
_PEERS = 2
_PEERS_FOR_MEDIAN = 3


def peers(world: World, wanted: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each slot, what its peers read: `SIGNAL~peers`.

    wanted: signal → its kind. For a gauge it is the median of the peers, at least three; else the value that
    more than half of them, and at least two, share. Peers are slots of one kind; ports, of one link layer
    and make, too.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for slot, signals in world.signals.items():
        make = (kind(slot), *(str(signals.get(name, "")) for name in _MAKE))
        groups.setdefault(make, []).append(slot)
    for slots in groups.values():
        if len(slots) <= _PEERS:
            continue
        for signal, what in wanted.items():
            values = [(slot, world.of(slot)[signal]) for slot in slots if signal in world.of(slot)]
            if len(values) <= _PEERS:
                continue
            for slot, value in _median(values) if what == "gauge" else _majority(values):
                yield slot, {f"{signal}~peers": value}


_MAKE = ("port.link_layer", "port.device_type", "port.board")


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


def best(known: float | None, value: Scalar | None) -> float | None:
    """The best of what was known and what is read now: the higher number."""
    if value is None or isinstance(value, str):
        return known
    return float(value) if known is None else max(known, float(value))
