"""From a verdict to the report of it: moments become ages, and everything has a bound. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.finding import Evidence, Finding, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.wire.digest import digest
from nodeguard.wire.encoding import MESSAGE_LIMIT, EncodingError, encode
from nodeguard.wire.report import VERSION, Active, Blind, InOrder, Inventory, Report, Sight
from nodeguard.wire.words import name, text

_FINDINGS = 128
_EVIDENCE = 4
_SLOTS = 64
_BLIND = 16

# What is kept back for what the sender adds: acknowledgements above all.
_ROOM = 24 * 1024


class Facts(Struct, frozen=True):
    """What a report says besides the verdict.

    node: its name. agent: version of nodeguard. catalogue: its digest. views: in which each check may vote,
    by check.
    """

    node: str
    agent: str
    catalogue: str
    views: Mapping[str, tuple[str, ...]] = {}
    inventory: Inventory = Inventory()


def report(verdict: Verdict, instant: Instant, facts: Facts, sequence: int = 0) -> Report:
    """The report of a verdict that was reached at an instant; it always fits into a message."""
    active = [one for one in verdict.findings if one.health != Health.OK]
    whole = Report(
        version=VERSION,
        node=name(facts.node),
        boot_id=name(instant.boot_id),
        sequence=sequence,
        health=verdict.health,
        knowledge=verdict.knowledge,
        agent=name(facts.agent),
        catalogue=name(facts.catalogue),
        findings=tuple(_active(one, instant, facts.views) for one in active[:_FINDINGS]),
        more=max(0, len(active) - _FINDINGS),
        unread=tuple(
            Blind(name(one.source), text(one.what), text(one.why), tuple(map(name, one.slots[:_SLOTS])))
            for one in verdict.unread[:_BLIND]
        ),
        inventory=facts.inventory,
        proven=tuple(
            InOrder(tuple(map(name, one.checks)), tuple(map(name, one.slots))) for one in verdict.proven
        ),
    )
    fitting = _fitted(whole)
    return replace(fitting, digest=digest(fitting))


def _active(one: Finding, instant: Instant, views: Mapping[str, tuple[str, ...]]) -> Active:
    return Active(
        check=name(one.check),
        target=name(one.target),
        health=one.health,
        part=name(one.part),
        slots=tuple(map(name, one.slots[:_SLOTS])),
        knowledge=one.knowledge,
        action=one.action,
        age=_age(one.since, instant),
        message=text(one.message),
        evidence=tuple(_sight(seen, instant) for seen in one.evidence[:_EVIDENCE]),
        more=max(0, len(one.evidence) - _EVIDENCE),
        views=tuple(map(name, views.get(one.check, ()))),
        note=text(one.note),
        family=name(one.family),
    )


def _sight(seen: Evidence, instant: Instant) -> Sight:
    return Sight(name(seen.source), text(seen.what), _age(seen.at, instant), max(0, seen.count))


def _age(at: float, instant: Instant) -> float:
    """Seconds since a moment; 0 for one that the wall clock puts into the future, or nowhere."""
    age = instant.wall - at
    return round(age, 3) if isfinite(age) and age > 0 else 0.0


def _fitted(whole: Report) -> Report:
    """A report that fits: evidence goes first, then what is in order, then the least of all the rest."""
    if _fits(whole):
        return whole
    bare = tuple(replace(one, evidence=(), more=one.more + len(one.evidence)) for one in whole.findings)
    smaller = replace(whole, findings=bare)
    if not _fits(smaller):
        smaller = replace(smaller, proven=())
    while not _fits(smaller):
        few = smaller.findings[: len(smaller.findings) // 2]
        kept = dict(list(smaller.inventory.parts.items())[: len(smaller.inventory.parts) // 2])
        lost = len(smaller.inventory.parts) - len(kept)
        smaller = replace(
            smaller,
            findings=tuple(replace(one, slots=one.slots[: len(one.slots) // 2]) for one in few),
            more=smaller.more + len(smaller.findings) - len(few),
            unread=smaller.unread[: len(smaller.unread) // 2],
            inventory=replace(smaller.inventory, parts=kept, more=smaller.inventory.more + lost),
        )
    return smaller


def _fits(one: Report) -> bool:
    try:
        return len(encode(one)) <= MESSAGE_LIMIT - _ROOM
    except EncodingError:
        return False
