"""References for readings on the same node: the values of peers, and the inventory of best values. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf

from msgspec import Struct

from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.check import Check, Compare
from nodeguard.model.signal import Scalar
from nodeguard.model.target import parent_target, target_kind

# Peers give a reference where more than half of them agree, and at least this number.
_MIN_PEERS = 2
_MIN_PEERS_FOR_MEDIAN = 3

# Targets that are gone and stay in the inventory: short-lived mounts would fill it.
_MAX_GONE = 256


class BestReadings(Struct, frozen=True, array_like=True):
    """The best value ever read of each signal of a target. component: or device; empty where unknown."""

    component: str
    values: dict[str, float]


_NONE = BestReadings("", {})


def _same(target: str) -> str:
    return target


# By target.
Inventory = Mapping[str, BestReadings]


def add_peer_references(latest: LatestReadings, wanted: Mapping[str, str]) -> None:
    """Add the reference `SIGNAL~peers` to each target.

    wanted: kind of each signal. For a gauge the reference is the median of at least three peers; else the
    value of more than half of them and at least two. Peers are targets of one kind and one make. A peer that
    could not be read counts as a different value.
    """
    groups: dict[tuple[str, ...], list[tuple[str, Scalar]]] = {}
    names = frozenset(wanted)
    for target, signals in latest.values():
        for signal in () if names.isdisjoint(signals) else names & signals.keys():
            groups.setdefault((signal, *_make(signal, target, signals)), []).append((target, signals[signal]))
    unread: Counter[tuple[str, ...]] = Counter()
    for target, reasons in latest.unread():
        for signal in names & reasons.keys():
            unread[(signal, *_make(signal, target, latest.read_signals(target)))] += 1
    for group, values in groups.items():
        if len(values) > _MIN_PEERS:
            common = _median if wanted[group[0]] == "gauge" else _majority
            for target, value in common(values, unread[group]):
                latest.add(target, f"{group[0]}~peers", value)


def _make(signal: str, target: str, signals: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Return the make of a target: the properties that its peers share, except the compared signal."""
    kind_name = target_kind(target)
    return (kind_name, *(str(signals.get(name, "")) for name in _MAKES.get(kind_name, ()) if name != signal))


# Signals that make targets of one kind peers; a GPU for a display is no peer of those that compute.
_MAKES = {
    "gpu": ("pci.class", "gpu.name"),
    "pci": ("pci.class", "pci.vendor", "pci.device"),
    "port": ("port.link_layer", "port.device_type", "port.board"),
}


def _majority(values: list[tuple[str, Scalar]], unread: int) -> Iterator[tuple[str, Scalar]]:
    (most, times), *rest = Counter(value for _, value in values).most_common(2)
    if rest and rest[0][1] == times:
        return  # two values are equally frequent: neither is the reference
    others = len(values) - 1 + unread
    for target, value in values:
        agreeing = times - (value == most)
        if agreeing >= _MIN_PEERS and agreeing * 2 > others:
            yield target, most


def _median(values: list[tuple[str, Scalar]], unread: int) -> Iterator[tuple[str, Scalar]]:
    if len(values) <= max(_MIN_PEERS_FOR_MEDIAN, unread):
        return
    numbers = [(target, float(value)) for target, value in values if not isinstance(value, str)]
    for target, _ in numbers:
        yield target, _middle(sorted(value for other, value in numbers if other != target))


def _middle(ordered: list[float]) -> float:
    """Return the median of ascending numbers. The module `statistics` costs memory and start time."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def update_inventory(
    latest: LatestReadings, wanted: frozenset[str], before: Inventory
) -> dict[str, BestReadings]:
    """Return the last good inventory after this round: the highest value ever read of each target's
    component.

    A target is skipped in a round in which a source could not read it or list all targets of its kind,
    because a component under two names would count twice.

    wanted: signals of the inventory. before: the inventory before. Targets that are gone are dropped beyond
    _MAX_GONE.
    """
    after = dict(before)
    present = set()
    for target, signals in latest.values():
        present.add(target)
        if (wanted.isdisjoint(signals) and target not in before) or not latest.is_fully_read(target):
            continue
        now = {name: float(signals[name]) for name in wanted & signals.keys() if _is_number(signals[name])}
        old = _of_present_component(latest, target, before)
        if now or (target in before and old is _NONE):
            best = {
                **old.values,
                **{name: max(value, old.values.get(name, -inf)) for name, value in now.items()},
            }
            after[target] = BestReadings(_component(latest, target) or old.component, best)
    gone = [target for target in after if target not in present]
    for target in gone[: max(0, len(gone) - _MAX_GONE)]:
        del after[target]
    return after


def _is_number(value: Scalar) -> bool:
    return not isinstance(value, str)


def _component(latest: LatestReadings, target: str) -> str:
    """Return the component in a location, or the device of a file system; empty where it is not before."""
    return latest.component_id(target) or str(latest.read_signals(target).get("fs.device", ""))


def _of_present_component(latest: LatestReadings, target: str, before: Inventory) -> BestReadings:
    """Return the inventory of the present component of a target, without that of an earlier one."""
    row, part = before.get(target, _NONE), _component(latest, target)
    return _NONE if part and row.component and part != row.component else row


# Signals that derive from the inventory: the inventory's signal, and the target that has it.
_DERIVED_FROM = {"port.expected_by": ("port.up", _same), "nvlink.down": ("gpu.nvlink.active", parent_target)}


def forget_inventory(before: Inventory, check: Check, targets: Iterable[str]) -> dict[str, BestReadings]:
    """Return the inventory without the references of a check on some targets.

    The next reading becomes the reference: an operator removed a component for good.
    """
    after = dict(before)
    for place, signal in ((to(target), signal) for target in targets for signal, to in _references(check)):
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
        if leaf.signal in _DERIVED_FROM:
            yield _DERIVED_FROM[leaf.signal]


def add_inventory_references(latest: LatestReadings, before: Inventory, now: Inventory) -> None:
    """Add the reference `SIGNAL~inventory`: the best value before this round, or now in the first one."""
    for target in now:
        if latest.has(target):
            row = _of_present_component(latest, target, before).values or now[target].values
            for name, value in row.items():
                latest.add(target, f"{name}~inventory", value)


def best_values(latest: LatestReadings, before: Inventory, signal: str) -> dict[str, float]:
    """Return by target the best value ever read of a signal of the present component."""
    rows = {
        target: _of_present_component(latest, target, before).values
        for target, row in before.items()
        if signal in row.values
    }
    return {target: row[signal] for target, row in rows.items() if row}
