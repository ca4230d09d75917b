"""What the judge remembers from one round to the next: immutable, and small enough to be written down."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.model.finding import Finding
from nodeguard.model.observation import Part
from nodeguard.model.signal import Scalar


class Counter(Struct, frozen=True, array_like=True):
    """A counter's baseline and its rises.

    value: as last read. since: seconds since boot of the baseline. risen: (seconds since boot, by how much),
    oldest first. fell: how often it was found lower than before.
    """

    value: float
    since: float
    risen: tuple[tuple[float, float], ...] = ()
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
    """What one source last read of a slot. fresh: whether its latest round still reached the slot."""

    at: float
    signals: dict[str, Scalar] = {}
    unread: dict[str, str] = {}
    epoch: str = ""
    fresh: bool = True
    why: str = ""


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
    active: dict[str, Finding] = {}
    part: Part | None = None


class SourceState(Struct, frozen=True):
    """How a source's latest round ended: `read`, `absent`, `failed` or `hung`, and why."""

    status: str
    at: float
    detail: str = ""


class JudgeState(Struct, frozen=True):
    """The judge's memory. Empty at the start."""

    boot_id: str = ""
    slots: dict[str, SlotState] = {}
    sources: dict[str, SourceState] = {}
