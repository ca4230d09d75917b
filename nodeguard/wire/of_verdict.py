"""From a verdict to the report of it: moments become ages, and everything has a bound. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.finding import Evidence, Finding, Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Observation
from nodeguard.wire.digest import digest
from nodeguard.wire.encoding import MESSAGE_LIMIT, EncodingError, encode
from nodeguard.wire.report import VERSION, Active, Blind, Inventory, Occupant, Report, Sight

_FINDINGS = 128
_EVIDENCE = 4
_SLOTS = 64
_BLIND = 16
_PARTS = 256
_TEXT = 512
_NAME = 200

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
        node=_name(facts.node),
        boot_id=_name(instant.boot_id),
        sequence=sequence,
        health=verdict.health,
        knowledge=verdict.knowledge,
        agent=_name(facts.agent),
        catalogue=_name(facts.catalogue),
        findings=tuple(_active(one, instant, facts.views) for one in active[:_FINDINGS]),
        more=max(0, len(active) - _FINDINGS),
        unread=tuple(
            Blind(_name(one.source), _text(one.what), _text(one.why), tuple(map(_name, one.slots[:_SLOTS])))
            for one in verdict.unread[:_BLIND]
        ),
        inventory=facts.inventory,
    )
    fitting = _fitted(whole)
    return replace(fitting, digest=digest(fitting))


def inventory(observations: Iterable[Observation], platform: str = "") -> Inventory:
    """What observations tell of what the node is made of; of two of one slot, each adds what it knows."""
    driver = kernel = ""
    parts: dict[str, Occupant] = {}
    for one in observations:
        driver = _name(one.signals.get("driver.version", driver))
        kernel = _name(one.signals.get("host.kernel", kernel))
        vbios = _name(one.signals.get("gpu.vbios", ""))
        firmware = _name(one.signals.get("port.firmware", ""))
        if one.part is None and not vbios and not firmware:
            continue
        known = parts.get(_name(one.slot), Occupant())
        parts[_name(one.slot)] = Occupant(
            id=(_name(one.part.id) if one.part else "") or known.id,
            model=(_name(one.part.model) if one.part else "") or known.model,
            serial=(_name(one.part.serial) if one.part else "") or known.serial,
            vbios=vbios or known.vbios,
            firmware=firmware or known.firmware,
        )
    kept = dict(sorted(parts.items())[:_PARTS])
    return Inventory(driver, kernel, _name(platform), kept, len(parts) - len(kept))


def _active(one: Finding, instant: Instant, views: Mapping[str, tuple[str, ...]]) -> Active:
    return Active(
        check=_name(one.check),
        target=_name(one.target),
        health=one.health,
        part=_name(one.part),
        slots=tuple(map(_name, one.slots[:_SLOTS])),
        knowledge=one.knowledge,
        action=one.action,
        age=_age(one.since, instant),
        message=_text(one.message),
        evidence=tuple(_sight(seen, instant) for seen in one.evidence[:_EVIDENCE]),
        more=max(0, len(one.evidence) - _EVIDENCE),
        views=tuple(map(_name, views.get(one.check, ()))),
        note=_text(one.note),
    )


def _sight(seen: Evidence, instant: Instant) -> Sight:
    return Sight(_name(seen.source), _text(seen.what), _age(seen.at, instant), max(0, seen.count))


def _age(at: float, instant: Instant) -> float:
    """Seconds since a moment; 0 for one that the wall clock puts into the future, or nowhere."""
    age = instant.wall - at
    return round(age, 3) if isfinite(age) and age > 0 else 0.0


def _clean(value: object, most: int) -> str:
    """Text that every JSON reader accepts, cut to a length: a kernel log may hold any bytes."""
    text = str(value)
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return cut.encode("utf-8", "replace").decode()


def _name(value: object) -> str:
    return _clean(value, _NAME)


def _text(value: object) -> str:
    return _clean(value, _TEXT)


def _fitted(whole: Report) -> Report:
    """A report that fits: evidence goes first, then the least of the findings, slots and parts."""
    if _fits(whole):
        return whole
    bare = tuple(replace(one, evidence=(), more=one.more + len(one.evidence)) for one in whole.findings)
    smaller = replace(whole, findings=bare)
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
