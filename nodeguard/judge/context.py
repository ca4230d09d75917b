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

    Times are in seconds since boot.
    """

    now: float
    """Time of this evaluation."""

    clock_offset: float
    """Seconds since the epoch at the boot."""

    first: float
    """Time of the first evaluation."""

    one_shot: bool
    """Whether no later evaluation may follow: a condition true from the start then needs no waiting time."""

    signals: dict[str, Scalar]
    """Signals of all sources merged."""

    unread: dict[str, str]
    """Reasons of all sources merged, by signal."""

    sources: dict[str, SourceSnapshot]
    """Snapshots by name of the source."""

    rounds: Mapping[str, SourceStatus]
    """Each source's latest round."""

    counters: dict[str, CounterState]
    events: dict[str, RememberedEvent]
    event_signals: frozenset[str]
    """Signals of the events."""

    signs: Mapping[str, float]
    true_since: dict[str, float]
    expect: dict[str, Scalar | tuple[Scalar, ...]]
    """Values that the platform expects."""

    statuses: dict[str, str]
    """Outcome of each source's latest round."""

    # Results of conditions.
    reasons: list[ConditionReason] = []
    early: tuple[float, float] | None = None
    """How long a condition was true and how long it needs, where it counts before its waiting time."""

    new_true_since: dict[str, float] = {}
    """Start of each sustained condition that is true."""

    unreadable: list[tuple[str, str]] = []
    """Signal and reason."""

    pending: list[str] = []
    """Counters with one reading so far."""

    valid_until: float = inf
    """Time until which the same data give the same results."""

    read_at: dict[str, float] = {}
    """Round of each source that is evidence."""

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
