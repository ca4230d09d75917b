"""The catalogue made ready to judge with.

A function for each check, sorted by the kind of slot that it judges.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from nodeguard.judge.conditions import Test, prepare
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check, Increase
from nodeguard.model.slot import KINDS


class Rule(Struct, frozen=True):
    """A check and the function that evaluates it."""

    check: Check
    test: Test


class Rules(Struct, frozen=True):
    """What to judge, by kind of slot.

    spans: for each kind, the counters that some check watches and the longest window, in seconds, that it
    needs of each.
    """

    of: dict[str, tuple[Rule, ...]]
    spans: dict[str, dict[str, float]]
    catalogue: Catalogue


def rules(
    catalogue: Catalogue, event_sources: Mapping[str, str], families: frozenset[str] | None = None
) -> Rules:
    """Rules of a catalogue.

    event_sources: event signal → the source whose silence means that no such event happened. families: judge
    these alone.
    """
    of: dict[str, list[Rule]] = {kind: [] for kind in KINDS}
    spans: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
    for check in catalogue.checks:
        if families is not None and check.family not in families:
            continue
        test = prepare(check.when, check.id, check.clears, dict(event_sources))
        for kind in check.targets:
            of[kind].append(Rule(check, test))
            for leaf in check.leaves():
                if isinstance(leaf, Increase):
                    spans[kind][leaf.signal] = max(leaf.over, spans[kind].get(leaf.signal, 0.0))
    return Rules({kind: tuple(rows) for kind, rows in of.items()}, spans, catalogue)
