"""What a policy comes to: marks that stood, marks that were withheld, and those that are only thought of."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.fleet.admission import Outcome
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.record import read
from nodeguard.model.incident import State
from nodeguard.model.mark import Mark, Record


class End(StrEnum):
    """How it ended. `proven`, `retracted`, `removed`: see release.Freed. `over`: the finding was, before
    anything was marked for it. `marked`: it was, after all. `changed`: another mark took its place. `left`:
    its node was no more. `open`: it has not.
    """

    PROVEN = "proven"
    RETRACTED = "retracted"
    REMOVED = "removed"
    OVER = "over"
    MARKED = "marked"
    CHANGED = "changed"
    LEFT = "left"
    OPEN = "open"


class Asked(Struct, frozen=True):
    """What a finding asked for: which node, by uid and name, which mark, for which check and slot. pool: of
    the node, empty for none.
    """

    uid: str
    node: str
    mark: Mark
    check: str
    target: str
    pool: str = ""


class Span(Struct):
    """For how long what. state: `Marked`, `Withheld`, or `DryRun`: its check is not enforced.

    began, ended: seconds since the epoch; ended None while it is not. whys: why it was withheld, or would
    be, each reason once, in their order.
    """

    asked: Asked
    state: State
    began: float
    ended: float | None = None
    end: End = End.OPEN
    whys: list[str] = []


# What is asked, by uid, check and slot.
_Name = tuple[str, str, str]


class Marks:
    """spans: all of them, in the order in which they began. settled: findings that were over, or no longer
    what they were, before they were marked, by check.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.settled: dict[str, int] = {}
        self._marked: dict[str, dict[tuple[str, str], Span]] = {}
        self._asked: dict[_Name, Span] = {}
        self._settling: set[_Name] = set()
        self._before: dict[str, tuple[Outcome, ...]] = {}

    def planned(self, planner: Planner, plan: Plan, at: float) -> None:
        """A plan that is carried out at once."""
        freed = {(uid, one.cause.check, one.cause.target): one.why for uid, one in plan.freed}
        for desired in plan.nodes:
            seat = planner.roster.seats[desired.uid]
            record = read(desired.state) or Record()
            standing = self._marked.setdefault(desired.uid, {})
            causes = {(one.check, one.target): one for one in record.causes}
            for place, span in list(standing.items()):
                cause = causes.get(place)
                if cause is not None and cause.mark == span.asked.mark:
                    continue
                why = freed.get((desired.uid, *place), "")
                _end(standing.pop(place), at, End(why) if why in _FREED else End.CHANGED)
            for place, cause in causes.items():
                if place not in standing:
                    asked = Asked(desired.uid, seat.name, cause.mark, cause.check, cause.target, seat.pool)
                    standing[place] = self._begin(asked, State.MARKED, at)
            if not standing:
                del self._marked[desired.uid]
        self._compare(planner, at)

    def gone(self, uid: str, at: float) -> None:
        """A node is no more."""
        for span in self._marked.pop(uid, {}).values():
            _end(span, at, End.LEFT)
        for one in self._before.pop(uid, ()):
            self._settling.discard(one.want.name)
            span_of = self._asked.pop(one.want.name, None)
            if span_of is not None:
                _end(span_of, at, End.LEFT)

    def _begin(self, asked: Asked, state: State, at: float) -> Span:
        span = Span(asked, state, at)
        self.spans.append(span)
        return span

    def _compare(self, planner: Planner, at: float) -> None:
        """What became of all that is asked, against what it was."""
        now = planner.outcomes
        changed = [uid for uid in self._before.keys() | now.keys() if self._before.get(uid) != now.get(uid)]
        for uid in sorted(changed):
            before, after = self._before.get(uid, ()), now.get(uid, ())
            names = {one.want.name for one in after}
            for old in before:
                if old.want.name not in names:
                    self._over(old, at)
            for one in after:
                self._outcome(planner, one, at)
        self._before = dict(now)

    def _over(self, old: Outcome, at: float) -> None:
        name = old.want.name
        if name in self._settling:
            self._settling.discard(name)
            self.settled[old.want.check] = self.settled.get(old.want.check, 0) + 1
        span = self._asked.pop(name, None)
        if span is not None:
            _end(span, at, End.OVER)

    def _outcome(self, planner: Planner, one: Outcome, at: float) -> None:
        want, span = one.want, self._asked.get(one.want.name)
        if one.state == State.PENDING:
            self._settling.add(want.name)
            return
        self._settling.discard(want.name)
        if span is not None and (span.state, span.asked.mark) != (one.state, want.mark):
            _end(self._asked.pop(want.name), at, End.MARKED if one.state == State.MARKED else End.CHANGED)
            span = None
        if one.state == State.MARKED:
            return
        if span is None:
            pool = planner.roster.seats[want.uid].pool
            asked = Asked(want.uid, want.node, want.mark, want.check, want.target, pool)
            span = self._asked[want.name] = self._begin(asked, one.state, at)
        if one.why and one.why not in span.whys:
            span.whys.append(one.why)


_FREED = frozenset({End.PROVEN, End.RETRACTED, End.REMOVED})


def _end(span: Span, at: float, end: End) -> None:
    span.ended, span.end = at, end
