"""YAML schema of a file of checks, in checks/ or in a site's checks.d."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from nodeguard.config.file_version import FileVersion
from nodeguard.model.amounts import Window, identifier
from nodeguard.model.check import ClearSign, EvidenceKind
from nodeguard.model.diagnosis import FaultClass
from nodeguard.model.finding import Action, Health
from nodeguard.model.target import TargetKind

Identifier = Annotated[str, identifier("gpu-lost", "site-fan-speed")]
Sentence = Annotated[str, Meta(min_length=1, max_length=500)]
Paragraph = Annotated[str, Meta(min_length=1, max_length=4000)]
Name = Annotated[str, Meta(min_length=1, max_length=100)]
TopologyName = Literal[
    "fabric", "nvlink", "rack", "power", "zone", "driver", "kernel", "firmware", "agent", "catalogue"
]
Value = bool | int | float | str


class ReferenceSchema(Struct, forbid_unknown_fields=True):
    """The reference that a signal is compared with instead of a constant: exactly one of these."""

    platform: Name | UnsetType = UNSET
    """Field of the platform file, such as the expected link width."""
    signal: Name | UnsetType = UNSET
    """Another signal of the same target."""
    peers: Literal[True] | UnsetType = UNSET
    """The most frequent value of the same kind of target on this node."""
    inventory: Literal[True] | UnsetType = UNSET
    """The best earlier value of this target."""


Operand = bool | int | float | str | ReferenceSchema


class ConditionSchema(
    Struct,
    forbid_unknown_fields=True,
    rename={"is_": "is", "in_": "in", "any_": "any", "all_": "all", "for_": "for"},
):
    """One condition: on a signal, on an event, or on other conditions. With `for` it must be true for that
    time.
    """

    signal: Name | UnsetType = UNSET
    """Signal that a comparison or `increases_by` is about."""
    event: Name | UnsetType = UNSET
    """Event that has to occur."""
    any_: Annotated[tuple[ConditionSchema, ...], Meta(min_length=1, max_length=16)] | UnsetType = UNSET
    """True if at least one of these conditions is."""
    all_: Annotated[tuple[ConditionSchema, ...], Meta(min_length=1, max_length=16)] | UnsetType = UNSET
    """True if all of these conditions are."""

    is_: Operand | UnsetType = UNSET
    """Equal to this."""
    is_not: Operand | UnsetType = UNSET
    """Not equal to this."""
    in_: Annotated[list[Value], Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """One of these."""
    below: Operand | UnsetType = UNSET
    """Less than this."""
    at_most: Operand | UnsetType = UNSET
    """At most this."""
    above: Operand | UnsetType = UNSET
    """More than this."""
    at_least: Operand | UnsetType = UNSET
    """At least this."""
    by: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    """With an order and a reference: minimum difference between them."""
    increases_by: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    """Of a counter: minimum increase within `over`."""

    where: dict[str, Value | Annotated[list[Value], Meta(min_length=1)]] | UnsetType = UNSET
    """Allowed values by field of the event: `{xid: [48, 95]}`."""
    times: Annotated[int, Meta(ge=1, le=64)] | UnsetType = UNSET
    """Minimum number of events; default: 1."""
    over: Window | UnsetType = UNSET
    """Time within which the counter rises or the events occur; of an event, default: this boot."""
    until: str | UnsetType = UNSET
    """Event of the same target that ends it, if all fields that both have are equal."""
    unless_read: Annotated[list[Name], Meta(min_length=1, max_length=16)] | UnsetType = UNSET
    """Signals of the same target that report the same: the event counts only if none of them was read,
    because NVML or the kernel does not offer it."""
    apart: Window | UnsetType = UNSET
    """With `times`: events closer together than this count as one, because one fault often logs several
    lines."""
    evidence: bool | UnsetType = UNSET
    """`false`: the condition only restricts where the check applies, and is not shown as evidence."""

    for_: Window | UnsetType = UNSET
    """Time for which the condition must be true without interruption: `30s`, `5m`, `2h`."""
    seen_once: bool | UnsetType = UNSET
    """With `for`: `false` if one evaluation means nothing. Default: `nodeguard check`, which cannot wait,
    reports it with a note."""


class CheckSchema(Struct, forbid_unknown_fields=True):
    """One check of a file."""

    id: Identifier
    """Name in output, metrics and policy."""
    title: Sentence
    """The fault in a few words."""
    target: TargetKind | Annotated[list[TargetKind], Meta(min_length=1, max_length=6)]
    """Kind of target, or several kinds."""
    health: Health
    """Severity; `ok` for what is no fault of the node, with the action `none`, or `restart-workload` for an
    error of an application."""
    action: Action
    """What to do."""
    when: ConditionSchema
    """When the check fires."""
    message: Sentence
    """What happened, in one sentence. `{target}`, `{component}`, `{count}`, and the names of signals and
    event fields are replaced."""
    remedy: Sentence
    """What to do, complete without title and message: it begins with a verb and names each thing before a
    pronoun stands for it. It must agree with `action`: a remedy that begins with `Replace` needs
    `replace-component`; `{action}` is replaced by the finding's action."""
    description: Paragraph
    """Explanation for `nodeguard explain`."""
    source: Sentence
    """Origin of the rule or threshold."""
    cleared_by: tuple[ClearSign, ...] = ()
    """What clears a finding of an event. A check of an event needs it, or `over`."""
    topologies: tuple[TopologyName, ...] = ()
    """Topologies in which the check votes for a degraded domain."""
    symptom_of: tuple[Identifier, ...] = ()
    """Checks that explain this one, in order of preference. If one of them fires on a related target, this
    finding becomes its evidence."""
    how: Annotated[tuple[Sentence, ...], Meta(max_length=8)] = ()
    """Commands on the node that carry out `action`, where those that nodeguard makes of action and target do
    not fit. `{gpu}`, `{device}`, `{port}`, `{path}` and `{name}` of the target are replaced, quoted for the
    shell; the commands `{reset}` and `{reset_all}` by those that reset the GPU of the target, or all GPUs."""
    family: Identifier | UnsetType = UNSET
    """A family other than that of the file."""
    evidence: EvidenceKind = "measurement"
    """`fact`: a bit that the hardware stores, or a version string, with no limit of the check's own. It is
    true on each node, however many nodes show it. Default: `measurement`."""


class CheckFileSchema(Struct, forbid_unknown_fields=True):
    """One file of checks."""

    version: FileVersion = 1
    """`1`, also where it is missing. A nodeguard that does not know the version refuses the file."""
    family: Identifier | UnsetType = UNSET
    """Name of the group of checks, the value of the taint of its findings."""
    description: Sentence | UnsetType = UNSET
    """The family in one sentence."""
    hardware: list[TargetKind] = []
    """Kinds of target: on a node without any of them the checks are not applicable."""
    applies_when: ConditionSchema | UnsetType = UNSET
    """Condition on the target: if it is read and false, the checks are not applicable."""
    checks: Annotated[tuple[CheckSchema, ...], Meta(max_length=500)] = ()
    """The checks; one with the id of a built-in check replaces it."""
    fault_classes: Annotated[tuple[FaultClass, ...], Meta(max_length=50)] = ()
    """Fault classes of the site; one with the name of a built-in class replaces it."""
    disable: Annotated[list[Identifier], Meta(max_length=500)] = []
    """Ids of built-in checks to switch off."""
