"""Evaluation context of one target: the data that conditions read, and the reasons that they record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from msgspec import Struct

from nodeguard.judge.state import CounterState, RememberedEvent, SourceSnapshot, SourceStatus
from nodeguard.model.finding import Evidence
from nodeguard.model.signal import Scalar

# Outcomes of a condition, ordered so that the outcome of `any` is the highest of its parts.
NOT_APPLICABLE = 0
FALSE = 1
UNKNOWN = 2
TRUE = 3


class ConditionReason(Struct, frozen=True, array_like=True):
    """One reason why a condition is true.

    since: seconds since boot. make_evidence: called only where a finding follows. event: where it is one.
    """

    since: float
    make_evidence: Callable[[EvaluationContext], Evidence]
    event: RememberedEvent | None = None


class EvaluationContext(Struct, kw_only=True):
    """The data of one target at one time, and the results of its conditions. Lives for one evaluation.

    now, first: seconds since boot of this evaluation and of the first one. clock_offset: seconds since the
    epoch at the boot. one_shot: whether no later evaluation may follow, so that a condition that is true
    since the first reading counts without its waiting time. signals, unread: of all sources merged. sources:
    by name. event_signals: of the events. rounds: each source's latest round. expect: values that the
    platform expects. statuses: outcome of each source's latest round.
    """

    now: float
    clock_offset: float
    first: float
    one_shot: bool
    signals: dict[str, Scalar]
    unread: dict[str, str]
    sources: dict[str, SourceSnapshot]
    rounds: Mapping[str, SourceStatus]
    counters: dict[str, CounterState]
    events: dict[str, RememberedEvent]
    event_signals: frozenset[str]
    signs: Mapping[str, float]
    true_since: dict[str, float]
    expect: dict[str, Scalar | tuple[Scalar, ...]]
    statuses: dict[str, str]

    # Results of conditions. early: (seconds that the condition was true, seconds that it needs) where it
    # counts before its waiting time. new_true_since: start of each sustained condition that is true.
    # unreadable: (signal, reason). pending: counters with one reading so far. valid_until: seconds since boot
    # until which the same data give the same results. read_at: round of each source that is evidence.
    reasons: list[ConditionReason] = []
    early: tuple[float, float] | None = None
    new_true_since: dict[str, float] = {}
    unreadable: list[tuple[str, str]] = []
    pending: list[str] = []
    valid_until: float = inf
    read_at: dict[str, float] = {}

    @property
    def cleared_at(self) -> float:
        """The time of the operator's clear of the current check, in seconds since boot; -inf for none."""
        return self.signs.get("operator", -inf)

    def to_wall_clock(self, at: float) -> float:
        """Return seconds since the epoch for seconds since boot."""
        return self.clock_offset + at

    def expire(self, at: float) -> None:
        """Limit the validity of the results to a time in seconds since boot."""
        self.valid_until = min(self.valid_until, at)

    def time_of_reading(self, source: str) -> float:
        """Return the time of a source's latest round, in seconds since the epoch."""
        self.read_at[source] = self.rounds[source].at
        return self.to_wall_clock(self.read_at[source])

    def source_of(self, signal: str) -> str:
        """Return the source that read a signal or failed to read it; empty for none."""
        for source, snapshot in self.sources.items():
            if signal in snapshot.signals or signal in snapshot.unread:
                return source
        return ""


# A compiled condition: adds its reasons to the context and returns its outcome.
ConditionTest = Callable[[EvaluationContext], int]
