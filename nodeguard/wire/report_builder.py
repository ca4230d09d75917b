"""The report of a verdict: times become ages, and every field gets a limit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from functools import lru_cache
from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.finding import Evidence, Finding, Health, PassingChecks, Verdict
from nodeguard.model.injection import Injection
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Observation
from nodeguard.model.printable import printable
from nodeguard.model.target import target_kind
from nodeguard.wire.digest import digest
from nodeguard.wire.encoding import MESSAGE_LIMIT, EncodingError, encode
from nodeguard.wire.report import (
    VERSION,
    Inventory,
    Report,
    ReportedComponent,
    ReportedEvidence,
    ReportedFinding,
    ReportedInjection,
    ReportedPassing,
    UnreadableTargets,
)
from nodeguard.wire.versions import VersionReceipts

_TEXT_LENGTH = 512
_NAME_LENGTH = 200


def bounded_name(value: object) -> str:
    """Return a name, cut to a length that every reader accepts."""
    return _cut(value, _NAME_LENGTH)


def bounded_text(value: object) -> str:
    """Return a sentence without control characters, cut to a length that every reader accepts."""
    return _cut(printable(str(value)), _TEXT_LENGTH)


def _cut(value: object, length: int) -> str:
    """Return valid UTF-8 that ends in an ellipsis if it was cut."""
    whole = str(value)
    if len(whole) <= length and whole.isascii():
        return whole
    cut = whole if len(whole) <= length else whole[: length - 1] + "…"
    return cut.encode("utf-8", "replace").decode()


# Signals with a version that is part of the inventory.
_VERSIONS = frozenset({"driver.version", "host.kernel", "gpu.vbios", "port.firmware"})

_MAX_FINDINGS = 128
_MAX_EVIDENCE = 4
_MAX_TARGETS = 64
_MAX_UNREADABLE = 16
_MAX_COMPONENTS = 256
_MAX_RECEIVED = 16

# Kinds of components that precede the others where not all fit: a node may have hundreds of disks.
FIRST_KINDS = ("gpu", "nvswitch", "port")

# Bytes reserved for fields that the sender adds, mainly acknowledgements.
_RESERVED = 24 * 1024


class NodeFacts(Struct, frozen=True):
    """The facts in a report that are not part of the verdict.

    node: its name. agent: version of nodeguard. catalogue: its digest. topologies: in which each check votes,
    by check. fact_checks: the checks of which the evidence is a fact. receipts: when the node received its
    versions, by the wall clock.
    """

    node: str
    agent: str
    catalogue: str
    topologies: Mapping[str, tuple[str, ...]] = {}
    inventory: Inventory = Inventory()
    fact_checks: Set[str] = frozenset()
    receipts: VersionReceipts = VersionReceipts()


def build_report(
    verdict: Verdict,
    instant: Instant,
    facts: NodeFacts,
    sequence: int = 0,
    injections: Iterable[Injection] = (),
) -> Report:
    """Return the report of a verdict that was reached at an instant; it always fits a message.

    injections: the faults that are injected at that instant.
    """
    active = [finding for finding in verdict.findings if finding.health != Health.OK]
    whole = Report(
        version=VERSION,
        node=bounded_name(facts.node),
        boot_id=bounded_name(instant.boot_id),
        sequence=sequence,
        health=verdict.health,
        data_status=verdict.data_status,
        agent=bounded_name(facts.agent),
        catalogue=bounded_name(facts.catalogue),
        findings=tuple(_finding(finding, instant, facts) for finding in active[:_MAX_FINDINGS]),
        omitted=max(0, len(active) - _MAX_FINDINGS),
        unreadable=tuple(
            UnreadableTargets(
                bounded_name(unread.source),
                bounded_text(unread.subject),
                bounded_text(unread.reason),
                tuple(map(bounded_name, unread.targets[:_MAX_TARGETS])),
            )
            for unread in verdict.read_failures[:_MAX_UNREADABLE]
        ),
        inventory=facts.inventory,
        passing=tuple(map(_passing, verdict.passing)),
        injections=tuple(_injection(item, instant, facts) for item in injections),
        received=_newest(facts.receipts.ages(instant.wall)),
    )
    fitted = _fit(whole)
    return replace(fitted, digest=digest(fitted))


def _newest(ages: Mapping[str, float]) -> dict[str, float]:
    """Return the youngest of some ages of versions."""
    youngest = sorted(ages, key=lambda path: (ages[path], path))[:_MAX_RECEIVED]
    return {path: round(ages[path], 3) for path in youngest}


@lru_cache(maxsize=64)
def _passing(proven: PassingChecks) -> ReportedPassing:
    """Return passed checks with bounded names; most are the same in each report."""
    return ReportedPassing(tuple(map(bounded_name, proven.checks)), tuple(map(bounded_name, proven.targets)))


def is_in_inventory(observation: Observation) -> bool:
    """Return whether an observation names a component or a version."""
    return observation.component is not None or not _VERSIONS.isdisjoint(observation.signals)


def build_inventory(observations: Iterable[Observation], platform: str = "") -> Inventory:
    """Return the components of a node; several observations of one target complete each other."""
    driver = kernel = ""
    components: dict[str, ReportedComponent] = {}
    for observation in observations:
        driver = bounded_name(observation.signals.get("driver.version", driver))
        kernel = bounded_name(observation.signals.get("host.kernel", kernel))
        vbios = bounded_name(observation.signals.get("gpu.vbios", ""))
        firmware = bounded_name(observation.signals.get("port.firmware", ""))
        part, target = observation.component, bounded_name(observation.target)
        hardware = part.hardware if part else None
        if part is None and not vbios and not firmware:
            continue
        earlier = components.get(target, ReportedComponent())
        components[target] = ReportedComponent(
            id=(bounded_name(part.id) if part else "") or earlier.id,
            model=(bounded_name(part.model) if part else "") or earlier.model,
            serial=(bounded_name(hardware.serial) if hardware else "") or earlier.serial,
            vbios=vbios or earlier.vbios,
            firmware=firmware or earlier.firmware,
            index=hardware.index if hardware and hardware.index is not None else earlier.index,
        )
    fitted = {target: components[target] for target in sorted(components, key=_order)[:_MAX_COMPONENTS]}
    return Inventory(driver, kernel, bounded_name(platform), fitted, len(components) - len(fitted))


def _order(target: str) -> tuple[int, str]:
    kind = target_kind(target)
    return (FIRST_KINDS.index(kind) if kind in FIRST_KINDS else len(FIRST_KINDS)), target


def _finding(finding: Finding, instant: Instant, facts: NodeFacts) -> ReportedFinding:
    return ReportedFinding(
        check=bounded_name(finding.check),
        target=bounded_name(finding.target),
        health=finding.health,
        component=bounded_name(finding.component),
        targets=tuple(map(bounded_name, finding.targets[:_MAX_TARGETS])),
        data_status=finding.data_status,
        action=finding.action,
        age=_age(finding.since, instant),
        message=bounded_text(finding.message),
        evidence=tuple(_evidence(evidence, instant) for evidence in finding.evidence[:_MAX_EVIDENCE]),
        omitted=max(0, len(finding.evidence) - _MAX_EVIDENCE),
        topologies=tuple(map(bounded_name, facts.topologies.get(finding.check, ()))),
        note=bounded_text(finding.note),
        family=bounded_name(finding.family),
        hardware=finding.hardware.limited(bounded_name) if finding.hardware else None,
        fact=finding.check in facts.fact_checks,
    )


def _injection(injection: Injection, instant: Instant, facts: NodeFacts) -> ReportedInjection:
    return ReportedInjection(
        finding=_finding(injection.finding, instant, facts),
        by=bounded_name(injection.by),
        seconds=round(max(0.0, injection.until - instant.wall), 3),
    )


def _evidence(evidence: Evidence, instant: Instant) -> ReportedEvidence:
    return ReportedEvidence(
        bounded_name(evidence.source),
        bounded_text(evidence.text),
        _age(evidence.at, instant),
        max(0, evidence.count),
    )


def _age(at: float, instant: Instant) -> float:
    """Return the seconds since a time; 0 for an invalid time and for one in the future."""
    age = instant.wall - at
    return round(age, 3) if isfinite(age) and age > 0 else 0.0


def _fit(whole: Report) -> Report:
    """Return a report that fits: without evidence, then without passing checks, then without the rest."""
    if _fits(whole):
        return whole
    bare = tuple(
        replace(finding, evidence=(), omitted=finding.omitted + len(finding.evidence))
        for finding in whole.findings
    )
    smaller = replace(whole, findings=bare)
    if not _fits(smaller):
        smaller = replace(smaller, passing=())
    while not _fits(smaller):
        findings = smaller.findings[: len(smaller.findings) // 2]
        inventory = smaller.inventory
        components = dict(list(inventory.components.items())[: len(inventory.components) // 2])
        dropped = len(inventory.components) - len(components)
        smaller = replace(
            smaller,
            findings=tuple(
                replace(finding, targets=finding.targets[: len(finding.targets) // 2]) for finding in findings
            ),
            omitted=smaller.omitted + len(smaller.findings) - len(findings),
            unreadable=smaller.unreadable[: len(smaller.unreadable) // 2],
            inventory=replace(inventory, components=components, omitted=inventory.omitted + dropped),
        )
    return smaller


def _fits(report: Report) -> bool:
    try:
        return len(encode(report)) <= MESSAGE_LIMIT - _RESERVED
    except EncodingError:
        return False
