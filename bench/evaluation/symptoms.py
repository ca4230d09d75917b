"""Symptoms: the checks that fire on a node with some faults, and when. Pure.

They follow the product's own judge (tests/bench/evaluation/test_symptoms.py compares them), so that an
episode does not run the judge for each node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import inf
from operator import attrgetter

from msgspec import Struct

from bench.evaluation.world import NodeFault

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0


class Symptom(Struct, frozen=True):
    """What a fault shows. check: fires after `hold` seconds; empty if the node stops reporting instead."""

    check: str
    hold: float = 0.0


SILENT_CHECK = "agent-silent"

# A link that is lost once, and a port that stays down: each counts one loss, the latter at its end.
_FLAP, _DOWN = "port-flap", "port-down"

SYMPTOMS: Mapping[str, Symptom] = {
    _DOWN: Symptom("port-down", 30.0),
    _FLAP: Symptom("port-link-downed"),
    "throttled": Symptom("gpu-thermal-slowdown", 60.0),
    "nvlink-down": Symptom("nvlink-down", 30.0),
    "gpu-lost": Symptom("gpu-lost"),
    "ecc-uncontained": Symptom("gpu-ecc-uncorrectable"),
    "row-remap-failed": Symptom("gpu-row-remap-failed"),
    "ecc-contained": Symptom("gpu-ecc-contained"),
    "adapter-dead": Symptom("nic-firmware-dead"),
    "library-mismatch": Symptom("driver-library-mismatch", 10 * _MINUTE),
    "node-down": Symptom(""),
    "unreachable": Symptom(""),
}

# A false alarm of a check: the symptom `false:CHECK`.
FALSE = "false:"

# Checks that the judge hides while a worse one of the same port fires.
_HIDDEN_BY: Mapping[str, tuple[str, ...]] = {
    "port-link-downed": ("port-down", "port-flap"),
    "port-flap": ("port-down",),
}

# port-flap fires at this number of losses within an hour.
_LOSSES = 3


def symptom_of(name: str) -> Symptom:
    """Return a symptom by its name, also that of a false alarm."""
    if name.startswith(FALSE):
        return Symptom(name.removeprefix(FALSE))
    return SYMPTOMS[name]


class Firing(Struct, frozen=True):
    """A check fires on a node from start to end; symptom: with which it began."""

    check: str
    symptom: str
    start: float
    end: float


_start = attrgetter("start")


def firings(faults: Iterable[NodeFault]) -> Iterator[Firing]:
    """Yield when which checks fire on one node with some faults, in the order of time for each check."""
    by_check: dict[str, list[Firing]] = defaultdict(list)
    losses: list[tuple[float, str]] = []
    for fault in faults:
        symptom = symptom_of(fault.symptom)
        start = fault.onset + symptom.hold
        if fault.symptom in {_FLAP, _DOWN}:
            losses.append((fault.onset if fault.symptom == _FLAP else fault.end, fault.symptom))
        if symptom.check and fault.symptom != _FLAP and start < fault.end:
            by_check[symptom.check].append(Firing(symptom.check, fault.symptom, start, fault.end))
    losses.sort()
    for index, (at, symptom_name) in enumerate(losses):
        by_check["port-link-downed"].append(Firing("port-link-downed", symptom_name, at, at + _DAY))
        first = losses[max(0, index - _LOSSES + 1)][0]
        if index >= _LOSSES - 1 and at - first < _HOUR:
            by_check["port-flap"].append(Firing("port-flap", symptom_name, at, first + _HOUR))
    merged = {check: _merged(rows) for check, rows in by_check.items()}
    for check, rows in merged.items():
        hiding = [firing for other in _HIDDEN_BY.get(check, ()) for firing in merged.get(other, ())]
        for firing in rows:
            yield from _visible(firing, sorted(hiding, key=_start))


def _merged(rows: list[Firing]) -> list[Firing]:
    """Return the firings of one check with those that overlap merged."""
    merged: list[Firing] = []
    for firing in sorted(rows, key=_start):
        if merged and firing.start <= merged[-1].end:
            latest = merged.pop()
            end = max(firing.end, latest.end)
            merged.append(Firing(latest.check, latest.symptom, latest.start, end))
        else:
            merged.append(firing)
    return merged


def _visible(firing: Firing, hiding: list[Firing]) -> Iterator[Firing]:
    """Yield the parts of a firing that no other check hides."""
    hidden = [(-inf, firing.start)]
    for other in hiding:
        start, end = hidden[-1]
        if other.start <= end:
            hidden[-1] = start, max(end, other.end)
        else:
            hidden.append((other.start, other.end))
    for (_, start), (end, _) in pairwise([*hidden, (inf, inf)]):
        if start < min(end, firing.end):
            yield Firing(firing.check, firing.symptom, start, min(end, firing.end))
