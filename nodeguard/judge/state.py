"""What the judge remembers from one round to the next: immutable, and small enough to be written down."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.model.finding import Finding
from nodeguard.model.observation import Component
from nodeguard.model.signal import Scalar


class CounterIncrease(Struct, frozen=True, array_like=True):
    """A counter found higher than before.

    at: seconds since boot. by: how much. gap: seconds since the reading before it.
    """

    at: float
    by: float
    gap: float


class CounterState(Struct, frozen=True, array_like=True):
    """A counter's baseline and its rises.

    value: as last read. since: seconds since boot of the baseline. risen: oldest first. fell: how often it
    was found lower than before, as somebody set it back.
    """

    value: float
    since: float
    increases: tuple[CounterIncrease, ...] = ()
    resets: int = 0


class RememberedEvent(Struct, frozen=True):
    """An event that a slot remembers, one for each distinct signal and code, however often it came.

    first, last: seconds since boot; negative for one of an earlier boot. times: the latest moments, for
    counting in windows.
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
    """What one source last read of a slot.

    lapsed: when it last read anything there (seconds since boot), where its later rounds did not.
    """

    signals: dict[str, Scalar] = {}
    unread: dict[str, str] = {}
    epoch: str = ""
    unread_since: float | None = None


class ActiveFinding(Struct, frozen=True):
    """A finding as it stood after the last round.

    since: seconds since boot; the wall clock that a finding tells may be set in the meantime.
    """

    since: float
    finding: Finding


class TargetState(Struct, frozen=True):
    """All that is remembered of one slot.

    first: seconds since boot of the first look at it. held: condition → since when it has held. signs: what
    may clear an event → when it was last seen. active: check → its finding as it stood after the last round.
    """

    first_seen: float
    sources: dict[str, SourceSnapshot] = {}
    counters: dict[str, CounterState] = {}
    events: dict[str, RememberedEvent] = {}
    true_since: dict[str, float] = {}
    signs: dict[str, float] = {}
    active: dict[str, ActiveFinding] = {}
    component: Component | None = None


class OperatorClear(Struct, frozen=True, array_like=True):
    """A person's word that a finding is over: what its check heard and counted until then counts no more.

    part: only while it sits there, whatever does where empty. at: seconds since boot, negative where it was
    said in an earlier one. by: who.
    """

    check: str
    target: str
    component: str
    at: float
    by: str


class TargetResult(Struct, frozen=True):
    """What the checks said of a slot.

    findings: of the checks that fired, those of health `ok` among them. past: what is told of events that are
    over. fine: bit n is set where the n-th rule of the slot's kind found it in order. missing: (source,
    signal, why) of what could not be read; pending: counters whose rise is not known yet, with their totals.
    settled: whether time alone changes nothing of it.
    """

    state: TargetState
    findings: tuple[Finding, ...]
    past_findings: tuple[Finding, ...]
    passed_rules: int
    unreadable: tuple[tuple[str, str, str], ...]
    pending: dict[str, float]
    settled: bool


class SourceStatus(Struct, frozen=True):
    """How a source's latest round ended: `read`, `absent`, `failed` or `hung`, and why."""

    status: str
    at: float
    detail: str = ""


class Background(Struct, frozen=True):
    """What all slots are held against, besides what is known of each.

    expect: of the platform. kinds: kinds of the slots that the node has. statuses: how each source's latest
    round ended. one_look: whether there may be no later look.
    """

    expect: dict[str, Scalar | tuple[Scalar, ...]] = {}
    kinds: frozenset[str] = frozenset()
    statuses: dict[str, str] = {}
    one_shot: bool = False


class JudgeState(Struct, frozen=True):
    """The judge's memory. Empty at the start.

    cleared: what people cleared, the oldest first. settled: what was said of slots, to be said again as long
    as they and the background stay the same; it only saves work: leave it out where the memory is written
    down.
    """

    boot_id: str = ""
    targets: dict[str, TargetState] = {}
    sources: dict[str, SourceStatus] = {}
    background: Background = Background()
    settled: dict[str, TargetResult] = {}
    cleared: tuple[OperatorClear, ...] = ()
