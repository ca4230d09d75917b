"""Marks of a replay over time: those that were set, withheld, or only a dry run."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import Mark
from nodeguard.model.projection import project


class MarkEnd(StrEnum):
    """The end of a mark.

    `proven`, `retracted`, `superseded`, `removed`: see release.ReleasedMark. `finding-ended`: the finding
    ended before anything was marked. `marked`: the mark was granted later. `replaced`: another mark replaced
    it. `node-deleted`: its Node was deleted. `open`: it has not ended.
    """

    PROVEN = "proven"
    RETRACTED = "retracted"
    SUPERSEDED = "superseded"
    REMOVED = "removed"
    FINDING_ENDED = "finding-ended"
    MARKED = "marked"
    REPLACED = "replaced"
    NODE_DELETED = "node-deleted"
    OPEN = "open"


class RequestedMark(Struct, frozen=True):
    """The mark that a finding requests: node by name and uid, check, target, kind. pool: of the node, or
    empty.
    """

    node: str
    uid: str
    pool: str
    check: str
    target: str
    mark: Mark


class MarkSpan(Struct):
    """A time in which a mark had one state: `Marked`, `Withheld`, `DryRun`, or `Open`: the mark of a degraded
    domain covers the node.

    start, end: seconds since the epoch; end is None while it lasts. reasons: why it was not set, or would not
    be, each reason once, in their order.
    """

    request: RequestedMark
    state: IncidentState
    start: float
    end: float | None = None
    end_reason: MarkEnd = MarkEnd.OPEN
    reasons: list[str] = []


# A mark request by uid, check and target.
_Name = tuple[str, str, str]


class MarkTracker:
    """Follows the marks of a planner. spans: in the order of their start. ended_in_grace: number of findings
    that ended or changed within their grace period, by check.
    """

    def __init__(self) -> None:
        self.spans: list[MarkSpan] = []
        self.ended_in_grace: dict[str, int] = {}
        self._marked: dict[str, dict[tuple[str, str], MarkSpan]] = {}
        self._requested: dict[_Name, MarkSpan] = {}
        self._in_grace: set[_Name] = set()
        self._outcomes: dict[str, tuple[MarkDecision, ...]] = {}

    def plan_applied(self, planner: Planner, plan: Plan, at: float) -> None:
        """Record a plan that was carried out at once."""
        releases = {
            (uid, release.cause.check, release.cause.target): release.reason for uid, release in plan.released
        }
        for decision in plan.decisions:
            uid, pool = decision.node, planner.state.placements[decision.node].pool
            spans = self._marked.setdefault(uid, {})
            causes = {(cause.check, cause.target): cause for cause in decision.record.causes}
            for key, span in list(spans.items()):
                cause = causes.get(key)
                if cause is not None and cause.mark == span.request.mark:
                    continue
                reason = releases.get((uid, *key), "")
                _end(spans.pop(key), at, MarkEnd(reason) if reason in _RELEASES else MarkEnd.REPLACED)
            for key, cause in causes.items():
                if key not in spans:
                    request = RequestedMark(decision.name, uid, pool, cause.check, cause.target, cause.mark)
                    spans[key] = self._start(request, IncidentState.MARKED, at)
            if not spans:
                del self._marked[uid]
        self._compare_outcomes(planner, at)

    def node_deleted(self, uid: str, at: float) -> None:
        """Record the deletion of a Node."""
        for span in self._marked.pop(uid, {}).values():
            _end(span, at, MarkEnd.NODE_DELETED)
        for outcome in self._outcomes.pop(uid, ()):
            self._in_grace.discard(outcome.request.key)
            requested = self._requested.pop(outcome.request.key, None)
            if requested is not None:
                _end(requested, at, MarkEnd.NODE_DELETED)

    def _start(self, request: RequestedMark, state: IncidentState, at: float) -> MarkSpan:
        span = MarkSpan(request, state, at)
        self.spans.append(span)
        return span

    def _compare_outcomes(self, planner: Planner, at: float) -> None:
        """Record what changed in the outcomes of mark requests since the last plan."""
        now = planner.tracker.decisions
        uids = self._outcomes.keys() | now.keys()
        changed = [uid for uid in uids if self._outcomes.get(uid) != now.get(uid)]
        for uid in sorted(changed):
            before, after = self._outcomes.get(uid, ()), now.get(uid, ())
            names = {outcome.request.key for outcome in after}
            for outcome in before:
                if outcome.request.key not in names:
                    self._request_ended(outcome, at)
            for outcome in after:
                self._request_changed(planner, outcome, at)
        self._outcomes = dict(now)

    def _request_ended(self, outcome: MarkDecision, at: float) -> None:
        name, check = outcome.request.key, outcome.request.check
        if name in self._in_grace:
            self._in_grace.discard(name)
            self.ended_in_grace[check] = self.ended_in_grace.get(check, 0) + 1
        span = self._requested.pop(name, None)
        if span is not None:
            _end(span, at, MarkEnd.FINDING_ENDED)

    def _request_changed(self, planner: Planner, outcome: MarkDecision, at: float) -> None:
        mark_request, span = outcome.request, self._requested.get(outcome.request.key)
        # The plan is carried out at once.
        state = IncidentState.MARKED if outcome.is_granted else outcome.state
        if state == IncidentState.PENDING:
            self._in_grace.add(mark_request.key)
            return
        self._in_grace.discard(mark_request.key)
        if span is not None and (span.state, span.request.mark) != (state, mark_request.mark):
            end = MarkEnd.MARKED if state == IncidentState.MARKED else MarkEnd.REPLACED
            _end(self._requested.pop(mark_request.key), at, end)
            span = None
        if state == IncidentState.MARKED:
            return
        if span is None:
            pool = planner.state.placements[mark_request.uid].pool
            request = project(RequestedMark, mark_request, pool=pool)
            span = self._requested[mark_request.key] = self._start(request, state, at)
        if outcome.reason and outcome.reason not in span.reasons:
            span.reasons.append(outcome.reason)


_RELEASES = frozenset({MarkEnd.PROVEN, MarkEnd.RETRACTED, MarkEnd.SUPERSEDED, MarkEnd.REMOVED})


def _end(span: MarkSpan, at: float, reason: MarkEnd) -> None:
    span.end, span.end_reason = at, reason
