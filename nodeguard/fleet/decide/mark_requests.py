"""Mark requests: the marks that the findings of a node ask for, before any budget. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from math import inf

from msgspec import Struct

from nodeguard.fleet.diagnosis.node_evidence import is_kernel_confirmed
from nodeguard.fleet.state.device_index import FindDevice
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport, ReportedFault
from nodeguard.fleet.state.node_placement import DOMAIN, NodePlacement
from nodeguard.model.device import Device
from nodeguard.model.finding import DataStatus
from nodeguard.model.mark import MARK_OF_HEALTH, Mark, NodeMarks
from nodeguard.model.policy import Policy
from nodeguard.model.target import target_kind
from nodeguard.wire.report import ReportedFinding

# A taint's value, as Kubernetes limits it.
_MAX_VALUE = 63
_INVALID = re.compile(r"[^A-Za-z0-9._-]")


class MarkRequest(Struct, frozen=True, dict=True):
    """A mark that a finding asks for.

    fault_class: the value of the taint. since: seconds since the epoch at which the finding began.
    confirmations: how many sources and checks report the same resource. confirmed: whether the kernel log and
    another source report it, and the mark is a quarantine. device: the one GPU that the fault concerns, where
    the cluster can keep work off that GPU only. shared: whether hardware that the node shares with others may
    be the cause. injected: whether an operator injected the fault. fact: whether the finding is one.
    """

    uid: str
    node: str
    mark: Mark
    check: str
    target: str
    fault_class: str
    since: float
    targets: tuple[str, ...] = ()
    part: str = ""
    confirmations: int = 1
    device: Device | None = None
    shared: bool = False
    injected: bool = False
    confirmed: bool = False
    fact: bool = False

    @cached_property
    def key(self) -> tuple[str, str, str]:
        """Return the key of the request: uid, check, target."""
        return self.uid, self.check, self.target

    @cached_property
    def order(self) -> tuple[bool, int, int, float, str, str, str]:
        """Return its rank: real faults first, so that no injected one uses up their budget; then severity,
        confirmations, age; then names, so that no two requests are equal.
        """
        return (
            self.injected,
            self.mark.rank,
            -self.confirmations,
            self.since,
            self.node,
            self.check,
            self.target,
        )


def no_request_reason(report: LatestReport, active: ReportedFinding, began: float) -> str:
    """Return why a finding of a report asks for no mark; empty where it asks for one. began: when the finding
    did, in seconds since the epoch.
    """
    if active.health not in MARK_OF_HEALTH:
        return "a warning marks nothing"
    if active.data_status != DataStatus.FRESH:
        return f"marks nothing while it is {active.data_status.value}"
    if report.late:
        return "marks nothing until the node reports that it is so still"
    return "" if began < inf else "marks nothing, as its age is not known"


def requested_marks(
    placement: NodePlacement, report: LatestReport, find_device: FindDevice
) -> tuple[MarkRequest, ...]:
    """Return the marks that the findings of a node ask for. A finding that is not fresh asks for none."""
    by_resource: dict[str, list[ReportedFinding]] = defaultdict(list)
    for finding in report.findings:
        by_resource[resource(finding)].append(finding)
    return tuple(
        _request(
            placement, fault, () if fault.injected else by_resource[resource(fault.finding)], find_device
        )
        for fault in report.faults()
        if not no_request_reason(report, fault.finding, fault.began)
    )


class MarkRequests:
    """The mark requests of all nodes, updated node by node."""

    def __init__(self, state: FleetState) -> None:
        self._state = state
        self._requests: dict[str, tuple[MarkRequest, ...]] = {}

    def update_node(self, uid: str) -> None:
        """Update the requests of a node from its latest report; without a placement, it has none."""
        placement, report = self._state.placements.get(uid), self._state.reports.get(uid)
        requests: tuple[MarkRequest, ...] = ()
        if placement is not None and report is not None:
            requests = requested_marks(placement, report, self._state.device_finder(uid))
        if requests:
            self._requests[uid] = requests
        else:
            self._requests.pop(uid, None)

    def __iter__(self) -> Iterator[MarkRequest]:
        return (request for requests in self._requests.values() for request in requests)


def unconfirmed_requests(placement: NodePlacement, report: LatestReport) -> tuple[MarkRequest, ...]:
    """Return the marks that suspect and fatal findings would ask for if the report were not late and they
    were fresh. Their device is not looked up.
    """
    return tuple(
        _request(placement, fault)
        for fault in report.faults()
        if fault.finding.health in MARK_OF_HEALTH and no_request_reason(report, fault.finding, fault.began)
    )


def _request(
    placement: NodePlacement,
    fault: ReportedFault,
    findings: Iterable[ReportedFinding] = (),
    find_device: FindDevice | None = None,
) -> MarkRequest:
    """Return the request of a fault. findings: those of the same resource, which confirm each other."""
    active, mark = fault.finding, MARK_OF_HEALTH[fault.finding.health]
    topologies = {path.removeprefix(DOMAIN).partition("/")[0] for path in placement.domains}
    return MarkRequest(
        uid=placement.uid,
        node=placement.name,
        mark=mark,
        check=active.check,
        target=active.target,
        fault_class=fault_class(active),
        since=fault.began,
        targets=active.targets,
        part=active.component,
        confirmations=len({reporter for finding in findings for reporter in _reporters(finding)}) or 1,
        confirmed=not mark.kind.gang_only and is_kernel_confirmed(*findings),
        device=None if find_device is None else _device(active, find_device),
        shared=any(topology in topologies for topology in active.topologies),
        injected=fault.injected,
        fact=active.fact,
    )


def resource(active: ReportedFinding) -> str:
    """Return the target of the resource that failed: the GPU of an NVLink, else the finding's target."""
    return resource_of(active.target)


def resource_of(target: str) -> str:
    """Return the target of the resource that failed, from a finding's target."""
    return target.partition("/nvlink/")[0]


def fault_class(active: ReportedFinding) -> str:
    """Return the fault class: the finding's family as a valid taint value."""
    return _INVALID.sub("-", active.family)[:_MAX_VALUE].strip("-_.") or "fault"


def _reporters(active: ReportedFinding) -> Iterator[str]:
    yield f"check {active.check}"
    yield from (seen.source for seen in active.evidence)


def _device(active: ReportedFinding, find_device: FindDevice) -> Device | None:
    """Return the only GPU that the fault concerns: a fault of a link concerns the whole node."""
    if (
        not MARK_OF_HEALTH[active.health].kind.on_device
        or target_kind(active.target) != "gpu"
        or set(active.targets) - {active.target}
    ):
        return None
    return find_device(active.target, active.component)


def is_marked_for(marks: NodeMarks, request: MarkRequest) -> bool:
    """Return whether an equal or more severe mark for the same finding is active on the node or a device.

    The mark of an injected fault is none for a real one: the real fault replaces its cause.
    """
    return any(
        (cause.check, cause.target) == (request.check, request.target)
        and cause.mark.covers(request.mark)
        and (request.injected or not cause.injected)
        for _, cause in marks.causes()
    )


def grace_period(policy: Policy, request: MarkRequest) -> float:
    """Return the grace period of a request in seconds: how long its finding must last before the mark."""
    own = policy.grace.of(request.mark)
    return max(own, policy.grace.shared) if request.shared else own


def grace_end(policy: Policy, request: MarkRequest, now: float) -> float:
    """Return when the grace period of a request ends, in seconds since the epoch; 0 when it is over."""
    end = request.since + grace_period(policy, request)
    return end if now < end else 0.0
