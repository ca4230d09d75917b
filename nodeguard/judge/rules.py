"""Rules: the checks of the catalogue compiled to functions, by the kind of their targets. Pure."""

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

# Signals that name a target's dependency: the disk of a file system, the PCI function of a port.
DEPENDENCY_SIGNALS = ("fs.disk", "port.pci")

_PLACEHOLDER = re.compile(r"\{([^}]*)\}")


class Rule(Struct, frozen=True):
    """A check and its compiled condition.

    is_event_only: whether the condition uses events and no readings. events: its conditions on events.
    applies: test whether the check applies to a target; None for every target of its kinds.
    """

    check: Check
    test: ConditionTest
    is_event_only: bool
    events: tuple[EventOccurred, ...]
    applies: ConditionTest | None


class Rules(Struct, frozen=True):
    """The rules, by kind of target.

    counter_windows: for each kind, the longest window in seconds of each counter that a check uses.
    signals_used: for each kind, the signals that a check uses in conditions or messages. event_windows: for
    each kind, the longest window in seconds of each event that a check uses. units: by signal with a unit.
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
    """Return the rules of a catalogue. signals: all, by name. families: to include, None for all."""
    units = {name: signal.unit for name, signal in signals.items() if signal.unit}
    by_kind: dict[str, list[Rule]] = {kind: [] for kind in TARGET_KINDS}
    counter_windows: dict[str, dict[str, float]] = {kind: {} for kind in TARGET_KINDS}
    signals_used: dict[str, set[str]] = {kind: set(DEPENDENCY_SIGNALS) for kind in TARGET_KINDS}
    event_windows: dict[str, dict[str, float]] = {kind: {} for kind in TARGET_KINDS}
    for check in catalogue.checks:
        if families is not None and check.family not in families:
            continue
        rule = _rule(check, units)
        for kind in check.targets:
            by_kind[kind].append(rule)
            signals_used[kind].update(_signals(check))
            _widen_windows(check, counter_windows[kind], event_windows[kind])
    return Rules(
        by_kind={kind: tuple(rules) for kind, rules in by_kind.items()},
        counter_windows=counter_windows,
        signals_used={kind: frozenset(names) for kind, names in signals_used.items()},
        event_windows=event_windows,
        units=units,
        catalogue=catalogue,
    )


def _rule(check: Check, units: Mapping[str, str]) -> Rule:
    leaves = tuple(check.leaves())
    events = tuple(leaf for leaf in leaves if isinstance(leaf, EventOccurred))
    return Rule(
        check,
        compile_condition(check.when, check.id, check.cleared_by, units),
        len(events) == len(leaves),
        events,
        compile_comparison(check.applies_when, units) if check.applies_when else None,
    )


def _widen_windows(check: Check, counters: dict[str, float], events: dict[str, float]) -> None:
    """Widen the windows of counters and events to those that a check needs."""
    for leaf in check.leaves():
        if isinstance(leaf, Increase):
            counters[leaf.signal] = max(leaf.over, counters.get(leaf.signal, 0.0))
        if isinstance(leaf, EventOccurred):
            for event in filter(None, (leaf.event, leaf.until)):
                events[event] = max(leaf.over or inf, events.get(event, 0.0))


def _signals(check: Check) -> Iterator[str]:
    """Yield the signals that a check uses in conditions and messages, with references such as
    `port.rate~peers`.
    """
    yield from _PLACEHOLDER.findall(check.message + check.remedy)
    for leaf in (*check.leaves(), *([check.applies_when] if check.applies_when else [])):
        if isinstance(leaf, EventOccurred):
            continue
        yield leaf.signal
        if isinstance(leaf, Compare) and leaf.than is not None:
            yield leaf.than.name if leaf.than.of == "signal" else f"{leaf.than.name}~{leaf.than.of}"
