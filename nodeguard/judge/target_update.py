"""What a slot remembers after a round. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from msgspec.structs import replace

from nodeguard.judge.counters import update_counters
from nodeguard.judge.events import record_events
from nodeguard.judge.state import SourceSnapshot, TargetState
from nodeguard.model.observation import UNREADABLE, Observation
from nodeguard.model.signal import Scalar

_NOTHING: dict[str, str] = {}


def update_target(
    state: TargetState | None,
    observations: Sequence[Observation],
    spans: Mapping[str, float],
    rounds: Mapping[str, float],
    now: float,
) -> TargetState:
    """A slot's memory after new observations of it (at least one), read at `now` seconds since boot; the same
    object where nothing is new.

    spans: see counters.advance. rounds: when each source's round before this one ended. A new part in the
    slot closes what was known of the old one.
    """
    if state is None:
        state = TargetState(first_seen=now)
    shortest = min(spans.values(), default=inf)
    for observation in observations:
        old = state.sources.get(observation.source)
        previous = rounds.get(observation.source, now)
        if old is not None and now - previous <= shortest and _same(state, old, observation):
            continue
        state = _after_part(state, observation, now)
        if observation.events:
            events, signs = record_events(state.events, observation.source, observation.events)
            state = replace(state, events=events, signs={**state.signs, **signs} if signs else state.signs)
        if observation.signals or observation.unreadable or observation.status in UNREADABLE:
            state = _after_reading(state, observation, spans, previous, now)
        elif observation.status == "absent" and old is not None:
            state = drop_source(state, observation.source)
    return state


def _same(state: TargetState, old: SourceSnapshot, new: Observation) -> bool:
    return (
        new.status == "read"
        and not new.events
        and new.signals == old.signals
        and new.unreadable == old.unread
        and new.epoch == old.epoch
        and (new.component is None or new.component == state.component)
        and old.unread_since is None
    )


def _after_part(state: TargetState, observation: Observation, now: float) -> TargetState:
    part = observation.component
    if part is None or not part.id or part == state.component:
        return state
    if state.component is None or state.component.id == part.id:
        return replace(state, part=part)
    signs = {**state.signs, "part-replaced": now}
    return TargetState(first_seen=now, events=state.events, signs=signs, component=part)


def _after_reading(
    state: TargetState, observation: Observation, spans: Mapping[str, float], previous: float, now: float
) -> TargetState:
    old = state.sources.get(observation.source)
    if old is not None and old.unread_since is not None:
        previous = old.unread_since
    # A round that did not come to its end adds to the one before; what tells its epoch may be what it lacks.
    begun = old if observation.status in UNREADABLE else None
    epoch = begun.epoch if begun is not None else observation.epoch
    unread = observation.unreadable
    if begun is not None:
        names = (name for name in (*begun.signals, *begun.unread) if name not in observation.signals)
        unread = {**dict.fromkeys(names, observation.detail), **unread}
    if observation.signals:
        memory = SourceSnapshot(observation.signals, unread, epoch)
    else:
        # What brought nothing is no reading: the next one continues the one before it.
        memory = SourceSnapshot({}, unread, old.epoch if old else epoch, previous)
    same = old is not None and old.epoch == epoch
    watched = {name: span for name, span in spans.items() if name in observation.signals}
    counters = update_counters(state.counters, watched, observation.signals, previous if same else None, now)
    return replace(state, sources={**state.sources, observation.source: memory}, counters=counters)


def mark_unreached(state: TargetState, source: str, previous: float, why: str) -> TargetState:
    """A slot that a source should have reached and did not: what it read there before is no longer known.

    previous: when the source's round before this one ended, in seconds since boot. why: it did not reach it.
    """
    old = state.sources[source]
    unread = {**old.unread, **dict.fromkeys(old.signals, why)}
    memory = SourceSnapshot({}, unread, old.epoch, previous if old.unread_since is None else old.unread_since)
    return replace(state, sources={**state.sources, source: memory})


def drop_source(state: TargetState, source: str) -> TargetState:
    """A slot that a source no longer finds."""
    return replace(state, sources={name: kept for name, kept in state.sources.items() if name != source})


def merge_sources(memories: Mapping[str, SourceSnapshot]) -> tuple[dict[str, Scalar], dict[str, str]]:
    """Signals of all sources of a slot together, and what of them could not be read."""
    if len(memories) == 1:
        [memory] = memories.values()
        return memory.signals, memory.unread
    signals: dict[str, Scalar] = {}
    unread: dict[str, str] = _NOTHING
    for memory in memories.values():
        signals.update(memory.signals)
        if memory.unread:
            unread = {**unread, **memory.unread}
    return signals, unread
