"""JSON and YAML of nodeguard check.

Version 1: fields may be added, none is removed or changes its meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from nodeguard.cli.machine_inventory import MachineInventory
from nodeguard.cli.render.conclusion import no_commands
from nodeguard.cli.scope import is_fresh, reported_health, shows_reading, verdict_data_status
from nodeguard.cli.streams import to_json
from nodeguard.model.finding import (
    Action,
    CounterTotal,
    DataStatus,
    Evidence,
    Finding,
    Health,
    PassedFamily,
    Verdict,
)
from nodeguard.model.hardware import Hardware
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.observation import Component
from nodeguard.model.projection import project
from nodeguard.model.target import target_kind, target_order


class HealthOutput(StrEnum):
    """Health of the node; `unknown` where no check could be evaluated, which is not healthy."""

    OK = "ok"
    WARNING = "warning"
    SUSPECT = "suspect"
    FATAL = "fatal"
    UNKNOWN = "unknown"


class EvidenceOutput(Struct, frozen=True):
    """A reading or an event that supports a finding.

    at: RFC 3339, of the latest occurrence. count: number of occurrences. meaning: of an event. process, pid,
    workload: that the latest occurrence names; empty or 0 if it names none.
    """

    source: str
    reading: str
    at: str
    count: int
    meaning: str
    process: str
    pid: int
    workload: str


class FindingOutput(Struct, frozen=True):
    """A finding.

    target: such as gpu/0000:3b:00; targets: all of them, where one finding covers many with one cause.
    component: identity of the hardware in the target, empty where unknown. since: RFC 3339. note: a limit of
    the data, such as a single sample. evidence: the most important first. hardware: names of the GPU for a
    person who has to find it; null for another target, for several GPUs, and where they are not known. how:
    commands that carry out the action, in their order; empty if there are none.
    """

    check: str
    title: str
    family: str
    target: str
    targets: tuple[str, ...]
    component: str
    health: Health
    data_status: DataStatus
    action: Action
    since: str
    message: str
    remedy: str
    how: tuple[str, ...]
    runbook: str
    note: str
    evidence: tuple[EvidenceOutput, ...]
    hardware: Hardware | None


class VerdictOutput(Struct, frozen=True):
    """The verdict on the node.

    conclusion: what the health means for the node, as the first line of the table. at: RFC 3339. evaluated:
    number of evaluated checks, counted for each target; where it is 0, data_status is `unknown`, and health
    too, unless a finding is fatal.
    """

    node: str
    conclusion: str
    at: str
    boot_id: str
    platform: str
    health: HealthOutput
    data_status: DataStatus
    evaluated: int


class UnreadableOutput(Struct, frozen=True):
    """What a source could not read, on which targets, and why."""

    source: str
    readings: str
    reason: str
    targets: tuple[str, ...]


class EvaluatedTarget(Struct, frozen=True):
    """A target that was read: on which a check passed, or has a finding on fresh data.

    passed: number of checks that passed on it. hardware: names of the GPU; null for another target.
    """

    target: str
    passed: int
    hardware: Hardware | None


class CheckOutput(Struct, frozen=True):
    """Output of nodeguard check -o json.

    findings: active findings, worst first. informational: findings that do not affect node health.
    unreadable: what applies and could not be read. passed: by family. counters: see CounterTotal.
    evaluated_targets: GPUs, links, ports, disks and others that were read; a target that is not among them is
    not known to be healthy. A GPU with only warnings from the kernel log was not read.
    """

    version: Literal[1]
    verdict: VerdictOutput
    inventory: MachineInventory
    findings: tuple[FindingOutput, ...]
    informational: tuple[FindingOutput, ...]
    unreadable: tuple[UnreadableOutput, ...]
    passed: tuple[PassedFamily, ...]
    counters: tuple[CounterTotal, ...]
    evaluated_targets: tuple[EvaluatedTarget, ...]


class JsonContext(NamedTuple):
    """What the output has besides the verdict.

    conclusion: the first line. components: of the GPUs, by target. commands: of a finding.
    """

    hostname: str
    conclusion: str
    instant: Instant
    components: Mapping[str, Component]
    commands: Callable[[Finding], tuple[str, ...]] = no_commands


def check_output(verdict: Verdict, inventory: MachineInventory, context: JsonContext) -> CheckOutput:
    """Return the document of -o json and -o yaml."""
    return CheckOutput(
        version=1,
        verdict=VerdictOutput(
            node=context.hostname,
            conclusion=context.conclusion,
            at=rfc3339(context.instant.wall),
            boot_id=context.instant.boot_id,
            platform=verdict.platform,
            health=HealthOutput(reported_health(verdict)),
            data_status=verdict_data_status(verdict),
            evaluated=verdict.evaluated,
        ),
        inventory=inventory,
        findings=tuple(finding_output(finding, context.commands(finding)) for finding in verdict.findings),
        informational=tuple(finding_output(finding) for finding in verdict.informational),
        unreadable=tuple(
            UnreadableOutput(unread.source, unread.subject, unread.reason, unread.targets)
            for unread in verdict.read_failures
        ),
        passed=verdict.passed,
        counters=verdict.counter_totals,
        evaluated_targets=evaluated_targets(verdict, context.components),
    )


def evaluated_targets(verdict: Verdict, components: Mapping[str, Component]) -> tuple[EvaluatedTarget, ...]:
    """Return the targets that were read, by name. components: of the GPUs, by target."""
    passed: Counter[str] = Counter()
    for group in verdict.passing:
        passed.update(dict.fromkeys(group.targets, len(group.checks)))
    for finding in verdict.findings:
        for target in finding.targets or (finding.target,):
            is_read = shows_reading if target_kind(target) in {"gpu", "nvlink"} else is_fresh
            if is_read(finding):
                passed.update({target: 0})
    return tuple(
        EvaluatedTarget(target, passed[target], component.hardware if component else None)
        for target in sorted(passed, key=target_order)
        for component in (components.get(target),)
    )


def finding_output(finding: Finding, how: tuple[str, ...] = ()) -> FindingOutput:
    """Return a finding as it is in JSON. how: the commands of its action."""
    return project(
        FindingOutput,
        finding,
        targets=finding.targets or (finding.target,),
        since=rfc3339(finding.since),
        how=how,
        evidence=tuple(_evidence(evidence) for evidence in finding.evidence),
    )


def _evidence(evidence: Evidence) -> EvidenceOutput:
    return project(EvidenceOutput, evidence, reading=evidence.text, at=rfc3339(evidence.at))


def schema() -> str:
    """Return the JSON Schema of the output."""
    from nodeguard.config.schema_text import with_clean_descriptions  # noqa: PLC0415 - for --schema only

    return to_json(with_clean_descriptions(msgspec.json.schema(CheckOutput)))
