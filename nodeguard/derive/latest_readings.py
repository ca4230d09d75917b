"""The latest reading of each source, merged by target, for derivations. Pure.

A signal or a list of targets that could not be read raises UnreadError. A derived signal that uses it then
becomes unread with the same reason: see derivation.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import is_

from msgspec.structs import replace

from nodeguard.model.observation import LOG_POSITION, UNREADABLE, Component, Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE, target_kind

# More than a node has NVLinks. While one mount hangs, any number of others may be mounted and unmounted.
_MAX_UNLISTED = 512

_NO_SIGNALS: dict[str, Scalar] = {}
_NO_REASONS: dict[str, str] = {}


class UnreadError(Exception):
    """A signal or a list of targets could not be read. reason: for operators."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def retain_reading(before: Reading | None, now: Reading) -> Reading:
    """Return a reading as the state retains it: only with data, and with targets that it failed to list.

    Events and the position in the kernel log are no data that a derivation could use.
    before: the source's retained reading. A target of `before` that `now` lacks is kept as unreadable if
    `now` could not list its kind completely; at most _MAX_UNLISTED of them.
    """
    observations = [data for observation in now.observations if (data := _data_of(observation)) is not None]
    if before is not None and (
        not now.complete or any(observation.unlisted for observation in now.observations)
    ):
        listed = {observation.target for observation in now.observations}
        missing = [
            observation
            for observation in before.observations
            if observation.target != NODE and observation.target not in listed
        ]
        observations += [
            Observation(observation.source, observation.target, "failed", detail=reason)
            for observation in missing[:_MAX_UNLISTED]
            if (reason := now.unlisted(target_kind(observation.target)))
        ]
    is_same = len(observations) == len(now.observations) and all(map(is_, observations, now.observations))
    return now if is_same else replace(now, observations=tuple(observations))


def _data_of(observation: Observation) -> Observation | None:
    """Return an observation without its events; None without any data."""
    signals = observation.signals
    if LOG_POSITION in signals:
        signals = {name: value for name, value in signals.items() if name != LOG_POSITION}
    is_event_only = observation.status in {"read", "lost"} and not (
        signals or observation.unreadable or observation.unlisted or observation.component
    )
    if is_event_only:
        return None
    if observation.events or signals is not observation.signals:
        return replace(observation, events=(), signals=signals)
    return observation


def has_same_data(before: Mapping[str, Reading], after: Mapping[str, Reading]) -> bool:
    """Return whether only readings without data are new. Both: retained readings by source."""
    if before.keys() != after.keys():
        return False
    for source, reading in after.items():
        earlier = before[source]
        has_data = reading.observations or earlier.observations
        if reading is not earlier and (has_data or reading.complete != earlier.complete):
            return False
    return True


class LatestReadings:
    """The latest signals of all sources, by target.

    readings: the latest one of each source. owner: name of the source that reads each signal. mono: seconds
    since boot of the newest data. derived, derived_unread: signals that derivations have added, by target.
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
        # By source: the targets in its latest round, with the reason if it could read no data of the target.
        self._listed: dict[str, dict[str, str]] = {source: {} for source in self._readings}
        for reading in self._readings.values():
            for observation in reading.observations:
                self._add_observation(observation)
        self._by_kind: dict[str, list[str]] = {}
        for target in sorted(
            self._signals.keys() | {target for targets in self._listed.values() for target in targets}
        ):
            self._by_kind.setdefault(target_kind(target), []).append(target)

    def _add_observation(self, observation: Observation) -> None:
        target = observation.target
        if observation.component is not None:
            self._parts[target] = observation.component
        if not (observation.signals or observation.unreadable) and observation.status == "read":
            return  # only an event: the source has not read the target itself
        reason = (observation.detail or observation.status) if observation.status in UNREADABLE else ""
        listed = self._listed[observation.source]
        listed[target] = listed.get(target) or reason
        if observation.signals:
            before = self._signals.get(target)
            self._signals[target] = (
                observation.signals if before is None else {**before, **observation.signals}
            )
        if observation.unreadable:
            self._unread[target] = {**self._unread.get(target, _NO_REASONS), **observation.unreadable}

    def add(self, target: str, signal: str, value: Scalar) -> None:
        """Add a derived signal, for derivations that use it."""
        self.derived.setdefault(target, {})[signal] = value

    def add_unread(self, target: str, signal: str, reason: str) -> None:
        """Add a derived signal that could not be derived."""
        self.derived_unread.setdefault(target, {})[signal] = reason

    def get(self, target: str, signal: str) -> Scalar | None:
        """Return a signal's value; None where it does not apply to the target. Raises UnreadError."""
        value = self._value(target, signal)
        if value is None and (reason := self._reason(target, signal)):
            raise UnreadError(reason)
        return value

    def _value(self, target: str, signal: str) -> Scalar | None:
        value = self._signals.get(target, _NO_SIGNALS).get(signal)
        return self.derived.get(target, _NO_SIGNALS).get(signal) if value is None else value

    def node_signal(self, signal: str) -> Scalar | None:
        """Return a signal of the node itself; see get."""
        return self.get(NODE, signal)

    def _reason(self, target: str, signal: str) -> str:
        """Return why a signal without a value could not be read; empty where it does not apply."""
        for unread in (self._unread.get(target), self.derived_unread.get(target)):
            if unread is not None and signal in unread:
                return unread[signal]
        source = self._owner.get(signal, "")
        listed = self._listed.get(source, _NO_REASONS)
        return listed[target] if target in listed else self._unlisted(source, target_kind(target))

    def unread_reason(self, target: str, signal: str) -> str:
        """Return why a source that read a target could not read one of its signals; empty otherwise."""
        return self._unread.get(target, _NO_REASONS).get(signal, "")

    def listed(self, source: str, kind: str) -> frozenset[str] | None:
        """Return the targets of one kind that a source lists; None where it was never read.

        Raises UnreadError where it could not list all of them.
        """
        if source not in self._readings:
            return None
        if reason := self._unlisted(source, kind):
            raise UnreadError(reason)
        return frozenset(target for target in self._listed[source] if target_kind(target) == kind)

    def is_fully_read(self, target: str) -> bool:
        """Return whether each source of this target could read it, and listed all targets of its kind.

        True for the node itself: its counts exist only where they are complete.
        """
        return target == NODE or not any(
            listed[target] or self._unlisted(source, target_kind(target))
            for source, listed in self._listed.items()
            if target in listed
        )

    def _unlisted(self, source: str, kind: str) -> str:
        """Return why a source could not list all targets of a kind; empty where it could or was not read."""
        key = (source, kind)
        if key not in self._lists:
            reading = self._readings.get(source)
            self._lists[key] = reading.unlisted(kind) if reading is not None else ""
        return self._lists[key]

    def unreadable_reason(self, source: str, target: str) -> str:
        """Return why a source could not read a target that it lists; empty where it could."""
        return self._listed.get(source, _NO_REASONS).get(target, "")

    def targets(self, kind: str) -> Iterable[str]:
        """Return the targets of one kind that any source lists, in order; without unread ones."""
        return self._by_kind.get(kind, ())

    def read_signals(self, target: str) -> Mapping[str, Scalar]:
        """Return the signals of a target that were read."""
        return self._signals.get(target, _NO_SIGNALS)

    def is_listed(self, target: str) -> bool:
        """Return whether any source lists a target."""
        return any(target in listed for listed in self._listed.values())

    def has(self, target: str) -> bool:
        """Return whether any signal of a target was read or derived."""
        return target in self._signals or target in self.derived

    def values(self) -> Iterator[tuple[str, Mapping[str, Scalar]]]:
        """Yield each target with its signals that were read or derived."""
        for target in self._signals.keys() | self.derived.keys():
            read, derived = self._signals.get(target, _NO_SIGNALS), self.derived.get(target)
            yield target, {**read, **derived} if derived else read

    def unread(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield each target with its signals that could not be read, with the reasons."""
        yield from self._unread.items()

    def read_values(self, kind: str, signal: str) -> Iterator[tuple[str, Scalar]]:
        """Yield each target of one kind with the value of a signal, where it was read or derived."""
        for target in self.targets(kind):
            value = self._value(target, signal)
            if value is not None:
                yield target, value

    def component_id(self, target: str) -> str:
        """Return the id of the component in a target's location; empty where it is not known."""
        part = self._parts.get(target)
        return part.id if part is not None else ""
