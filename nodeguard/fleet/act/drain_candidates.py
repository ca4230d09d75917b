"""Drain candidates: the hardware of quarantined nodes from which work is to leave, and what forbids it. Pure.

A candidate is one faulty resource: a GPU, or the node. It needs a quarantine that is observed on the Node and
a finding that is `fatal` now, so that it ends with either of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache

from msgspec import Struct

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.mark_requests import MarkRequest, resource_of
from nodeguard.fleet.decide.restraints import Restraint, work_restraint
from nodeguard.fleet.policy_rules import drain_after
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import DOMAIN, NodePlacement
from nodeguard.model.action import NodeAction
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import MarkCause, NodeMarks
from nodeguard.model.policy import Policy
from nodeguard.model.target import NODE, target_kind, target_label

# Ids of NVIDIA GPUs, as NVML and the device plugin print them.
_GPU_ID = "GPU-"


class DrainCandidate(Struct, frozen=True):
    """One faulty resource of a node from which work is to leave."""

    uid: str
    """Of the Node."""
    node: str
    resource: str
    """The target: a GPU, or `node` for all GPUs of the node. A fault of several GPUs has one candidate for
    each of them."""
    since: float
    """When the oldest of its recorded causes began, in seconds since the epoch: later, once that one ends."""
    checks: tuple[str, ...]
    """The checks of its findings, worst first."""
    gpu_ids: tuple[str, ...] = ()
    """Ids of the faulty GPU, of its findings or else of the inventory; empty for the whole node, and for a
    GPU of which no id is known."""
    blocker: str = ""
    """Why its work stays for now; empty if nothing forbids the drain."""
    limited_for: float = 0.0
    """Seconds after which the limit of an hour that is its blocker allows it, if no other drain begins; 0 for
    another blocker."""
    is_on_device: bool = False
    """Whether only the GPU has the mark, so that the Node takes new pods."""
    after: float = 0.0
    """Seconds of notice that its pods get before they are evicted; 0 for none."""
    notice: NodeAction | None = None
    """The notice that its pods have; None for none, and once it is over."""
    costs: tuple[str, ...] = ()
    """Of its notice: the Jobs that would fail with the evictions, each with its reason."""
    is_early: bool = False
    """Whether the notice is over only because all its pods agreed: they must still do when they leave."""

    @property
    def request(self) -> str:
        """Return what identifies it among the drains of the node, whichever causes come and go. A later
        quarantine has a later attempt.
        """
        return drain_request(self.resource)

    @property
    def is_whole_node(self) -> bool:
        """Return whether all pods with GPUs are to leave."""
        return self.resource == NODE


@lru_cache(maxsize=4096)
def drain_request(resource: str) -> str:
    """Return what identifies the drains of a resource among those of its node."""
    return f"quarantine of {_label(resource)}"


def drain_candidates(
    policy: Policy,
    decisions: Iterable[MarkDecision],
    placement: NodePlacement,
    marks: NodeMarks,
    report: LatestReport,
    restraint: Callable[[MarkRequest], Restraint | None],
    degraded: Collection[str],
) -> Iterator[DrainCandidate]:
    """Yield the candidates of one node, by resource.

    decisions: on the mark requests of the node. marks: those in effect. report: its latest. restraint:
    returns what would forbid the mark of a request now. degraded: failure domains that are degraded.
    """
    requests: dict[str, list[MarkRequest]] = {}
    for decision in decisions:
        if _is_to_drain(policy, decision):
            for resource in resources(decision.request):
                requests.setdefault(resource, []).append(decision.request)
    for resource in sorted(requests):
        gpu_id = _inventory_id(report, resource)
        members = [request for request in requests[resource] if not _is_replaced(request, resource, gpu_id)]
        members.sort(key=lambda request: request.order)
        ids = {request.part for request in members if _names(request, resource)} or {gpu_id} - {""}
        onsets = [
            cause.since
            for _, cause in marks.causes()
            if _is_cause(cause, resource, members) and not _is_replaced(cause, resource, *ids)
        ]
        # Without a recorded cause the mark of another resource keeps the work of this one away.
        if members and onsets:
            yield DrainCandidate(
                uid=placement.uid,
                node=placement.name,
                resource=resource,
                since=min(onsets),
                checks=tuple(dict.fromkeys(request.check for request in members)),
                gpu_ids=tuple(sorted(ids)),
                blocker=_blocker(members, placement, restraint, degraded),
                is_on_device=all(request.device is not None for request in members),
                after=min(drain_after(policy, request.check) or 0.0 for request in members),
            )


def _blocker(
    requests: Iterable[MarkRequest],
    placement: NodePlacement,
    restraint: Callable[[MarkRequest], Restraint | None],
    degraded: Collection[str],
) -> str:
    """Return why the work of a resource stays, the reason of its worst fault; empty for none. One fault that
    nothing restrains is enough: a hold on one check does not protect the work from the faults of others.
    """
    restraints = [restraint(request) for request in requests]
    reasons = ["" if found is None else found.message for found in restraints]
    if all(reasons):
        return reasons[0]
    if reason := work_restraint(placement):
        return reason
    domain = next((name for name in placement.domains if name.removeprefix(DOMAIN) in degraded), "")
    return f"its failure domain {domain.removeprefix(DOMAIN)} is degraded" if domain else ""


def _is_to_drain(policy: Policy, decision: MarkDecision) -> bool:
    """Return whether the quarantine of a decision is observed, for a real fault with a rule to evict."""
    request = decision.request
    return (
        decision.state == IncidentState.MARKED
        and request.mark.kind.drains
        and not request.injected
        and drain_after(policy, request.check) is not None
    )


def resources(fault: MarkRequest | MarkCause) -> set[str]:
    """Return the GPUs that a fault is about, if it is about GPUs and their NVLinks only: the pods on other
    GPUs stay. A fault of all other hardware, such as a port, is one of the node.
    """
    resources = {resource_of(target) for target in fault.targets or (fault.target,)}
    return resources if all(target_kind(resource) == "gpu" for resource in resources) else {NODE}


def _is_cause(cause: MarkCause, resource: str, requests: Iterable[MarkRequest]) -> bool:
    """Return whether a cause quarantines a resource: it names it, or is that of a request. A fault may name
    more targets than its cause did at first.
    """
    if not cause.mark.kind.drains or cause.injected:
        return False
    keys = {(request.check, request.target) for request in requests}
    return resource in resources(cause) or (cause.check, cause.target) in keys


def _label(resource: str) -> str:
    return "the node" if resource == NODE else target_label(resource)


def _component(fault: MarkRequest | MarkCause) -> str:
    return fault.part if isinstance(fault, MarkRequest) else fault.component


def _names(fault: MarkRequest | MarkCause, resource: str) -> bool:
    """Return whether the component of a fault is the id of the GPU in a location."""
    return fault.target == resource != NODE and _component(fault).startswith(_GPU_ID)


def _is_replaced(fault: MarkRequest | MarkCause, resource: str, *gpu_ids: str) -> bool:
    """Return whether a fault is about another GPU than the present one. gpu_ids: its ids, as far as they are
    known.
    """
    return _names(fault, resource) and any(gpu_ids) and _component(fault) not in gpu_ids


def _inventory_id(report: LatestReport, resource: str) -> str:
    """Return the id of the GPU in a location by the inventory; empty if it is not known."""
    component = report.inventory.components.get(resource)
    return component.id if component is not None and component.id.startswith(_GPU_ID) else ""
