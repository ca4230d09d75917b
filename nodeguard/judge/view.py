"""What a condition sees of one slot while it is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from msgspec import Struct

from nodeguard.judge.state import Counter, Occurrence, SourceMemory
from nodeguard.model.finding import Evidence
from nodeguard.model.signal import Scalar


class Seen(Struct, frozen=True, array_like=True):
    """One reason why a condition holds.

    since: seconds since boot. tell: puts it into words, for a finding, which few reasons come to. event: what
    is remembered, where it was an event.
    """

    since: float
    tell: Callable[[View], Evidence]
    event: Occurrence | None = None


class View(Struct, kw_only=True):
    """One slot at one moment; lives for one evaluation, in which conditions leave behind what they saw.

    now, first: seconds since boot of this look and of the first one; wall: seconds since the epoch of this
    one. one_look: whether there may be no later look, so that a condition that has held since the first is
    told of at once. signals, unread: of all sources together; memories: by source. expect: what the
    platform expects. statuses: how each source's latest round ended.
    """

    now: float
    wall: float
    first: float
    one_look: bool
    signals: dict[str, Scalar]
    unread: dict[str, str]
    memories: dict[str, SourceMemory]
    counters: dict[str, Counter]
    events: dict[str, Occurrence]
    signs: Mapping[str, float]
    held: dict[str, float]
    expect: dict[str, Scalar | tuple[Scalar, ...]]
    statuses: dict[str, str]

    # What conditions leave behind. seen: reasons. short: (held for, would have to hold for), where it is told
    # of early. holding: since when a sustained condition holds. missing: (signal, why) of what could not be
    # read. pending: counters whose rise is not known yet.
    seen: list[Seen] = []
    short: tuple[float, float] | None = None
    holding: dict[str, float] = {}
    missing: list[tuple[str, str]] = []
    pending: list[str] = []

    @property
    def cleared(self) -> float:
        """The moment up to which a person cleared the check that is asked now."""
        return self.signs.get("operator", -inf)

    def wall_of(self, at: float) -> float:
        """Seconds since the epoch of a moment of this boot."""
        return self.wall - (self.now - at)

    def source_of(self, signal: str) -> str:
        """The source that gave a signal, or should have given it."""
        for source, memory in self.memories.items():
            if signal in memory.signals or signal in memory.unread:
                return source
        return ""


# A condition made ready: looks at a view, leaves there what it saw, and says what it comes to (see outcome).
Test = Callable[[View], int]
