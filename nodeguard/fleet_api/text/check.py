"""Checks, their conditions and fault classes as text, for commands and the status page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nodeguard.fleet_api.view import Field, Heading, Note, Row, Section, View
from nodeguard.judge.formatting import format_duration, format_value, general_remedy
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
from nodeguard.model.diagnosis import FaultClass, RecoveryPolicy
from nodeguard.model.finding import Action

# Names of checks that a fault class lists.
_NAMED = 5

_OPERATORS = {
    "is": "is",
    "is_not": "is not",
    "in": "is one of",
    "below": "is below",
    "at_most": "is at most",
    "above": "is above",
    "at_least": "is at least",
}
# The same with an offset to the other side.
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
    "component-replaced": "replaced hardware",
    "recovery-none": "the driver's report that no recovery is needed",
    "retest": "a passed test",
    "operator": "an operator (nodeguard clear)",
}

# Source: nvml.h, NVML_GPU_FABRIC_STATE_… and NVML_GPU_FABRIC_HEALTH_SUMMARY_….
_CODES = {
    "gpu.fabric.state": {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"},
    "gpu.fabric.health_summary": {0: "not supported", 1: "healthy", 2: "unhealthy", 3: "limited capacity"},
}


def meanings(catalogue: Catalogue) -> dict[str, str]:
    """Return the meanings of coded readings, by how evidence writes them: `gpu.recovery_action = 4`."""
    recovery = {value: item.name for value, item in catalogue.recovery.items()}
    codes = {**_CODES, "gpu.recovery_action": recovery}
    return {
        f"{signal} = {code}": meaning
        for signal, by_code in codes.items()
        for code, meaning in by_code.items()
    }


def condition_text(condition: Condition) -> str:
    """Return a condition as a clause."""
    match condition:
        case Compare():
            return f"{condition.signal} {_compared(condition)}"
        case Increase():
            rise = f"rises by {format_value(condition.by)} or more"
            return f"{condition.signal} {rise} within {format_duration(condition.over)}"
        case EventOccurred():
            return _happened(condition)
        case Sustained():
            return f"{_grouped(condition.condition)} for {format_duration(condition.seconds)}"
        case AllOf() | AnyOf():
            joint = " and " if isinstance(condition, AllOf) else " or "
            return joint.join(_grouped(part) for part in condition.of)


def _grouped(condition: Condition) -> str:
    return (
        f"({condition_text(condition)})"
        if isinstance(condition, (AllOf, AnyOf))
        else condition_text(condition)
    )


def _compared(leaf: Compare) -> str:
    if leaf.than is None:
        return f"{_OPERATORS[leaf.operator]} {_constant(leaf.value)}"
    apart = _APART[leaf.operator].format(format_value(leaf.by)) if leaf.by else _OPERATORS[leaf.operator]
    return f"{apart} {_reference(leaf.than)}"


def _constant(value: object) -> str:
    """Return a constant as text; an empty one would leave a gap in the sentence."""
    if isinstance(value, tuple):
        return ", ".join(map(_constant, value))
    return "empty" if value == "" else format_value(value)


def _reference(than: Reference) -> str:
    match than.of:
        case "platform":
            return f"the value that the platform expects ({than.name})"
        case "peers":
            return "the value of its peers"
        case "inventory":
            return "the best earlier reading"
    return than.name


def _happened(leaf: EventOccurred) -> str:
    where = "".join(
        f", {field} {' or '.join(map(_constant, values))}" for field, values in leaf.where.items()
    )
    times = f" {leaf.times} times" if leaf.times > 1 else ""
    times += f", {format_duration(leaf.apart)} or more apart," if leaf.apart else ""
    within = f" within {format_duration(leaf.over)}" if leaf.over else " in this boot"
    until = f", until {leaf.until}" if leaf.until else ""
    unless = f", where no {' or '.join(leaf.unless_read)} was read" if leaf.unless_read else ""
    return f"event {leaf.event}{where}{times}{within}{until}{unless}"


def clearing_text(check: Check) -> str:
    """Return the conditions that clear a check's finding."""
    if check.cleared_by:
        return ", ".join(_CLEARS[sign] for sign in check.cleared_by)
    return "a reading that no longer meets the condition"


def check_facts(check: Check) -> Iterator[Field]:
    """Yield the properties of a check, by name, in the order in which readers need them."""
    yield Field("health", check.health.value)
    yield Field("action", check.action.value)
    yield Field("applies to", ", ".join(check.targets))
    yield Field("family", check.family)
    yield Field("fires when", condition_text(check.when))
    yield Field("cleared by", clearing_text(check))
    if check.topologies:
        yield Field("votes in", ", ".join(check.topologies))
    if check.evidence == "fact":
        yield Field("evidence", "a fact: no other node makes it less likely")
    if check.symptom_of:
        yield Field("symptom of", ", ".join(check.symptom_of))
    yield Field("what to do", general_remedy(check))
    yield Field("source", check.source)


def explanation(name: str, title: str, rows: Iterable[Row]) -> View:
    """Return the text about a name, in paragraphs, and its properties."""
    return View((Section(Heading(name, "strong", title, separator=" - "), tuple(rows), "article"),))


def explanation_view(catalogue: Catalogue, name: str) -> View | None:
    """Return the text about the check or the fault class of a name; None if there is none."""
    for check in catalogue.checks:
        if check.id == name:
            return explain_check(check)
    for fault_class in catalogue.fault_classes:
        if fault_class.name == name:
            return explain_class(catalogue, fault_class)
    return None


def check_list(catalogue: Catalogue, names: Iterable[str]) -> Iterator[Field]:
    """Yield a row for each check of some names that the catalogue has, with health and title."""
    checks = {check.id: check for check in catalogue.checks}
    label = "checks"
    for name in names:
        if (check := checks.get(name)) is not None:
            yield Field(label, f"{check.id} ({check.health.value}): {check.title}")
            label = ""


def explain_check(check: Check) -> View:
    """Return the text about a check: what it means, when it fires and what to do."""
    paragraphs = (Note(" ".join(paragraph.split())) for paragraph in check.description.split("\n\n"))
    return explanation(check.id, check.title, (*paragraphs, *check_facts(check)))


def explain_class(catalogue: Catalogue, fault_class: FaultClass) -> View:
    """Return the text about a fault class: what it is, and what people do about a domain with it."""
    title = f"nodes of one domain {fault_class.phrase}"
    return explanation(fault_class.name, title, _class_facts(catalogue, fault_class))


def _class_facts(catalogue: Catalogue, fault_class: FaultClass) -> Iterator[Field]:
    windows = " or ".join(format_duration(window) for window in fault_class.windows)
    yield Field("class of", "faults that hardware or software of several nodes can cause")
    yield Field("topologies", ", ".join(topology.topology for topology in fault_class.topologies))
    yield Field("checks", ", ".join(fault_class.checks))
    yield Field("degraded", f"{100 * fault_class.share:.3g}% of the nodes or more, within {windows}")
    if fault_class.action != Action.NONE:
        yield Field("action", fault_class.action.phrase)
    if (guidance := fault_class.guidance) is not None:
        yield Field("who acts", guidance.owner)
        yield Field("look first", guidance.first)
        yield Field("nodes", guidance.nodes)
        wait = format_duration(RecoveryPolicy().initial)
        yield Field("end", f"{guidance.end} nodeguard ends it {wait} later by itself, by default.")
    named = [check for check in catalogue.checks if fault_class.name in check.id]
    if named:
        more = f"; all: nodeguard get checks '*{fault_class.name}*'" if named[_NAMED:] else ""
        yield Field("see also", ", ".join(check.id for check in named[:_NAMED]) + more)
