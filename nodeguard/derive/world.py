"""The machine as the latest readings of all sources show it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from nodeguard.model.observation import Observation, Part, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.slot import NODE, kind

NOTHING: dict[str, Scalar] = {}


class World(Struct, frozen=True):
    """Signals by slot, those of all sources together, as each source last read them.

    of_source: slots that each source reached. failed: why, by source whose latest round did not come to its
    end; refused: why, by slot of which a source could read nothing. mono: seconds since boot of this look.
    """

    signals: dict[str, dict[str, Scalar]]
    by_kind: dict[str, tuple[str, ...]]
    parts: dict[str, Part]
    of_source: dict[str, frozenset[str]]
    failed: dict[str, str]
    refused: dict[str, str]
    mono: float

    def of(self, slot: str) -> dict[str, Scalar]:
        """Signals of one slot, empty where nothing is known of it."""
        return self.signals.get(slot, NOTHING)

    def node(self, signal: str) -> Scalar | None:
        """One signal of the node itself."""
        return self.of(NODE).get(signal)

    def slots(self, what: str) -> tuple[str, ...]:
        """Slots of one kind, in order."""
        return self.by_kind.get(what, ())


def _reached(observation: Observation) -> bool:
    """Whether a slot was read, or at least tried; not where but an event is told of it."""
    return bool(observation.signals or observation.unread or observation.status != "read")


def world(latest: Iterable[Reading], mono: float) -> World:
    """The world of the latest reading of each source, at `mono` seconds since boot."""
    signals: dict[str, dict[str, Scalar]] = {}
    parts: dict[str, Part] = {}
    failed: dict[str, str] = {}
    refused: dict[str, str] = {}
    reached = {}
    for reading in latest:
        source = reading.source
        reached[source] = frozenset(one.slot for one in reading.observations if _reached(one))
        if not reading.complete:
            failed[source] = f"the round of {source} was cut short"
        for observation in reading.observations:
            if observation.part is not None:
                parts[observation.slot] = observation.part
            if observation.status in {"failed", "hung", "released"}:
                of = failed if observation.slot == NODE else refused
                of[source if observation.slot == NODE else observation.slot] = observation.detail
            if observation.signals:
                known = signals.get(observation.slot)
                both = observation.signals if known is None else {**known, **observation.signals}
                signals[observation.slot] = both
    by_kind: dict[str, tuple[str, ...]] = {}
    for slot in sorted(signals):
        by_kind[kind(slot)] = (*by_kind.get(kind(slot), ()), slot)
    return World(signals, by_kind, parts, reached, failed, refused, mono)
