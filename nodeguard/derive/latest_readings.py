"""The latest reading of each source, merged by slot, in which what was not read cannot pass for a value.
Pure.

Derivations ask this object for signals and for lists of slots. What could not be read raises UnreadError, so
that a derived signal that rests on it becomes unread as well, with the same reason: see derivation.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from nodeguard.model.observation import UNREADABLE, Component, Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE, target_kind

# More than a node has of NVLinks; mounts that come and go while one of them hangs are any number.
_KEPT = 512

_NO_SIGNALS: dict[str, Scalar] = {}
_NO_REASONS: dict[str, str] = {}


class UnreadError(Exception):
    """A signal or a list of slots could not be read. reason: why, in an operator's words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def retain_reading(before: Reading | None, now: Reading) -> Reading:
    """Return a reading as it is remembered: without events, and with the slots that it should have named.

    before: what was remembered of the same source. A slot that `before` names and `now` does not, although it
    could not list that kind of slot completely, is kept as one that could not be read; at most _KEPT of them.
    """
    observations = [replace(seen, events=()) if seen.events else seen for seen in now.observations]
    if before is not None and (not now.complete or any(seen.unlisted for seen in now.observations)):
        named = {seen.target for seen in now.observations}
        missing = [seen for seen in before.observations if seen.target != NODE and seen.target not in named]
        observations += [
            Observation(seen.source, seen.target, "failed", detail=reason)
            for seen in missing[:_KEPT]
            if (reason := now.unlisted(target_kind(seen.target)))
        ]
    same = len(observations) == len(now.observations) and not any(seen.events for seen in now.observations)
    return now if same else replace(now, observations=tuple(observations))


class LatestReadings:
    """Signals by slot, of all sources together, as each source last read them.

    readings: the latest one of each source. owner: name of the source that reads a signal, by signal. mono:
    seconds since boot of this look. derived, derived_unread: what derivations have added, by slot.
    """

    def __init__(self, readings: Iterable[Reading], owner: Mapping[str, str], mono: float) -> None:
        self.mono = mono
        self.derived: dict[str, dict[str, Scalar]] = {}
        self.derived_unread: dict[str, dict[str, str]] = {}
        self._owner = owner
        self._readings = {reading.source: reading for reading in readings}
        self._signals: dict[str, dict[str, Scalar]] = {}
        self._unread: dict[str, dict[str, str]] = {}
        self._parts: dict[str, Component] = {}
        self._lists: dict[tuple[str, str], str] = {}
        # By source: the slots that its latest round named, with the reason where it could read nothing there.
        self._named: dict[str, dict[str, str]] = {source: {} for source in self._readings}
        for reading in self._readings.values():
            for seen in reading.observations:
                self._add(seen)
        self._by_kind: dict[str, list[str]] = {}
        for slot in sorted(self._signals.keys() | {slot for named in self._named.values() for slot in named}):
            self._by_kind.setdefault(target_kind(slot), []).append(slot)

    def _add(self, seen: Observation) -> None:
        slot = seen.target
        if seen.component is not None:
            self._parts[slot] = seen.component
        if not (seen.signals or seen.unreadable) and seen.status == "read":
            return  # an event alone: the source has not looked at the slot itself
        reason = (seen.detail or seen.status) if seen.status in UNREADABLE else ""
        named = self._named[seen.source]
        named[slot] = named.get(slot) or reason
        if seen.signals:
            before = self._signals.get(slot)
            self._signals[slot] = seen.signals if before is None else {**before, **seen.signals}
        if seen.unreadable:
            self._unread[slot] = {**self._unread.get(slot, _NO_REASONS), **seen.unreadable}

    def add(self, slot: str, signal: str, value: Scalar) -> None:
        """Add a derived signal, for derivations that rest on it."""
        self.derived.setdefault(slot, {})[signal] = value

    def add_unread(self, slot: str, signal: str, reason: str) -> None:
        """Add a derived signal that could not be derived, and why."""
        self.derived_unread.setdefault(slot, {})[signal] = reason

    def get(self, slot: str, signal: str) -> Scalar | None:
        """Return a signal's value; None where it does not apply to the slot. Raises UnreadError."""
        value = self._value(slot, signal)
        if value is None and (reason := self._reason(slot, signal)):
            raise UnreadError(reason)
        return value

    def _value(self, slot: str, signal: str) -> Scalar | None:
        value = self._signals.get(slot, _NO_SIGNALS).get(signal)
        return self.derived.get(slot, _NO_SIGNALS).get(signal) if value is None else value

    def node_signal(self, signal: str) -> Scalar | None:
        """Return a signal of the node itself; see get."""
        return self.get(NODE, signal)

    def _reason(self, slot: str, signal: str) -> str:
        """Return why a signal without a value could not be read; empty where it does not apply."""
        for unread in (self._unread.get(slot), self.derived_unread.get(slot)):
            if unread is not None and signal in unread:
                return unread[signal]
        source = self._owner.get(signal, "")
        named = self._named.get(source, _NO_REASONS)
        return named[slot] if slot in named else self._unlisted(source, target_kind(slot))

    def listed(self, source: str, slot_kind: str) -> frozenset[str] | None:
        """Return the slots of one kind that a source finds on this machine; None where it was never read.

        Raises UnreadError where it could not list all of them.
        """
        if source not in self._readings:
            return None
        if reason := self._unlisted(source, slot_kind):
            raise UnreadError(reason)
        return frozenset(slot for slot in self._named[source] if target_kind(slot) == slot_kind)

    def is_fully_read(self, slot: str) -> bool:
        """Whether each source that names this slot could read it, and listed all slots of its kind.

        The node itself is: what is counted of it is only there where the count was complete.
        """
        return slot == NODE or not any(
            named[slot] or self._unlisted(source, target_kind(slot))
            for source, named in self._named.items()
            if slot in named
        )

    def _unlisted(self, source: str, slot_kind: str) -> str:
        """Return why a source could not list all slots of a kind; empty where it could, or was never read."""
        key = (source, slot_kind)
        if key not in self._lists:
            reading = self._readings.get(source)
            self._lists[key] = reading.unlisted(slot_kind) if reading is not None else ""
        return self._lists[key]

    def unreadable_reason(self, source: str, slot: str) -> str:
        """Return why a source could read nothing of a slot that it names; empty where it could."""
        return self._named.get(source, _NO_REASONS).get(slot, "")

    def targets(self, slot_kind: str) -> Iterable[str]:
        """Return the slots of one kind that any source names, in order. One that is not there may be
        unread.
        """
        return self._by_kind.get(slot_kind, ())

    def read_signals(self, slot: str) -> Mapping[str, Scalar]:
        """Return the signals that were read of a slot, and nothing of those that were not."""
        return self._signals.get(slot, _NO_SIGNALS)

    def has(self, slot: str) -> bool:
        """Whether any signal of a slot was read or derived."""
        return slot in self._signals or slot in self.derived

    def values(self) -> Iterator[tuple[str, Mapping[str, Scalar]]]:
        """Yield each slot with the signals that were read or derived of it."""
        for slot in self._signals.keys() | self.derived.keys():
            read, derived = self._signals.get(slot, _NO_SIGNALS), self.derived.get(slot)
            yield slot, {**read, **derived} if derived else read

    def unread(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield each slot with the signals that could not be read of it, and why."""
        yield from self._unread.items()

    def read_values(self, slot_kind: str, signal: str) -> Iterator[tuple[str, Scalar]]:
        """Yield each slot of one kind of which a signal was read, with its value."""
        for slot in self.targets(slot_kind):
            value = self._value(slot, signal)
            if value is not None:
                yield slot, value

    def component_id(self, slot: str) -> str:
        """Return the identity of what occupies a slot, empty where it is not known."""
        part = self._parts.get(slot)
        return part.id if part is not None else ""
