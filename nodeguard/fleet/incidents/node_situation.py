"""What the incidents of one node depend on: its report, decisions and marks, and silences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from msgspec import Struct

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.mark_requests import MarkRequest, grace_end, resource_of
from nodeguard.fleet.decide.observed_marks import NodeRemoval
from nodeguard.fleet.decide.release import CauseKey, ReleaseWait
from nodeguard.fleet.incidents.parent_incidents import ParentIncidents, Subject
from nodeguard.fleet.policy_rules import silence_end
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import NodeMarks
from nodeguard.model.policy import Policy


class NodeSituation(Struct, frozen=True):
    """The inputs of the incidents of one node. decisions: on its mark requests, as observed. marks: those in
    effect. removal: of some of them, that is not observed yet. waits: what each of them waits for.
    granted: the state of an active mark. graced: the end of the grace period, of subjects with suspect or
    fatal faults that make no request, as they are late or not fresh, all within the grace period of their
    mark. silenced: the end of the silence of each silenced check. jobs: names of the node's jobs. Times in
    seconds since the epoch.
    """

    placement: NodePlacement
    report: LatestReport | None
    decisions: tuple[MarkDecision, ...]
    marks: NodeMarks
    waits: Mapping[CauseKey, ReleaseWait]
    removal: NodeRemoval = NodeRemoval()
    shared: ParentIncidents = ParentIncidents()
    granted: IncidentState = IncidentState.MARKED
    graced: Mapping[Subject, float] = {}
    silenced: Mapping[str, float] = {}
    jobs: tuple[str, ...] = ()

    @property
    def changes_at(self) -> float:
        """Return when it changes without another event, in seconds since the epoch; infinity for never."""
        return min((*self.silenced.values(), *self.shared.early.values(), *self.graced.values()), default=inf)


def unconfirmed_until(requests: Iterable[MarkRequest], policy: Policy, now: float) -> dict[Subject, float]:
    """Return when the first grace period of a subject's unconfirmed faults ends, in seconds since the epoch.

    A subject is left out if one of them has lasted for longer. requests: see `unconfirmed_requests`. now:
    seconds since the epoch.
    """
    ends: dict[Subject, float] = {}
    for request in requests:
        subject = resource_of(request.target), request.injected
        end = grace_end(policy, request, now)
        ends[subject] = min(end, ends.get(subject, end))
    return {subject: end for subject, end in ends.items() if end}


def silenced_checks(
    placement: NodePlacement, report: LatestReport | None, marks: NodeMarks, policy: Policy, now: float
) -> dict[str, float]:
    """Return the silenced checks among the faults and marks of a node, each with the end of its silence:
    seconds since the epoch, infinity for one without an end. now: seconds since the epoch.
    """
    if not policy.silences:
        return {}
    checks = {cause.check for _, cause in marks.causes()}
    checks |= {fault.finding.check for fault in (report.faults() if report is not None else ())}
    ends = {check: silence_end(policy, check, placement.name, now) for check in checks}
    return {check: end for check, end in ends.items() if end}
