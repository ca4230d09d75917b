"""Checks and their conditions in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.judge.formatting import format_duration, format_value
from nodeguard.model.catalogue import Catalogue
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

_OPERATORS = {
    "is": "is",
    "is_not": "is not",
    "in": "is one of",
    "below": "is below",
    "at_most": "is at most",
    "above": "is above",
    "at_least": "is at least",
}
# The same, where the other side is moved by some amount first.
_APART = {
    "below": "is more than {} below",
    "at_most": "is {} or more below",
    "above": "is more than {} above",
    "at_least": "is {} or more above",
}
_CLEARS = {
    "reset": "a reset of the GPU or switch",
    "driver-reload": "a reload of the driver",
    "reboot": "a reboot",
    "part-replaced": "another part in the slot",
    "recovery-none": "the driver's word that no recovery is needed",
    "retest": "a test that passes",
    "operator": "a person",
}

# Source: nvml.h, NVML_GPU_FABRIC_STATE_… and NVML_GPU_FABRIC_HEALTH_SUMMARY_….
_CODES = {
    "gpu.fabric.state": {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"},
    "gpu.fabric.health_summary": {0: "not supported", 1: "healthy", 2: "unhealthy", 3: "limited capacity"},
}


def meanings(catalogue: Catalogue) -> dict[str, str]:
    """What readings that are codes mean, by how evidence writes them: `gpu.recovery_action = 4`."""
    recovery = {value: one.name for value, one in catalogue.recovery.items()}
    codes = {**_CODES, "gpu.recovery_action": recovery}
    return {f"{signal} = {code}": word for signal, words in codes.items() for code, word in words.items()}


def condition_text(one: Condition) -> str:
    """A condition as a half sentence."""
    match one:
        case Compare():
            return f"{one.signal} {_compared(one)}"
        case Increase():
            return f"{one.signal} rises by {format_value(one.by)} or more within {format_duration(one.over)}"
        case EventOccurred():
            return _happened(one)
        case Sustained():
            return f"{_grouped(one.condition)} for {format_duration(one.seconds)}"
        case AllOf() | AnyOf():
            word = " and " if isinstance(one, AllOf) else " or "
            return word.join(_grouped(part) for part in one.of)


def _grouped(one: Condition) -> str:
    return f"({condition_text(one)})" if isinstance(one, (AllOf, AnyOf)) else condition_text(one)


def _compared(one: Compare) -> str:
    if one.than is None:
        return f"{_OPERATORS[one.operator]} {_constant(one.value)}"
    apart = _APART[one.operator].format(format_value(one.by)) if one.by else _OPERATORS[one.operator]
    return f"{apart} {_reference(one.than)}"


def _constant(value: object) -> str:
    """A constant as it reads in a sentence, where an empty text would leave a hole."""
    if isinstance(value, tuple):
        return ", ".join(map(_constant, value))
    return "empty" if value == "" else format_value(value)


def _reference(than: Reference) -> str:
    match than.of:
        case "platform":
            return f"what the platform expects ({than.name})"
        case "peers":
            return "its peers'"
        case "inventory":
            return "the best that was read there before"
    return than.name


def _happened(one: EventOccurred) -> str:
    where = "".join(f", {field} {' or '.join(map(_constant, values))}" for field, values in one.where.items())
    times = f" {one.times} times" if one.times > 1 else ""
    within = f" within {format_duration(one.over)}" if one.over else " in this boot"
    until = f", until {one.until}" if one.until else ""
    return f"event {one.event}{where}{times}{within}{until}"


def clearing_text(check: Check) -> str:
    """What ends a check's finding."""
    if check.clears:
        return ", ".join(_CLEARS[sign] for sign in check.clears)
    return "the condition no longer holds"


def check_facts(check: Check) -> Iterator[tuple[str, str]]:
    """All that a check is, name by name, in the order in which a reader wants it."""
    yield "health", check.health.value
    yield "action", check.action.value
    yield "judges", ", ".join(check.targets)
    yield "family", check.family
    yield "fires when", condition_text(check.when)
    yield "ends with", clearing_text(check)
    if check.topologies:
        yield "votes in", ", ".join(check.topologies)
    if check.symptom_of:
        yield "part of", ", ".join(check.symptom_of)
    yield "what to do", check.remedy
    yield "basis", check.source
