"""Updates of a target's state: new observations, failed readings, and targets that a source no longer lists.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from msgspec.structs import replace

from nodeguard.judge.counters import update_counters
from nodeguard.judge.events import record_events
from nodeguard.judge.state import SourceSnapshot, TargetState
from nodeguard.model.check import ClearSign
from nodeguard.model.observation import UNREADABLE, Observation
from nodeguard.model.signal import Scalar, Signal

_NO_REASONS: dict[str, str] = {}


def update_target(
    state: TargetState | None,
    observations: Sequence[Observation],
    spans: Mapping[str, float],
    rounds: Mapping[str, float],
    now: float,
    definitions: Mapping[str, Signal],
) -> TargetState:
    """Return the state of a target after new observations of it (at least one); the same object without news.

    spans, definitions: see update_counters. rounds: end of each source's round before this one. now: seconds
    since boot. A new component in the location discards the state of the old one.
    """
    if state is None:
        state = TargetState(first_seen=now)
    shortest = min(spans.values(), default=inf)
    for observation in observations:
        before = state.sources.get(observation.source)
        previous = rounds.get(observation.source, now)
        if before is not None and now - previous <= shortest and _is_unchanged(state, before, observation):
            continue
        state = _update_component(state, observation, now)
        if observation.events:
            events, signs = record_events(state.events, observation.source, observation.events)
            state = replace(state, events=events, signs=_latest_signs(state.signs, signs))
        if observation.signals or observation.unreadable or observation.status in UNREADABLE:
            state = _update_signals(state, observation, spans, previous, now, definitions)
        elif observation.status == "absent" and before is not None:
            state = drop_source(state, observation.source)
    return state


def _latest_signs(before: dict[str, float], new: Mapping[ClearSign, float]) -> dict[str, float]:
    """Return the latest time of each sign: a reading may show less than a line that was read before it."""
    latest = dict(before)
    for sign, at in new.items():
        latest[sign] = max(at, latest.get(sign, at))
    return latest if new else before


def _is_unchanged(state: TargetState, before: SourceSnapshot, new: Observation) -> bool:
    return (
        new.status == "read"
        and not new.events
        and new.signals == before.signals
        and new.unreadable == before.unread
        and new.epoch == before.epoch
        and (new.component is None or new.component == state.component)
        and before.unread_since is None
    )


def _update_component(state: TargetState, observation: Observation, now: float) -> TargetState:
    component = observation.component
    if component is None or not component.id or component == state.component:
        return state
    if state.component is None or state.component.id == component.id:
        return replace(state, component=component)
    signs = {**state.signs, "component-replaced": now}
    return TargetState(first_seen=now, events=state.events, signs=signs, component=component)


def _update_signals(
    state: TargetState,
    observation: Observation,
    spans: Mapping[str, float],
    previous: float,
    now: float,
    definitions: Mapping[str, Signal],
) -> TargetState:
    before = state.sources.get(observation.source)
    if before is not None and before.unread_since is not None:
        previous = before.unread_since
    # An incomplete round continues the previous one: it may lack the data that determine the epoch.
    continued = before if observation.status in UNREADABLE else None
    epoch = continued.epoch if continued is not None else observation.epoch
    unread = observation.unreadable
    if continued is not None:
        names = (name for name in (*continued.signals, *continued.unread) if name not in observation.signals)
        unread = {**dict.fromkeys(names, observation.detail), **unread}
    if observation.signals:
        snapshot = SourceSnapshot(observation.signals, unread, epoch)
    else:
        # A reading without any signal does not count: the next reading continues the previous one.
        snapshot = SourceSnapshot({}, unread, before.epoch if before else epoch, previous)
    is_same_epoch = before is not None and before.epoch == epoch
    watched = {name: span for name, span in spans.items() if name in observation.signals}
    counters = update_counters(
        state.counters, watched, observation.signals, previous if is_same_epoch else None, now, definitions
    )
    return replace(state, sources={**state.sources, observation.source: snapshot}, counters=counters)


def mark_unreached(state: TargetState, source: str, previous: float, reason: str) -> TargetState:
    """Return the state of a target that a source failed to reach: its signals are unread.

    previous: end of the source's round before this one, in seconds since boot.
    """
    before = state.sources[source]
    unread = {**before.unread, **dict.fromkeys(before.signals, reason)}
    unread_since = previous if before.unread_since is None else before.unread_since
    snapshot = SourceSnapshot({}, unread, before.epoch, unread_since)
    return replace(state, sources={**state.sources, source: snapshot})


def drop_source(state: TargetState, source: str) -> TargetState:
    """Return the state of a target that a source no longer lists."""
    left = {name: snapshot for name, snapshot in state.sources.items() if name != source}
    return replace(state, sources=left)


def merge_sources(sources: Mapping[str, SourceSnapshot]) -> tuple[dict[str, Scalar], dict[str, str]]:
    """Return the signals of all sources of a target, and the reasons of the unread ones."""
    if len(sources) == 1:
        [snapshot] = sources.values()
        return snapshot.signals, snapshot.unread
    signals: dict[str, Scalar] = {}
    unread: dict[str, str] = _NO_REASONS
    for snapshot in sources.values():
        signals.update(snapshot.signals)
        if snapshot.unread:
            unread = {**unread, **snapshot.unread}
    return signals, unread
