"""What a slot remembers after a round. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from msgspec.structs import replace

from nodeguard.judge.counters import advance
from nodeguard.judge.events import remember
from nodeguard.judge.state import SlotState, SourceMemory
from nodeguard.model.observation import UNREADABLE, Observation
from nodeguard.model.signal import Scalar

_NOTHING: dict[str, str] = {}


def after(
    state: SlotState | None,
    observations: Sequence[Observation],
    spans: Mapping[str, float],
    rounds: Mapping[str, float],
    now: float,
) -> SlotState:
    """A slot's memory after new observations of it (at least one), read at `now` seconds since boot; the same
    object where nothing is new.

    spans: see counters.advance. rounds: when each source's round before this one ended. A new part in the
    slot closes what was known of the old one.
    """
    if state is None:
        state = SlotState(first=now)
    shortest = min(spans.values(), default=inf)
    for observation in observations:
        old = state.sources.get(observation.source)
        previous = rounds.get(observation.source, now)
        if old is not None and now - previous <= shortest and _same(state, old, observation):
            continue
        state = _after_part(state, observation, now)
        if observation.events:
            events, signs = remember(state.events, observation.source, observation.events)
            state = replace(state, events=events, signs={**state.signs, **signs} if signs else state.signs)
        if observation.signals or observation.unread or observation.status in UNREADABLE:
            state = _after_reading(state, observation, spans, previous, now)
        elif observation.status == "absent" and old is not None:
            state = gone(state, observation.source)
    return state


def _same(state: SlotState, old: SourceMemory, new: Observation) -> bool:
    return (
        new.status == "read"
        and not new.events
        and new.signals == old.signals
        and new.unread == old.unread
        and new.epoch == old.epoch
        and (new.part is None or new.part == state.part)
        and old.lapsed is None
    )


def _after_part(state: SlotState, observation: Observation, now: float) -> SlotState:
    part = observation.part
    if part is None or not part.id or part == state.part:
        return state
    if state.part is None or state.part.id == part.id:
        return replace(state, part=part)
    signs = {**state.signs, "part-replaced": now}
    return SlotState(first=now, events=state.events, signs=signs, part=part)


def _after_reading(
    state: SlotState, observation: Observation, spans: Mapping[str, float], previous: float, now: float
) -> SlotState:
    old = state.sources.get(observation.source)
    if old is not None and old.lapsed is not None:
        previous = old.lapsed
    # A round that did not come to its end adds to the one before; what tells its epoch may be what it lacks.
    begun = old if observation.status in UNREADABLE else None
    epoch = begun.epoch if begun is not None else observation.epoch
    unread = observation.unread
    if begun is not None:
        names = (name for name in (*begun.signals, *begun.unread) if name not in observation.signals)
        unread = {**dict.fromkeys(names, observation.detail), **unread}
    if observation.signals:
        memory = SourceMemory(observation.signals, unread, epoch)
    else:
        # What brought nothing is no reading: the next one continues the one before it.
        memory = SourceMemory({}, unread, old.epoch if old else epoch, previous)
    same = old is not None and old.epoch == epoch
    watched = {name: span for name, span in spans.items() if name in observation.signals}
    counters = advance(state.counters, watched, observation.signals, previous if same else None, now)
    return replace(state, sources={**state.sources, observation.source: memory}, counters=counters)


def unreached(state: SlotState, source: str, previous: float, why: str) -> SlotState:
    """A slot that a source should have reached and did not: what it read there before is no longer known.

    previous: when the source's round before this one ended, in seconds since boot. why: it did not reach it.
    """
    old = state.sources[source]
    unread = {**old.unread, **dict.fromkeys(old.signals, why)}
    memory = SourceMemory({}, unread, old.epoch, previous if old.lapsed is None else old.lapsed)
    return replace(state, sources={**state.sources, source: memory})


def gone(state: SlotState, source: str) -> SlotState:
    """A slot that a source no longer finds."""
    return replace(state, sources={name: kept for name, kept in state.sources.items() if name != source})


def merged(memories: Mapping[str, SourceMemory]) -> tuple[dict[str, Scalar], dict[str, str]]:
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
