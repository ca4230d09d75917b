"""From a verdict to the report of it: moments become ages, and everything has a bound. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.finding import Evidence, Finding, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Observation
from nodeguard.wire.bounded_text import bounded_name, bounded_text
from nodeguard.wire.digest import digest
from nodeguard.wire.encoding import MESSAGE_LIMIT, EncodingError, encode
from nodeguard.wire.report import (
    VERSION,
    Inventory,
    PassingChecks,
    Report,
    ReportedComponent,
    ReportedEvidence,
    ReportedFinding,
    UnreadableTargets,
)

_FINDINGS = 128
_EVIDENCE = 4
_SLOTS = 64
_BLIND = 16

# What is kept back for what the sender adds: acknowledgements above all.
_ROOM = 24 * 1024


class NodeFacts(Struct, frozen=True):
    """What a report says besides the verdict.

    node: its name. agent: version of nodeguard. catalogue: its digest. views: in which each check may vote,
    by check.
    """

    node: str
    agent: str
    catalogue: str
    topologies: Mapping[str, tuple[str, ...]] = {}
    inventory: Inventory = Inventory()


def build_report(verdict: Verdict, instant: Instant, facts: NodeFacts, sequence: int = 0) -> Report:
    """The report of a verdict that was reached at an instant; it always fits into a message."""
    active = [one for one in verdict.findings if one.health != Health.OK]
    whole = Report(
        version=VERSION,
        node=bounded_name(facts.node),
        boot_id=bounded_name(instant.boot_id),
        sequence=sequence,
        health=verdict.health,
        data_status=verdict.data_status,
        agent=bounded_name(facts.agent),
        catalogue=bounded_name(facts.catalogue),
        findings=tuple(_active(one, instant, facts.topologies) for one in active[:_FINDINGS]),
        omitted=max(0, len(active) - _FINDINGS),
        unreadable=tuple(
            UnreadableTargets(
                bounded_name(one.source),
                bounded_text(one.subject),
                bounded_text(one.reason),
                tuple(map(bounded_name, one.targets[:_SLOTS])),
            )
            for one in verdict.read_failures[:_BLIND]
        ),
        inventory=facts.inventory,
        passing=tuple(
            PassingChecks(tuple(map(bounded_name, one.checks)), tuple(map(bounded_name, one.targets)))
            for one in verdict.passing
        ),
    )
    fitting = _fitted(whole)
    return replace(fitting, digest=digest(fitting))


def _active(one: Finding, instant: Instant, views: Mapping[str, tuple[str, ...]]) -> ReportedFinding:
    return ReportedFinding(
        check=bounded_name(one.check),
        target=bounded_name(one.target),
        health=one.health,
        component=bounded_name(one.component),
        targets=tuple(map(bounded_name, one.targets[:_SLOTS])),
        data_status=one.data_status,
        action=one.action,
        age=_age(one.since, instant),
        message=bounded_text(one.message),
        evidence=tuple(_sight(seen, instant) for seen in one.evidence[:_EVIDENCE]),
        omitted=max(0, len(one.evidence) - _EVIDENCE),
        topologies=tuple(map(bounded_name, views.get(one.check, ()))),
        note=bounded_text(one.note),
        family=bounded_name(one.family),
    )


def _sight(seen: Evidence, instant: Instant) -> ReportedEvidence:
    return ReportedEvidence(
        bounded_name(seen.source), bounded_text(seen.text), _age(seen.at, instant), max(0, seen.count)
    )


def _age(at: float, instant: Instant) -> float:
    """Seconds since a moment; 0 for one that the wall clock puts into the future, or nowhere."""
    age = instant.wall - at
    return round(age, 3) if isfinite(age) and age > 0 else 0.0


def _fitted(whole: Report) -> Report:
    """A report that fits: evidence goes first, then what is in order, then the least of all the rest."""
    if _fits(whole):
        return whole
    bare = tuple(replace(one, evidence=(), more=one.omitted + len(one.evidence)) for one in whole.findings)
    smaller = replace(whole, findings=bare)
    if not _fits(smaller):
        smaller = replace(smaller, proven=())
    while not _fits(smaller):
        few = smaller.findings[: len(smaller.findings) // 2]
        kept = dict(list(smaller.inventory.components.items())[: len(smaller.inventory.components) // 2])
        lost = len(smaller.inventory.components) - len(kept)
        smaller = replace(
            smaller,
            findings=tuple(replace(one, slots=one.targets[: len(one.targets) // 2]) for one in few),
            more=smaller.omitted + len(smaller.findings) - len(few),
            unread=smaller.unreadable[: len(smaller.unreadable) // 2],
            inventory=replace(smaller.inventory, parts=kept, more=smaller.inventory.omitted + lost),
        )
    return smaller


def _fits(one: Report) -> bool:
    try:
        return len(encode(one)) <= MESSAGE_LIMIT - _ROOM
    except EncodingError:
        return False


_PARTS = 256


def build_inventory(observations: Iterable[Observation], platform: str = "") -> Inventory:
    """What observations tell of what the node is made of; of two of one slot, each adds what it knows."""
    driver = kernel = ""
    parts: dict[str, ReportedComponent] = {}
    for one in observations:
        driver = bounded_name(one.signals.get("driver.version", driver))
        kernel = bounded_name(one.signals.get("host.kernel", kernel))
        vbios = bounded_name(one.signals.get("gpu.vbios", ""))
        firmware = bounded_name(one.signals.get("port.firmware", ""))
        if one.component is None and not vbios and not firmware:
            continue
        known = parts.get(bounded_name(one.target), ReportedComponent())
        parts[bounded_name(one.target)] = ReportedComponent(
            id=(bounded_name(one.component.id) if one.component else "") or known.id,
            model=(bounded_name(one.component.model) if one.component else "") or known.model,
            serial=(bounded_name(one.component.serial) if one.component else "") or known.serial,
            vbios=vbios or known.vbios,
            firmware=firmware or known.firmware,
        )
    kept = dict(sorted(parts.items())[:_PARTS])
    return Inventory(driver, kernel, bounded_name(platform), kept, len(parts) - len(kept))
