"""What a node's findings ask for, before anybody looks at budgets. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from math import inf

from msgspec import Struct

from nodeguard.fleet.heard import Heard
from nodeguard.fleet.seat import DOMAIN, Seat
from nodeguard.model.finding import Health, Knowledge
from nodeguard.model.mark import Mark
from nodeguard.model.node import Device
from nodeguard.model.slot import kind
from nodeguard.wire.report import Active

_MARKS = {Health.FATAL: Mark.QUARANTINE, Health.SUSPECT: Mark.SUSPECT}

# A taint's value, as Kubernetes limits it.
_WORD = 63
_ODD = re.compile(r"[^A-Za-z0-9._-]")


class Want(Struct, frozen=True):
    """A mark that a finding asks for.

    word: the taint's value. since: seconds since the epoch at which the finding began. voices: how many
    sources and checks speak of the same part. device: the one GPU that it is about, where a cluster can keep
    work off that alone. shared: whether a part may have caused it that the node shares with others.
    """

    uid: str
    node: str
    mark: Mark
    check: str
    target: str
    word: str
    since: float
    slots: tuple[str, ...] = ()
    part: str = ""
    voices: int = 1
    device: Device | None = None
    shared: bool = False

    @property
    def name(self) -> tuple[str, str, str]:
        """What tells it from all others: uid, check, slot."""
        return self.uid, self.check, self.target

    @property
    def order(self) -> tuple[bool, int, float, str, str, str]:
        """Its place among all: severity, corroboration, age; then names, so that no two are alike."""
        return (self.mark != Mark.QUARANTINE, -self.voices, self.since, self.node, self.check, self.target)


# Finds the device that a part of a node is, by its slot and identity.
Find = Callable[[str, str], Device | None]


def no_request(one: Heard, active: Active, began: float) -> str:
    """Return why a finding of a report asks for no mark; empty where it asks for one. began: when the finding
    did, in seconds since the epoch.
    """
    if active.health not in _MARKS:
        return "a warning marks nothing"
    if active.knowledge != Knowledge.FRESH:
        return f"marks nothing while it is {active.knowledge.value}"
    if one.late:
        return "marks nothing until the node reports that it is so still"
    return "" if began < inf else "marks nothing, as its age is not known"


def wants(seat: Seat, one: Heard, find: Find) -> tuple[Want, ...]:
    """The marks that a node's findings ask for. What is not known for sure now asks for none."""
    voices = _voices(one.findings)
    return tuple(
        _want(seat, active, began, voices[resource(active)], find)
        for active, began in zip(one.findings, one.began, strict=True)
        if not no_request(one, active, began)
    )


def unconfirmed(seat: Seat, report: Heard) -> tuple[Want, ...]:
    """Return the marks that suspect and fatal findings would ask for if the report were not late and they
    were fresh. Their device is not looked up.
    """
    return tuple(
        _want(seat, finding, began)
        for finding, began in zip(report.findings, report.began, strict=True)
        if finding.health in _MARKS and no_request(report, finding, began)
    )


def _want(seat: Seat, active: Active, began: float, voices: int = 1, find: Find | None = None) -> Want:
    views = {path.removeprefix(DOMAIN).partition("/")[0] for path in seat.domains}
    return Want(
        uid=seat.uid,
        node=seat.name,
        mark=_MARKS[active.health],
        check=active.check,
        target=active.target,
        word=word(active),
        since=began,
        slots=active.slots,
        part=active.part,
        voices=voices,
        device=None if find is None else _device(active, find),
        shared=any(view in views for view in active.views),
    )


def resource(active: Active) -> str:
    """The slot of what failed: an NVLink's GPU, else the finding's own."""
    return resource_of(active.target)


def resource_of(target: str) -> str:
    """The same of a finding's slot."""
    return target.partition("/nvlink/")[0]


def word(active: Active) -> str:
    """The class of a fault: its family, as the value of a taint may be."""
    return _ODD.sub("-", active.family)[:_WORD].strip("-_.") or "fault"


def _voices(findings: Iterable[Active]) -> dict[str, int]:
    speak: dict[str, set[str]] = defaultdict(set)
    for active in findings:
        speak[resource(active)].update(_speakers(active))
    return {name: len(of) for name, of in speak.items()}


def _speakers(active: Active) -> Iterator[str]:
    yield f"check {active.check}"
    yield from (seen.source for seen in active.evidence)


def _device(active: Active, find: Find) -> Device | None:
    """The GPU that a finding is about alone: a fault of a link is one of the node, as others hang on it."""
    if active.health != Health.FATAL or kind(active.target) != "gpu" or set(active.slots) - {active.target}:
        return None
    return find(active.target, active.part)
