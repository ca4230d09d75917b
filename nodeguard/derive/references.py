"""What a reading can be held against on its own node: peers, and the best it has read before. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from statistics import median

from msgspec import Struct

from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.check import Check, Compare
from nodeguard.model.signal import Scalar
from nodeguard.model.target import parent_target, target_kind

# Peers speak where more than half of them agree, and where they are at least so many.
_PEERS = 2
_PEERS_FOR_MEDIAN = 3

# Slots that are not there any more and that the inventory remembers; mounts that come and go would fill it.
_SLOTS = 256


class BestReadings(Struct, frozen=True, array_like=True):
    """The best that was ever read of a slot, by signal. part: what occupied it, empty where not known."""

    component: str
    values: dict[str, float]


_NONE = BestReadings("", {})


def _same(slot: str) -> str:
    return slot


# By slot.
Inventory = Mapping[str, BestReadings]


def add_peer_references(latest: LatestReadings, wanted: Mapping[str, str]) -> None:
    """Add to each slot what its peers read: `SIGNAL~peers`.

    wanted: signal → its kind. For a gauge it is the median of the peers, at least three; else the value that
    more than half of them, and at least two, share. Peers are slots of one kind and one make. A peer that
    could not be read agrees with nobody.
    """
    groups: dict[tuple[str, ...], list[tuple[str, Scalar]]] = {}
    names = frozenset(wanted)
    for slot, signals in latest.values():
        for signal in () if names.isdisjoint(signals) else names & signals.keys():
            groups.setdefault((signal, *_make(signal, slot, signals)), []).append((slot, signals[signal]))
    unread: Counter[tuple[str, ...]] = Counter()
    for slot, reasons in latest.unread():
        for signal in names & reasons.keys():
            unread[(signal, *_make(signal, slot, latest.read_signals(slot)))] += 1
    for group, values in groups.items():
        if len(values) > _PEERS:
            common = _median if wanted[group[0]] == "gauge" else _majority
            for slot, value in common(values, unread[group]):
                latest.add(slot, f"{group[0]}~peers", value)


def _make(signal: str, slot: str, signals: Mapping[str, Scalar]) -> tuple[str, ...]:
    """What slots must have in common to be peers for a signal, which itself may be a part of the make."""
    what = target_kind(slot)
    return (what, *(str(signals.get(name, "")) for name in _MAKES.get(what, ()) if name != signal))


# What makes slots of one kind alike; a GPU that drives a screen is none beside those that compute.
_MAKES = {
    "gpu": ("pci.class", "gpu.name"),
    "pci": ("pci.class", "pci.vendor", "pci.device"),
    "port": ("port.link_layer", "port.device_type", "port.board"),
}


def _majority(values: list[tuple[str, Scalar]], unread: int) -> Iterator[tuple[str, Scalar]]:
    (most, times), *rest = Counter(value for _, value in values).most_common(2)
    if rest and rest[0][1] == times:
        return  # two camps of one size: neither is a measure for the other
    others = len(values) - 1 + unread
    for slot, value in values:
        agreeing = times - (value == most)
        if agreeing >= _PEERS and agreeing * 2 > others:
            yield slot, most


def _median(values: list[tuple[str, Scalar]], unread: int) -> Iterator[tuple[str, Scalar]]:
    if len(values) <= max(_PEERS_FOR_MEDIAN, unread):
        return
    numbers = [(slot, float(value)) for slot, value in values if not isinstance(value, str)]
    for slot, _ in numbers:
        yield slot, median(value for other, value in numbers if other != slot)


def update_inventory(
    latest: LatestReadings, wanted: frozenset[str], known: Inventory
) -> dict[str, BestReadings]:
    """Return the last good inventory after this look: the highest number ever read of each slot's component.

    Nothing is learned of a kind of slot in a look in which any source could not list all slots of that kind,
    nor of a slot that a source could not read: a thing under two names would count twice.

    wanted: signals that belong in it. known: the inventory before. Slots that are not there any more are
    forgotten where they grow too many.
    """
    after = dict(known)
    there = set()
    for slot, signals in latest.values():
        there.add(slot)
        if (wanted.isdisjoint(signals) and slot not in known) or not latest.is_fully_read(slot):
            continue
        now = {name: float(signals[name]) for name in wanted & signals.keys() if _is_number(signals[name])}
        old = _of_occupant(latest, slot, known)
        if now or (slot in known and old is _NONE):
            best = {
                **old.values,
                **{name: max(value, old.values.get(name, -inf)) for name, value in now.items()},
            }
            after[slot] = BestReadings(_occupant(latest, slot) or old.component, best)
    gone = [slot for slot in after if slot not in there]
    for slot in gone[: max(0, len(gone) - _SLOTS)]:
        del after[slot]
    return after


def _is_number(value: Scalar) -> bool:
    return not isinstance(value, str)


def _occupant(latest: LatestReadings, slot: str) -> str:
    """What occupies a slot, empty where that is not known: a component, or the device of a file system."""
    return latest.component_id(slot) or str(latest.read_signals(slot).get("fs.device", ""))


def _of_occupant(latest: LatestReadings, slot: str, known: Inventory) -> BestReadings:
    """What is known of what occupies a slot now: nothing of what did before."""
    row, part = known.get(slot, _NONE), _occupant(latest, slot)
    return _NONE if part and row.component and part != row.component else row


# What is derived from the inventory by itself: the signal of which slot, by what is derived.
_RESTS_ON = {"port.expected_by": ("port.up", _same), "nvlink.down": ("gpu.nvlink.active", parent_target)}


def forget_inventory(known: Inventory, check: Check, slots: Iterable[str]) -> dict[str, BestReadings]:
    """The inventory without what a check on some slots is held against: what is read there next takes its
    place, as somebody took a part out for good.
    """
    after = dict(known)
    for place, signal in ((to(slot), signal) for slot in slots for signal, to in _references(check)):
        row = after.get(place, _NONE)
        if signal in row.values:
            values = {name: value for name, value in row.values.items() if name != signal}
            after[place] = BestReadings(row.component, values)
    return after


def _references(check: Check) -> Iterator[tuple[str, Callable[[str], str]]]:
    for leaf in check.leaves():
        if not isinstance(leaf, Compare):
            continue
        if leaf.than is not None and leaf.than.of == "inventory":
            yield leaf.than.name, _same
        if leaf.signal in _RESTS_ON:
            yield _RESTS_ON[leaf.signal]


def add_inventory_references(latest: LatestReadings, known: Inventory, now: Inventory) -> None:
    """Add to each slot its best before this look, or now where this is the first one: `SIGNAL~inventory`."""
    for slot in now:
        if latest.has(slot):
            row = _of_occupant(latest, slot, known).values or now[slot].values
            for name, value in row.items():
                latest.add(slot, f"{name}~inventory", value)


def best_values(latest: LatestReadings, known: Inventory, signal: str) -> dict[str, float]:
    """Return by slot the best that was ever read of one signal of what occupies it now."""
    rows = {
        slot: _of_occupant(latest, slot, known).values for slot, row in known.items() if signal in row.values
    }
    return {slot: row[signal] for slot, row in rows.items() if row}
