"""What a node's findings ask for, before anybody looks at budgets. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from math import inf

from msgspec import Struct

from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import DOMAIN, NodePlacement
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.mark import Mark
from nodeguard.model.node import Device
from nodeguard.model.target import target_kind
from nodeguard.wire.report import ReportedFinding

_MARKS = {Health.FATAL: Mark.QUARANTINE, Health.SUSPECT: Mark.SUSPECT}

# A taint's value, as Kubernetes limits it.
_WORD = 63
_ODD = re.compile(r"[^A-Za-z0-9._-]")


class MarkRequest(Struct, frozen=True):
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
    fault_class: str
    since: float
    slots: tuple[str, ...] = ()
    part: str = ""
    confirmations: int = 1
    device: Device | None = None
    shared: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from all others: uid, check, slot."""
        return self.uid, self.check, self.target

    @property
    def order(self) -> tuple[bool, int, float, str, str, str]:
        """Its place among all: severity, corroboration, age; then names, so that no two are alike."""
        return (
            self.mark != Mark.QUARANTINE,
            -self.confirmations,
            self.since,
            self.node,
            self.check,
            self.target,
        )


# Finds the device that a part of a node is, by its slot and identity.
FindDevice = Callable[[str, str], Device | None]


def no_request_reason(one: LatestReport, active: ReportedFinding, began: float) -> str:
    """Return why a finding of a report asks for no mark; empty where it asks for one. began: when the finding
    did, in seconds since the epoch.
    """
    if active.health not in _MARKS:
        return "a warning marks nothing"
    if active.data_status != DataStatus.FRESH:
        return f"marks nothing while it is {active.data_status.value}"
    if one.late:
        return "marks nothing until the node reports that it is so still"
    return "" if began < inf else "marks nothing, as its age is not known"


def requested_marks(seat: NodePlacement, one: LatestReport, find: FindDevice) -> tuple[MarkRequest, ...]:
    """The marks that a node's findings ask for. What is not known for sure now asks for none."""
    voices = _voices(one.findings)
    return tuple(
        _want(seat, active, began, voices[resource(active)], find)
        for active, began in zip(one.findings, one.began, strict=True)
        if not no_request_reason(one, active, began)
    )


def unconfirmed_requests(seat: NodePlacement, report: LatestReport) -> tuple[MarkRequest, ...]:
    """Return the marks that suspect and fatal findings would ask for if the report were not late and they
    were fresh. Their device is not looked up.
    """
    return tuple(
        _want(seat, finding, began)
        for finding, began in zip(report.findings, report.began, strict=True)
        if finding.health in _MARKS and no_request_reason(report, finding, began)
    )


def _want(
    seat: NodePlacement,
    active: ReportedFinding,
    began: float,
    voices: int = 1,
    find: FindDevice | None = None,
) -> MarkRequest:
    views = {path.removeprefix(DOMAIN).partition("/")[0] for path in seat.domains}
    return MarkRequest(
        uid=seat.uid,
        node=seat.name,
        mark=_MARKS[active.health],
        check=active.check,
        target=active.target,
        fault_class=fault_class(active),
        since=began,
        slots=active.targets,
        part=active.component,
        confirmations=voices,
        device=None if find is None else _device(active, find),
        shared=any(view in views for view in active.topologies),
    )


def resource(active: ReportedFinding) -> str:
    """The slot of what failed: an NVLink's GPU, else the finding's own."""
    return resource_of(active.target)


def resource_of(target: str) -> str:
    """The same of a finding's slot."""
    return target.partition("/nvlink/")[0]


def fault_class(active: ReportedFinding) -> str:
    """The class of a fault: its family, as the value of a taint may be."""
    return _ODD.sub("-", active.family)[:_WORD].strip("-_.") or "fault"


def _voices(findings: Iterable[ReportedFinding]) -> dict[str, int]:
    speak: dict[str, set[str]] = defaultdict(set)
    for active in findings:
        speak[resource(active)].update(_speakers(active))
    return {name: len(of) for name, of in speak.items()}


def _speakers(active: ReportedFinding) -> Iterator[str]:
    yield f"check {active.check}"
    yield from (seen.source for seen in active.evidence)


def _device(active: ReportedFinding, find: FindDevice) -> Device | None:
    """The GPU that a finding is about alone: a fault of a link is one of the node, as others hang on it."""
    if (
        active.health != Health.FATAL
        or target_kind(active.target) != "gpu"
        or set(active.targets) - {active.target}
    ):
        return None
    return find(active.target, active.component)
