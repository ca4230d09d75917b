"""Kinds of target that each signal is read of, and the checks that can therefore fire."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from nodeguard.model.check import (
    AllOf,
    AnyOf,
    Check,
    Compare,
    Condition,
    EventOccurred,
    Increase,
    Reference,
    Sustained,
)
from nodeguard.model.target import NODE

# `{signal}` in a message.
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")

Kinds = frozenset[str]

# Of readings, by the first word of the signal's name. A signal of another word is read of the node.
_KINDS: Mapping[str, Kinds] = {
    "gpu": frozenset({"gpu"}),
    "nvlink": frozenset({"nvlink"}),
    "c2c": frozenset({"gpu"}),
    "pci": frozenset({"gpu", "nvswitch", "port", "pci"}),
    "port": frozenset({"port", "nvswitch"}),
    "efa": frozenset({"port"}),
    "rdma": frozenset({"pci"}),
    "fs": frozenset({"fs"}),
    "disk": frozenset({"disk"}),
    "md": frozenset({"disk"}),
    "dimm": frozenset({"dimm"}),
    "service": frozenset({"service"}),
    "probe": frozenset({"probe"}),
}

# Readings of the node with a first word of _KINDS.
_OF_NODE = frozenset(
    {
        "gpu.count",
        "gpu.handle_error",
        "gpu.handles_hidden",
        "gpu.handles_refused",
        "gpu.pci_count",
        "port.fabric_count",
        "rdma.all_missing",
        "rdma.function_count",
        "rdma.missing_count",
        "rdma.port_count",
    }
)
_NODE: Kinds = frozenset({NODE})


def kinds_of_reading(signal: str) -> Kinds:
    """Return the kinds of target that a signal is read of. signal: one that is no event."""
    return _NODE if signal in _OF_NODE else _KINDS.get(_first_word(signal), _NODE)


class SignalTargets:
    """The kinds of target on which conditions can be true.

    An event is of the node where the log does not name the device, and the derivation moves some to another
    kind of target: those of nodeguard's checks on events with the same first word.
    """

    def __init__(self, builtin: Iterable[Check]) -> None:
        self._of_events: dict[str, set[str]] = defaultdict(set)
        for check in builtin:
            for leaf in check.leaves():
                if isinstance(leaf, EventOccurred):
                    self._of_events[_first_word(leaf.event)].update(check.targets)

    def kinds(self, condition: Condition) -> Kinds:
        """Return the kinds of target on which a condition can be true."""
        match condition:
            case Sustained():
                return self.kinds(condition.condition)
            case AllOf():
                return frozenset[str].intersection(*map(self.kinds, condition.of))
            case AnyOf():
                return frozenset[str].union(*map(self.kinds, condition.of))
            case EventOccurred():
                return (
                    kinds_of_reading(condition.event) | _NODE | self._of_events[_first_word(condition.event)]
                )
            case Compare(than=Reference(of="signal") as reference):
                return kinds_of_reading(condition.signal) & kinds_of_reading(reference.name)
            case _:
                return kinds_of_reading(condition.signal)

    def problem(self, check: Check, signals: Collection[str]) -> tuple[str, str, str] | None:
        """Return why a check never fires on its targets, or lacks a value: field, problem and remedy.

        signals: the names of all. None for a check without a problem.
        """
        targets = " or ".join(check.targets)
        for leaf in check.leaves():
            for name, kinds in self._needs(leaf):
                if kinds.isdisjoint(check.targets):
                    verb = "never occurs on" if isinstance(leaf, EventOccurred) else "is never read of"
                    problem = f"{name} {verb} {targets}, so that '{check.id}' never fires"
                    return "target", problem, f"use another signal, or write {' or '.join(sorted(kinds))}"
        if self.kinds(check.when).isdisjoint(check.targets):
            problem = f"no {targets} has all signals of the condition, so that '{check.id}' never fires"
            return "when", problem, "use signals of one kind of target, or write one check for each kind"
        for field in ("message", "remedy"):
            for placeholder in PLACEHOLDER.findall(getattr(check, field)):
                name = placeholder.partition("~")[0]
                if name in signals and kinds_of_reading(name).isdisjoint(check.targets):
                    problem = f"{name} is never read of {targets}, so that {{{placeholder}}} has no value"
                    return field, problem, f"remove it, or name a signal of {targets}"
        return None

    def _needs(self, leaf: Compare | Increase | EventOccurred) -> Iterator[tuple[str, Kinds]]:
        """Yield the signals without which a condition is never true, each with the kinds of target it has."""
        if isinstance(leaf, EventOccurred):
            yield leaf.event, self.kinds(leaf)
            return
        yield leaf.signal, kinds_of_reading(leaf.signal)
        if isinstance(leaf, Compare) and leaf.than is not None and leaf.than.of == "signal":
            yield leaf.than.name, kinds_of_reading(leaf.than.name)


def _first_word(signal: str) -> str:
    return signal.partition(".")[0]
