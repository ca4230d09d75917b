"""What a condition sees of one slot while it is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from msgspec import Struct

from nodeguard.judge.state import CounterState, RememberedEvent, SourceSnapshot
from nodeguard.model.finding import Evidence
from nodeguard.model.signal import Scalar


class ConditionReason(Struct, frozen=True, array_like=True):
    """One reason why a condition holds.

    since: seconds since boot. tell: puts it into words, for a finding, which few reasons come to. event: what
    is remembered, where it was an event.
    """

    since: float
    make_evidence: Callable[[EvaluationContext], Evidence]
    event: RememberedEvent | None = None


class EvaluationContext(Struct, kw_only=True):
    """One slot at one moment; lives for one evaluation, in which conditions leave behind what they saw.

    now, first: seconds since boot of this look and of the first one; wall: seconds since the epoch of this
    one. one_look: whether there may be no later look, so that a condition that has held since the first is
    told of at once. signals, unread: of all sources together; memories: by source. expect: what the
    platform expects. statuses: how each source's latest round ended.
    """

    now: float
    wall: float
    first: float
    one_shot: bool
    signals: dict[str, Scalar]
    unread: dict[str, str]
    sources: dict[str, SourceSnapshot]
    counters: dict[str, CounterState]
    events: dict[str, RememberedEvent]
    signs: Mapping[str, float]
    true_since: dict[str, float]
    expect: dict[str, Scalar | tuple[Scalar, ...]]
    statuses: dict[str, str]

    # What conditions leave behind. seen: reasons. short: (held for, would have to hold for), where it is told
    # of early. holding: since when a sustained condition holds. missing: (signal, why) of what could not be
    # read. pending: counters whose rise is not known yet.
    reasons: list[ConditionReason] = []
    early: tuple[float, float] | None = None
    new_true_since: dict[str, float] = {}
    unreadable: list[tuple[str, str]] = []
    pending: list[str] = []

    @property
    def cleared_at(self) -> float:
        """The moment up to which a person cleared the check that is asked now."""
        return self.signs.get("operator", -inf)

    def to_wall_clock(self, at: float) -> float:
        """Seconds since the epoch of a moment of this boot."""
        return self.wall - (self.now - at)

    def source_of(self, signal: str) -> str:
        """The source that gave a signal, or should have given it."""
        for source, memory in self.sources.items():
            if signal in memory.signals or signal in memory.unread:
                return source
        return ""


# A condition made ready: looks at a view, leaves there what it saw, and says what it comes to (see outcome).
ConditionTest = Callable[[EvaluationContext], int]


NOT_APPLICABLE = 0
FALSE = 1
UNKNOWN = 2
TRUE = 3
