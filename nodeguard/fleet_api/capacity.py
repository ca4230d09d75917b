"""Views of the capacity of the fleet: which nodes take new work, and which of them are faulty. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.marks_in_effect import is_in_effect
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.fleet_api.reasons import count_reasons, reason_kind
from nodeguard.fleet_api.schema.capacity import CapacityView, WorkState
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import MARK_OF_HEALTH
from nodeguard.model.target import target_kind

# States of a request without a mark.
_UNMARKED = frozenset({IncidentState.WITHHELD, IncidentState.DRY_RUN, IncidentState.PENDING})

# States in which no GPU of a node takes work.
_OUT = frozenset({WorkState.CORDONED, WorkState.NOT_READY})

# By these restraints the diagnosis finds a cause other than the node.
_OTHER_CAUSES = frozenset({"suppressed-check", "bad-job-start"})


def capacity(planner: Planner, healths: Mapping[str, Health | None]) -> CapacityView:
    """Return the nodes of the fleet by whether they take new work. healths: by uid; None for unknown."""
    placements = planner.state.placements
    states = {uid: work_state(planner, placements[uid], health) for uid, health in healths.items()}
    faulty = [uid for uid, state in states.items() if state == WorkState.FAULTY]
    faults = filter(None, (unmarked_fault(planner, uid) for uid in faulty))
    reasons, other_reasons = count_reasons(faults, reason_kind)
    counts = Counter(states.values())
    gpus = [_count_gpus(planner, placements[uid], state) for uid, state in states.items()]
    return CapacityView(
        nodes={state: counts[state] for state in WorkState},
        reasons=reasons,
        other_reasons=other_reasons,
        gpus=sum(total for total, _ in gpus),
        gpus_in_service=sum(in_service for _, in_service in gpus),
    )


# The check that fires if a node has fewer GPUs than its platform: those that vanished have no other finding.
_COUNT_CHECK = "gpu-count"

# An HGX-2 has as many, and no board has more.
_MOST_GPUS = 16


def _count_gpus(planner: Planner, placement: NodePlacement, state: WorkState) -> tuple[int, int]:
    """Return the number of GPUs of a node, and of those that take new work. state: of the node."""
    uid = placement.uid
    report = planner.reports.get(uid)
    lost, _ = _lost_gpus(report)
    total = count_gpus(planner, uid)
    marks = planner.state.marks_in_effect(uid)
    is_out = state in _OUT or planner.state.marks.observed(uid).is_out
    if is_out or any(not mark.kind.gang_only for mark in marks.node.marks):
        return total, 0
    marked = {f"gpu/{device.address or device.name}" for device in marks.devices}
    return total, max(0, total - max(len(marked | lost), _missing_gpus(report, total)))


def count_gpus(planner: Planner, uid: str) -> int:
    """Return the number of GPUs of a node, lost ones too as far as these are counted."""
    placement = planner.state.placements.get(uid)
    counted = placement.gpus if placement is not None else planner.state.nodes[uid].gpus
    return max(counted, _lost_gpus(planner.reports.get(uid))[1])


def _lost_gpus(report: LatestReport | None) -> tuple[frozenset[str], int]:
    """Return the GPUs with a fault that the inventory of a node lacks, and the number of these and those in
    it; 0 for a node without a faulty GPU.
    """
    findings = report.findings if report is not None else ()
    faulty = frozenset(
        finding.target
        for finding in findings
        if finding.health in MARK_OF_HEALTH and target_kind(finding.target) == "gpu"
    )
    if report is None or not faulty:
        return frozenset(), 0
    present = {target for target in report.inventory.components if target_kind(target) == "gpu"}
    lost = faulty - present if present else frozenset[str]()
    return lost, len(present) + len(lost)


def _missing_gpus(report: LatestReport | None, total: int) -> int:
    """Return how many of a node's GPUs its inventory lacks, if it reports that it has fewer than expected.

    With MIG the Node counts instances, more than any node has GPUs: how many of these are missing is unknown.
    """
    if report is None or all(finding.check != _COUNT_CHECK for finding in report.findings):
        return 0
    present = sum(target_kind(target) == "gpu" for target in report.inventory.components)
    return max(0, total - present) if total <= _MOST_GPUS else 0


def work_state(planner: Planner, placement: NodePlacement, health: Health | None) -> WorkState:
    """Return whether a node takes new work. health: None for unknown."""
    uid, state = placement.uid, planner.state
    if placement.cordoned_by_user:
        return WorkState.CORDONED
    if state.marks.observed(uid).is_out:
        return WorkState.MARKED
    if not placement.ready:
        return WorkState.NOT_READY
    if unmarked_fault(planner, uid) is not None:
        return WorkState.FAULTY
    if state.marks_in_effect(uid).node.marks:
        return WorkState.MARKED
    return WorkState.UNKNOWN if health is None else WorkState.WORKING


def unmarked_fault(planner: Planner, uid: str) -> MarkDecision | None:
    """Return the worst fault of a node for which no mark is in effect; None if there is none. An injected
    fault is none.
    """
    decisions = planner.tracker.decisions.get(uid, ())
    if not decisions:
        return None
    marks = planner.state.marks_in_effect(uid)
    unmarked = [
        decision
        for decision in decisions
        if decision.state in _UNMARKED
        and decision.restraint not in _OTHER_CAUSES
        and not decision.request.injected
        and not is_in_effect(marks, decision.request.mark, decision.request.device)
    ]
    return min(unmarked, key=lambda decision: decision.request.mark.rank, default=None)
