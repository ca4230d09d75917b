"""State of the judge between evaluations: immutable, and small enough to be saved in the agent's state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from msgspec import Struct

from nodeguard.model.finding import Finding
from nodeguard.model.observation import Component
from nodeguard.model.signal import Scalar


class CounterIncrease(Struct, frozen=True, array_like=True):
    """One increase of a counter between two readings.

    at: seconds since boot of the later reading. by: the increase. gap: seconds between the two readings.
    """

    at: float
    by: float
    gap: float


class DoubtfulIncrease(Struct, frozen=True, array_like=True):
    """An increase that the hardware cannot have counted.

    at, by, gap: as in CounterIncrease. trusted: the counter's value before it.
    """

    at: float
    by: float
    gap: float
    trusted: float


class CounterState(Struct, frozen=True, array_like=True):
    """A counter's baseline and its increases."""

    value: float
    """Value at the latest reading."""

    since: float
    """Time of the baseline, in seconds since boot."""

    increases: tuple[CounterIncrease, ...] = ()
    """Increases, oldest first."""

    resets: int = 0
    """How often a reading was lower than the one before it."""

    doubt: DoubtfulIncrease | None = None
    """The latest impossible increase, until the value drops to a plausible one."""

    dropped_at: float = -inf
    """Time of the latest drop, in seconds since boot."""

    dropped_from: float = 0.0
    """Value before that drop."""


class RememberedEvent(Struct, frozen=True):
    """The events of one target with the same signal and the same distinguishing fields.

    first, last: seconds since boot, negative for an earlier boot. times: of the latest events, to count them
    in windows. count: of all of them.
    """

    signal: str
    source: str
    first: float
    last: float
    count: int
    text: str
    fields: dict[str, Scalar]
    times: tuple[float, ...]


class SourceSnapshot(Struct, frozen=True):
    """The latest data that one source has of a target.

    unread: reason by signal. unread_since: seconds since boot of the last successful reading, where later
    rounds failed to read the target; None otherwise.
    """

    signals: dict[str, Scalar] = {}
    unread: dict[str, str] = {}
    epoch: str = ""
    unread_since: float | None = None


class ActiveFinding(Struct, frozen=True):
    """A finding that was active after the last evaluation.

    since: seconds since boot, because the wall clock of the finding may be set in the meantime.
    """

    since: float
    finding: Finding


class TargetState(Struct, frozen=True):
    """The judge's state of one target."""

    first_seen: float
    """Time of the first observation, in seconds since boot."""

    sources: dict[str, SourceSnapshot] = {}
    counters: dict[str, CounterState] = {}
    events: dict[str, RememberedEvent] = {}
    true_since: dict[str, float] = {}
    """Start of each sustained condition that is true, by the condition's key."""

    signs: dict[str, float] = {}
    """Time of the latest sign, by sign."""

    active: dict[str, ActiveFinding] = {}
    """Active findings, by check."""

    component: Component | None = None


class OperatorClear(Struct, frozen=True, array_like=True):
    """An operator's clear of a finding: the check ignores its events and counter increases up to that time.

    `by` is the name of the operator.
    """

    check: str
    target: str
    component: str
    """The component that the clear is limited to; empty for any component in the location."""

    at: float
    """Seconds since boot; negative for a clear of an earlier boot."""

    by: str


class TargetInput(Struct, frozen=True):
    """The data of one target that its checks use.

    signs: time of the latest sign that may clear the target's events, in seconds since boot. cleared: clears
    of operators, by check.
    """

    state: TargetState
    signs: Mapping[str, float]
    cleared: Mapping[str, OperatorClear]


class TargetResult(Struct, frozen=True):
    """The result of all checks on one target.

    The same input gives the same result until `valid_until`. The input is the state, the background, `signs`,
    `cleared` and `read_at`.
    """

    state: TargetState
    findings: tuple[Finding, ...]
    """Active findings, including those of health `ok`."""

    past_findings: tuple[Finding, ...]
    """Findings of events that are cleared."""

    passed_rules: int
    """Bit n is set where rule n of the target's kind passed."""

    unreadable: tuple[tuple[str, str, str], ...]
    """Source, signal and reason."""

    pending: dict[str, float]
    """Total by counter, of counters with one reading so far."""

    valid_until: float
    """Time in seconds since boot."""

    signs: Mapping[str, float]
    """See TargetInput."""

    cleared: Mapping[str, OperatorClear]
    """See TargetInput."""

    read_at: Mapping[str, float]
    """Latest round of each source that the evidence names, in seconds since boot."""


class SourceStatus(Struct, frozen=True):
    """The outcome of a source's latest round: `read`, `absent`, `failed` or `hung`, with the reason."""

    status: str
    at: float
    detail: str = ""


class Background(Struct, frozen=True):
    """Facts of the node that the checks of every target use.

    expect: values that the platform expects. kinds: of the targets that the node has. statuses: outcome of
    each source's latest round. one_shot: whether no later evaluation may follow. clock_offset: seconds since
    the epoch at the boot, by the wall clock.
    """

    expect: dict[str, Scalar | tuple[Scalar, ...]] = {}
    kinds: frozenset[str] = frozenset()
    statuses: dict[str, str] = {}
    one_shot: bool = False
    clock_offset: float = inf


class JudgeState(Struct, frozen=True):
    """State of the judge, empty at the start.

    cleared: operators' clears, oldest first. results: of the last evaluation, by target; a cache only, so
    saved state leaves it out.
    """

    boot_id: str = ""
    targets: dict[str, TargetState] = {}
    sources: dict[str, SourceStatus] = {}
    background: Background = Background()
    results: dict[str, TargetResult] = {}
    cleared: tuple[OperatorClear, ...] = ()

    def logged_events(self, boot_id: str) -> Iterator[tuple[str, str, float]]:
        """Yield target, signal and latest time in seconds since boot of each event; none for another boot."""
        if boot_id == self.boot_id:
            for target, state in self.targets.items():
                for event in state.events.values():
                    yield target, event.signal, event.last
