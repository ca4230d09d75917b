"""The messages of an agent about its node: a report in full on every change, else a heartbeat.

Times are ages in seconds, never timestamps: the receiver uses its own clock. A field that was added later has
a default, so that its reader accepts older messages; only the fields that identify the message have none.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.model.hardware import Hardware

# The version that this code writes. A reader of version N accepts N-1 and N+1, so a new value of an
# enumeration is accepted by one version and written by the next.
VERSION = 1

Name = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=2048)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0.0)]


class ReportedEvidence(Struct, frozen=True, omit_defaults=True):
    """One piece of evidence: its source, text, age in seconds before the verdict, and count."""

    source: Name
    message: Text
    age: Seconds = 0.0
    count: Count = 1


class ReportedFinding(Struct, frozen=True, omit_defaults=True):
    """A finding that is not ok.

    target, component, targets: as in model.finding.Finding. age: seconds from its first occurrence to the
    verdict. evidence: the most important first; omitted: how many pieces are left out. topologies: in which
    it votes. family: the check's. hardware: of the GPU. fact: whether the check reads a fact, see
    model.check.Check; an older agent reports none.
    """

    check: Name
    target: Name
    health: Health
    component: Name = ""
    targets: tuple[Name, ...] = ()
    data_status: DataStatus = DataStatus.FRESH
    action: Action = Action.NONE
    age: Seconds = 0.0
    message: Text = ""
    evidence: tuple[ReportedEvidence, ...] = ()
    omitted: Count = 0
    topologies: tuple[Name, ...] = ()
    note: Text = ""
    family: Name = ""
    hardware: Hardware | None = None
    fact: bool = False


class ReportedInjection(Struct, frozen=True, omit_defaults=True):
    """A fault that an operator injected with `nodeguard inject`, apart from the findings of the checks.

    A reader that does not know this field sees no fault at all. finding: as the check would report it. by:
    the operator. seconds: from the verdict to its end.
    """

    finding: ReportedFinding
    by: Name = ""
    seconds: Seconds = 0.0


class UnreadableTargets(Struct, frozen=True, omit_defaults=True):
    """Something that a source could not read: the subject, the reason and the targets."""

    source: Name
    subject: Text = ""
    reason: Text = ""
    targets: tuple[Name, ...] = ()


class ReportedPassing(Struct, frozen=True):
    """Checks that fresh data show as passing, on each of some targets."""

    checks: tuple[Name, ...]
    targets: tuple[Name, ...]


class ReportedComponent(Struct, frozen=True, omit_defaults=True):
    """The component in a target; an unknown field is empty or None. firmware: of a port's adapter. index: of
    NVML.
    """

    id: Name = ""
    model: Name = ""
    serial: Name = ""
    vbios: Name = ""
    firmware: Name = ""
    index: Annotated[int, Meta(ge=0, le=65535)] | None = None


class Inventory(Struct, frozen=True, omit_defaults=True):
    """The hardware of a node. driver, kernel: versions. components: by target; omitted: left out."""

    driver: Name = ""
    kernel: Name = ""
    platform: Name = ""
    components: dict[Name, ReportedComponent] = {}
    omitted: Count = 0


class InstructionResult(Struct, frozen=True, omit_defaults=True):
    """The outcome of an instruction, by its id. done: whether it was carried out. message: or why not."""

    id: Name
    done: bool = False
    message: Text = ""


class Report(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="report", kw_only=True):
    """A node's verdict in full.

    sequence: rises with every message of one boot, so (node, boot_id, sequence) identifies a message. digest:
    of the reported state, see wire.digest. age: seconds from the verdict to the sending. findings: worst
    first; omitted: how many are left out. acknowledged: ids of instructions that the agent has completed;
    results: their outcomes, as far as they are stored. dropped: transitions that the agent lost because no
    aggregator acknowledged for too long. leaving: whether the agent ends. passing: releases marks.
    injections: faults that operators injected; they are in no other field. received: for how many seconds the
    node has had each version that replaced another one in the past day, by its failure domain.
    """

    version: int
    node: Annotated[Name, Meta(min_length=1)]
    boot_id: Annotated[Name, Meta(min_length=1)]
    sequence: Count
    health: Health
    data_status: DataStatus = DataStatus.UNKNOWN
    digest: Name = ""
    agent: Name = ""
    catalogue: Name = ""
    age: Seconds = 0.0
    findings: tuple[ReportedFinding, ...] = ()
    omitted: Count = 0
    unreadable: tuple[UnreadableTargets, ...] = ()
    inventory: Inventory = Inventory()
    acknowledged: tuple[Name, ...] = ()
    results: tuple[InstructionResult, ...] = ()
    dropped: Count = 0
    leaving: bool = False
    passing: tuple[ReportedPassing, ...] = ()
    injections: tuple[ReportedInjection, ...] = ()
    received: dict[Name, Seconds] = {}


class Heartbeat(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="heartbeat", kw_only=True):
    """No change since the report with this digest; fields as in Report."""

    version: int
    node: Annotated[Name, Meta(min_length=1)]
    boot_id: Annotated[Name, Meta(min_length=1)]
    sequence: Count
    digest: Name = ""
    acknowledged: tuple[Name, ...] = ()
    results: tuple[InstructionResult, ...] = ()
    dropped: Count = 0


Message = Report | Heartbeat
