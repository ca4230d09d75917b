"""The catalogue made ready to judge with.

A function for each check, sorted by the kind of slot that it judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import inf

from msgspec import Struct

from nodeguard.judge.conditions import compile_condition
from nodeguard.judge.context import ConditionTest
from nodeguard.judge.signal_conditions import compile_comparison
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check, Compare, EventOccurred, Increase
from nodeguard.model.signal import Signal
from nodeguard.model.target import TARGET_KINDS

# Signals that tell what a slot hangs on besides its parent.
DEPENDENCY_SIGNALS = ("fs.disk", "port.pci")

_PLACE = re.compile(r"\{([^}]*)\}")


class Rule(Struct, frozen=True):
    """A check and the function that evaluates it.

    of_events: whether it looks at nothing but events; events: the conditions that look at them. applies:
    evaluates whether a slot is what it is for.
    """

    check: Check
    test: ConditionTest
    is_event_only: bool
    events: tuple[EventOccurred, ...]
    applies: ConditionTest | None


class Rules(Struct, frozen=True):
    """What to judge, by kind of slot.

    spans: for each kind, the counters that some check watches and the longest window, in seconds, that it
    needs of each. looked_at: for each kind, the signals that some check looks at or tells of. heard: for each
    kind, the events that some check asks for and for how many seconds it does at most. units: by signal, of
    those that have one.
    """

    by_kind: dict[str, tuple[Rule, ...]]
    counter_windows: dict[str, dict[str, float]]
    signals_used: dict[str, frozenset[str]]
    event_windows: dict[str, dict[str, float]]
    units: dict[str, str]
    catalogue: Catalogue


def compile_rules(
    catalogue: Catalogue, signals: Mapping[str, Signal], families: frozenset[str] | None = None
) -> Rules:
    """Rules of a catalogue. signals: all that exist, by name. families: judge these alone; None for all."""
    units = {name: signal.unit for name, signal in signals.items() if signal.unit}
    of: dict[str, list[Rule]] = {kind: [] for kind in TARGET_KINDS}
    spans: dict[str, dict[str, float]] = {kind: {} for kind in TARGET_KINDS}
    looked_at: dict[str, set[str]] = {kind: set(DEPENDENCY_SIGNALS) for kind in TARGET_KINDS}
    heard: dict[str, dict[str, float]] = {kind: {} for kind in TARGET_KINDS}
    for check in catalogue.checks:
        if families is not None and check.family not in families:
            continue
        test = compile_condition(check.when, check.id, check.clears, units)
        leaves = tuple(check.leaves())
        events = tuple(leaf for leaf in leaves if isinstance(leaf, EventOccurred))
        rule = Rule(
            check,
            test,
            len(events) == len(leaves),
            events,
            compile_comparison(check.applies_when, units) if check.applies_when else None,
        )
        for kind in check.targets:
            of[kind].append(rule)
            looked_at[kind].update(_signals(check))
            for leaf in leaves:
                if isinstance(leaf, Increase):
                    spans[kind][leaf.signal] = max(leaf.over, spans[kind].get(leaf.signal, 0.0))
                if isinstance(leaf, EventOccurred):
                    for event in filter(None, (leaf.event, leaf.until)):
                        heard[kind][event] = max(leaf.over or inf, heard[kind].get(event, 0.0))
    return Rules(
        by_kind={kind: tuple(rows) for kind, rows in of.items()},
        counter_windows=spans,
        signals_used={kind: frozenset(names) for kind, names in looked_at.items()},
        event_windows=heard,
        units=units,
        catalogue=catalogue,
    )


def _signals(check: Check) -> Iterator[str]:
    """Signals that a check looks at or tells of, references such as `port.rate~peers` among them."""
    yield from _PLACE.findall(check.message + check.remedy)
    for leaf in (*check.leaves(), *([check.applies_when] if check.applies_when else [])):
        if isinstance(leaf, EventOccurred):
            continue
        yield leaf.signal
        if isinstance(leaf, Compare) and leaf.than is not None:
            yield leaf.than.name if leaf.than.of == "signal" else f"{leaf.than.name}~{leaf.than.of}"
