"""What a policy comes to: marks that stood, marks that were withheld, and those that are only thought of."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.annotation_codec import decode_record
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import Mark, MarkRecord


class MarkEnd(StrEnum):
    """How it ended. `proven`, `retracted`, `removed`: see release.Freed. `over`: the finding was, before
    anything was marked for it. `marked`: it was, after all. `changed`: another mark took its place. `left`:
    its node was no more. `open`: it has not.
    """

    PROVEN = "proven"
    RETRACTED = "retracted"
    REMOVED = "removed"
    FINDING_ENDED = "over"
    MARKED = "marked"
    REPLACED = "changed"
    NODE_DELETED = "left"
    OPEN = "open"


class RequestedMark(Struct, frozen=True):
    """What a finding asked for: which node, by uid and name, which mark, for which check and slot. pool: of
    the node, empty for none.
    """

    uid: str
    node: str
    mark: Mark
    check: str
    target: str
    pool: str = ""


class MarkSpan(Struct):
    """For how long what. state: `Marked`, `Withheld`, or `DryRun`: its check is not enforced.

    began, ended: seconds since the epoch; ended None while it is not. whys: why it was withheld, or would
    be, each reason once, in their order.
    """

    request: RequestedMark
    state: IncidentState
    start: float
    end: float | None = None
    end_reason: MarkEnd = MarkEnd.OPEN
    reasons: list[str] = []


# What is asked, by uid, check and slot.
_Name = tuple[str, str, str]


class MarkTracker:
    """spans: all of them, in the order in which they began. settled: findings that were over, or no longer
    what they were, before they were marked, by check.
    """

    def __init__(self) -> None:
        self.spans: list[MarkSpan] = []
        self.ended_in_grace: dict[str, int] = {}
        self._marked: dict[str, dict[tuple[str, str], MarkSpan]] = {}
        self._asked: dict[_Name, MarkSpan] = {}
        self._settling: set[_Name] = set()
        self._before: dict[str, tuple[MarkDecision, ...]] = {}

    def plan_applied(self, planner: Planner, plan: Plan, at: float) -> None:
        """A plan that is carried out at once."""
        freed = {(uid, one.cause.check, one.cause.target): one.reason for uid, one in plan.released}
        for desired in plan.nodes:
            seat = planner.state.placements[desired.uid]
            record = decode_record(desired.state) or MarkRecord()
            standing = self._marked.setdefault(desired.uid, {})
            causes = {(one.check, one.target): one for one in record.causes}
            for place, span in list(standing.items()):
                cause = causes.get(place)
                if cause is not None and cause.mark == span.request.mark:
                    continue
                why = freed.get((desired.uid, *place), "")
                _end(standing.pop(place), at, MarkEnd(why) if why in _FREED else MarkEnd.REPLACED)
            for place, cause in causes.items():
                if place not in standing:
                    asked = RequestedMark(
                        desired.uid, seat.name, cause.mark, cause.check, cause.target, seat.pool
                    )
                    standing[place] = self._begin(asked, IncidentState.MARKED, at)
            if not standing:
                del self._marked[desired.uid]
        self._compare(planner, at)

    def node_deleted(self, uid: str, at: float) -> None:
        """A node is no more."""
        for span in self._marked.pop(uid, {}).values():
            _end(span, at, MarkEnd.NODE_DELETED)
        for one in self._before.pop(uid, ()):
            self._settling.discard(one.request.key)
            span_of = self._asked.pop(one.request.key, None)
            if span_of is not None:
                _end(span_of, at, MarkEnd.NODE_DELETED)

    def _begin(self, asked: RequestedMark, state: IncidentState, at: float) -> MarkSpan:
        span = MarkSpan(asked, state, at)
        self.spans.append(span)
        return span

    def _compare(self, planner: Planner, at: float) -> None:
        """What became of all that is asked, against what it was."""
        now = planner.decisions
        changed = [uid for uid in self._before.keys() | now.keys() if self._before.get(uid) != now.get(uid)]
        for uid in sorted(changed):
            before, after = self._before.get(uid, ()), now.get(uid, ())
            names = {one.request.key for one in after}
            for old in before:
                if old.request.key not in names:
                    self._over(old, at)
            for one in after:
                self._outcome(planner, one, at)
        self._before = dict(now)

    def _over(self, old: MarkDecision, at: float) -> None:
        name = old.request.key
        if name in self._settling:
            self._settling.discard(name)
            self.ended_in_grace[old.request.check] = self.ended_in_grace.get(old.request.check, 0) + 1
        span = self._asked.pop(name, None)
        if span is not None:
            _end(span, at, MarkEnd.FINDING_ENDED)

    def _outcome(self, planner: Planner, one: MarkDecision, at: float) -> None:
        want, span = one.request, self._asked.get(one.request.key)
        if one.state == IncidentState.PENDING:
            self._settling.add(want.key)
            return
        self._settling.discard(want.key)
        if span is not None and (span.state, span.request.mark) != (one.state, want.mark):
            _end(
                self._asked.pop(want.key),
                at,
                MarkEnd.MARKED if one.state == IncidentState.MARKED else MarkEnd.REPLACED,
            )
            span = None
        if one.state == IncidentState.MARKED:
            return
        if span is None:
            pool = planner.state.placements[want.uid].pool
            asked = RequestedMark(want.uid, want.node, want.mark, want.check, want.target, pool)
            span = self._asked[want.key] = self._begin(asked, one.state, at)
        if one.reason and one.reason not in span.reasons:
            span.reasons.append(one.reason)


_FREED = frozenset({MarkEnd.PROVEN, MarkEnd.RETRACTED, MarkEnd.REMOVED})


def _end(span: MarkSpan, at: float, end: MarkEnd) -> None:
    span.end, span.end_reason = at, end
