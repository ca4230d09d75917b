"""What an agent says of its node: a report in full on every change, else a heartbeat.

Times are ages in seconds, never moments: the receiver puts its own clock to them. A field that a writer does
not know yet has a default, so that its reader need not care; only what names the message has none.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from nodeguard.model.finding import Action, DataStatus, Health

# What this code writes. A reader of version N accepts N-1 and N+1, so a word that is new to an enumeration is
# first accepted by one version and written by the next.
VERSION = 1

Name = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=2048)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0.0)]


class ReportedEvidence(Struct, frozen=True, omit_defaults=True):
    """One piece of evidence: who saw it, what, how many seconds before the verdict, and how often."""

    source: Name
    message: Text
    age: Seconds = 0.0
    count: Count = 1


class ReportedFinding(Struct, frozen=True, omit_defaults=True):
    """A finding that is not ok.

    target, part, slots: as in model.finding.Finding. age: seconds from when it was first seen to the verdict.
    evidence: what tells most, first; more: how many pieces are left out. views: in which it may vote. family:
    the check's.
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


class UnreadableTargets(Struct, frozen=True, omit_defaults=True):
    """Something that could not be read: what, by which source, of which slots, and why."""

    source: Name
    subject: Text = ""
    reason: Text = ""
    targets: tuple[Name, ...] = ()


class PassingChecks(Struct, frozen=True):
    """Checks that could tell, on each of some slots, that nothing is wrong there."""

    checks: tuple[Name, ...]
    targets: tuple[Name, ...]


class ReportedComponent(Struct, frozen=True, omit_defaults=True):
    """What occupies a slot; every field is empty where it is not known. firmware: a port's adapter's."""

    id: Name = ""
    model: Name = ""
    serial: Name = ""
    vbios: Name = ""
    firmware: Name = ""


class Inventory(Struct, frozen=True, omit_defaults=True):
    """What the node is made of. driver, kernel: versions. parts: by slot; more: how many are left out."""

    driver: Name = ""
    kernel: Name = ""
    platform: Name = ""
    components: dict[Name, ReportedComponent] = {}
    omitted: Count = 0


class InstructionResult(Struct, frozen=True, omit_defaults=True):
    """What became of an instruction, by its id. done: whether it was carried out; said: in words, why not
    where it was not.
    """

    id: Name
    done: bool = False
    message: Text = ""


class Report(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="report", kw_only=True):
    """A node's verdict in full.

    sequence: rises with every message of one boot, so that (node, boot_id, sequence) names this one. digest:
    of the state that this report tells, see wire.digest. age: seconds from the verdict to the sending.
    findings: worst first; more: how many are left out. acknowledged: ids of instructions that the agent is
    done with; answers: what became of these, as far as it is remembered. dropped: transitions that the agent
    lost since its start, because nobody heard it for too long. leaving: whether the agent ends. proven: what
    a mark may be given back for.
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
    passing: tuple[PassingChecks, ...] = ()


class Heartbeat(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="heartbeat", kw_only=True):
    """Nothing has changed since the report with this digest; fields as in Report."""

    version: int
    node: Annotated[Name, Meta(min_length=1)]
    boot_id: Annotated[Name, Meta(min_length=1)]
    sequence: Count
    digest: Name = ""
    acknowledged: tuple[Name, ...] = ()
    results: tuple[InstructionResult, ...] = ()
    dropped: Count = 0


Message = Report | Heartbeat
