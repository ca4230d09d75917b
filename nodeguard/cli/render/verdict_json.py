"""The JSON of nodeguard check. Version 1: fields may be added, none taken away or changed in meaning."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import Struct

from nodeguard.cli.scope import verdict_data_status
from nodeguard.cli.timestamps import rfc3339
from nodeguard.model.finding import (
    Action,
    CounterTotal,
    DataStatus,
    Evidence,
    Finding,
    Health,
    PassedFamily,
    ReadFailure,
    Verdict,
)
from nodeguard.model.instant import Instant


class HealthOutput(StrEnum):
    """The health of the node; `unknown` where nothing could be judged, which is not healthy."""

    OK = "ok"
    WARNING = "warning"
    SUSPECT = "suspect"
    FATAL = "fatal"
    UNKNOWN = "unknown"


class EvidenceOutput(Struct, frozen=True):
    """One thing that was seen. at: RFC 3339. count: how often."""

    source: str
    what: str
    at: str
    count: int


class FindingOutput(Struct, frozen=True):
    """One finding.

    target: the slot, such as gpu/0000:3b:00; slots: all of them, where many with one cause are told of as
    one. part: identity of what sits there, empty where unknown. since: RFC 3339. note: a limit of what is
    known, such as `seen once`. evidence: what tells most first.
    """

    check: str
    title: str
    family: str
    target: str
    slots: tuple[str, ...]
    part: str
    health: Health
    knowledge: DataStatus
    action: Action
    since: str
    message: str
    remedy: str
    runbook: str
    note: str
    evidence: tuple[EvidenceOutput, ...]


class VerdictOutput(Struct, frozen=True):
    """The node's verdict.

    at: RFC 3339. judged: how many checks came to an answer, counted on each slot; where none did, health and
    knowledge are `unknown`.
    """

    node: str
    at: str
    boot_id: str
    platform: str
    health: HealthOutput
    knowledge: DataStatus
    judged: int


class CheckOutput(Struct, frozen=True):
    """What nodeguard check --format json prints.

    findings: all that is wrong, worst first. noted: seen and not held against the node. unread: what applies
    and could not be read. fine: what was found in order, by family. totals: counters above zero whose rise
    takes a second look.
    """

    version: Literal[1]
    verdict: VerdictOutput
    findings: tuple[FindingOutput, ...]
    noted: tuple[FindingOutput, ...]
    unread: tuple[ReadFailure, ...]
    fine: tuple[PassedFamily, ...]
    totals: tuple[CounterTotal, ...]


def as_json(hostname: str, verdict: Verdict, instant: Instant) -> str:
    """A verdict of a moment as JSON, indented for people."""
    output = CheckOutput(
        version=1,
        verdict=VerdictOutput(
            node=hostname,
            at=rfc3339(instant.wall),
            boot_id=instant.boot_id,
            platform=verdict.platform,
            health=HealthOutput(verdict.known_health or DataStatus.UNKNOWN),
            knowledge=verdict_data_status(verdict),
            judged=verdict.evaluated,
        ),
        findings=tuple(_finding(one) for one in verdict.findings),
        noted=tuple(_finding(one) for one in verdict.informational),
        unread=verdict.read_failures,
        fine=verdict.passed,
        totals=verdict.counter_totals,
    )
    return msgspec.json.format(msgspec.json.encode(output), indent=2).decode()


def _finding(one: Finding) -> FindingOutput:
    return FindingOutput(
        check=one.check,
        title=one.title,
        family=one.family,
        target=one.target,
        slots=one.targets or (one.target,),
        part=one.component,
        health=one.health,
        knowledge=one.data_status,
        action=one.action,
        since=rfc3339(one.since),
        message=one.message,
        remedy=one.remedy,
        runbook=one.runbook,
        note=one.note,
        evidence=tuple(_seen(seen) for seen in one.evidence),
    )


def _seen(seen: Evidence) -> EvidenceOutput:
    return EvidenceOutput(seen.source, seen.text, rfc3339(seen.at), seen.count)


def schema() -> str:
    """JSON schema of the output."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(CheckOutput)), indent=2).decode()
