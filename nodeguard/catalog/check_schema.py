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
    signal: Name | UnsetType = UNSET
    peers: Literal[True] | UnsetType = UNSET
    inventory: Literal[True] | UnsetType = UNSET


Operand = bool | int | float | str | ReferenceSchema


class ConditionSchema(
    Struct,
    forbid_unknown_fields=True,
    rename={"is_": "is", "in_": "in", "any_": "any", "all_": "all", "for_": "for"},
):
    """One condition: on a signal, on an event, or on other conditions.

    With `for` it must be true for that time.
    """

    signal: Name | UnsetType = UNSET
    event: Name | UnsetType = UNSET
    any_: Annotated[tuple[ConditionSchema, ...], Meta(min_length=1, max_length=16)] | UnsetType = UNSET
    all_: Annotated[tuple[ConditionSchema, ...], Meta(min_length=1, max_length=16)] | UnsetType = UNSET

    is_: Operand | UnsetType = UNSET
    is_not: Operand | UnsetType = UNSET
    in_: Annotated[list[Value], Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    below: Operand | UnsetType = UNSET
    at_most: Operand | UnsetType = UNSET
    above: Operand | UnsetType = UNSET
    at_least: Operand | UnsetType = UNSET
    by: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    increases_by: Annotated[float, Meta(gt=0)] | UnsetType = UNSET

    where: dict[str, Value | Annotated[list[Value], Meta(min_length=1)]] | UnsetType = UNSET
    times: Annotated[int, Meta(ge=1, le=64)] | UnsetType = UNSET
    over: Window | UnsetType = UNSET
    until: str | UnsetType = UNSET
    unless_read: Annotated[list[Name], Meta(min_length=1, max_length=16)] | UnsetType = UNSET
    apart: Window | UnsetType = UNSET
    evidence: bool | UnsetType = UNSET

    for_: Window | UnsetType = UNSET
    seen_once: bool | UnsetType = UNSET


class CheckSchema(Struct, forbid_unknown_fields=True):
    """One check. nodeguard.model.check.Check documents the fields."""

    id: Identifier
    title: Sentence
    target: TargetKind | Annotated[list[TargetKind], Meta(min_length=1, max_length=6)]
    health: Health
    action: Action
    when: ConditionSchema
    message: Sentence
    remedy: Sentence
    description: Paragraph
    source: Sentence
    cleared_by: tuple[ClearSign, ...] = ()
    topologies: tuple[TopologyName, ...] = ()
    symptom_of: tuple[Identifier, ...] = ()
    how: Annotated[tuple[Sentence, ...], Meta(max_length=8)] = ()
    family: Identifier | UnsetType = UNSET
    evidence: EvidenceKind = "measurement"


class CheckFileSchema(Struct, forbid_unknown_fields=True):
    """One file of checks.

    version: of the check language. hardware: kinds of target; the family does not apply to a node without any
    of them. applies_when: condition that a target meets if the family applies to it. In a site's file, a
    check replaces the built-in one with the same id, a fault class the one with the same name, and `disable`
    lists the ids to switch off.
    """

    version: FileVersion = 1
    family: Identifier | UnsetType = UNSET
    description: Sentence | UnsetType = UNSET
    hardware: list[TargetKind] = []
    applies_when: ConditionSchema | UnsetType = UNSET
    checks: Annotated[tuple[CheckSchema, ...], Meta(max_length=500)] = ()
    fault_classes: Annotated[tuple[FaultClass, ...], Meta(max_length=50)] = ()
    disable: Annotated[list[Identifier], Meta(max_length=500)] = []
