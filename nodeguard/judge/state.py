"""What the judge remembers from one round to the next: immutable, and small enough to be written down."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.model.finding import Finding
from nodeguard.model.observation import Part
from nodeguard.model.signal import Scalar


class Rise(Struct, frozen=True, array_like=True):
    """A counter found higher than before.

    at: seconds since boot. by: how much. gap: seconds since the reading before it.
    """

    at: float
    by: float
    gap: float


class Counter(Struct, frozen=True, array_like=True):
    """A counter's baseline and its rises.

    value: as last read. since: seconds since boot of the baseline. risen: oldest first. fell: how often it
    was found lower than before, as somebody set it back.
    """

    value: float
    since: float
    risen: tuple[Rise, ...] = ()
    fell: int = 0


class Occurrence(Struct, frozen=True):
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


class SourceMemory(Struct, frozen=True):
    """What one source last read of a slot.

    lapsed: when it last read anything there (seconds since boot), where its later rounds did not.
    """

    signals: dict[str, Scalar] = {}
    unread: dict[str, str] = {}
    epoch: str = ""
    lapsed: float | None = None


class Standing(Struct, frozen=True):
    """A finding as it stood after the last round.

    since: seconds since boot; the wall clock that a finding tells may be set in the meantime.
    """

    since: float
    finding: Finding


class SlotState(Struct, frozen=True):
    """All that is remembered of one slot.

    first: seconds since boot of the first look at it. held: condition → since when it has held. signs: what
    may clear an event → when it was last seen. active: check → its finding as it stood after the last round.
    """

    first: float
    sources: dict[str, SourceMemory] = {}
    counters: dict[str, Counter] = {}
    events: dict[str, Occurrence] = {}
    held: dict[str, float] = {}
    signs: dict[str, float] = {}
    active: dict[str, Standing] = {}
    part: Part | None = None


class Cleared(Struct, frozen=True, array_like=True):
    """A person's word that a finding is over: what its check heard and counted until then counts no more.

    part: only while it sits there, whatever does where empty. at: seconds since boot, negative where it was
    said in an earlier one. by: who.
    """

    check: str
    slot: str
    part: str
    at: float
    by: str


class Judged(Struct, frozen=True):
    """What the checks said of a slot.

    findings: of the checks that fired, those of health `ok` among them. past: what is told of events that are
    over. fine: bit n is set where the n-th rule of the slot's kind found it in order. missing: (source,
    signal, why) of what could not be read; pending: counters whose rise is not known yet, with their totals.
    settled: whether time alone changes nothing of it.
    """

    state: SlotState
    findings: tuple[Finding, ...]
    past: tuple[Finding, ...]
    fine: int
    missing: tuple[tuple[str, str, str], ...]
    pending: dict[str, float]
    settled: bool


class SourceState(Struct, frozen=True):
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
    one_look: bool = False


class JudgeState(Struct, frozen=True):
    """The judge's memory. Empty at the start.

    cleared: what people cleared, the oldest first. settled: what was said of slots, to be said again as long
    as they and the background stay the same; it only saves work: leave it out where the memory is written
    down.
    """

    boot_id: str = ""
    slots: dict[str, SlotState] = {}
    sources: dict[str, SourceState] = {}
    background: Background = Background()
    settled: dict[str, Judged] = {}
    cleared: tuple[Cleared, ...] = ()
