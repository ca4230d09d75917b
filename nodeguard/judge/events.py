"""Events: how they are remembered, and what clears them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from nodeguard.judge.state import RememberedEvent
from nodeguard.model.check import ClearSign, EventOccurred
from nodeguard.model.observation import Event

# Distinct events remembered of one slot, and moments of each, newest kept: a flood costs no memory. A check
# cannot ask for more in a window than there are moments.
_DISTINCT = 64
_MOMENTS = 64

# Letters of a line that are remembered, and of each thing that it names.
_TEXT = 400

# A reading of "no recovery needed" speaks of what came before it, not of an error that the driver is still
# working on.
_SETTLING = 5.0

# An event older than this, with nothing else to corroborate it, is no more than a warning.
UNCORROBORATED_LIMIT = 86_400.0

# Events that are a sign that earlier ones are over.
SIGNS: dict[str, ClearSign] = {
    "gpu.reset": "reset",
    "nvswitch.reset": "reset",
    "driver.load": "driver-reload",
    "gpu.recovery_none": "recovery-none",
}

# What has come since, where an event is over; what another part did is nothing to tell of this one.
_SINCE: dict[ClearSign, str] = {
    "reset": "it was reset since",
    "driver-reload": "the driver was loaded since",
    "recovery-none": "the driver asks for no recovery any more",
    "retest": "a test passed since",
    "operator": "cleared by {by}",
}

_PERSON: ClearSign = "operator"

# Fields that tell one event from another of the same signal.
_DISTINGUISHING = (
    "xid", "sxid", "link", "injected", "verdict", "dev", "label", "severity", "constraint", "server",
    "interface", "adapter", "problem",
)  # fmt: skip


def record_events(
    known: Mapping[str, RememberedEvent], source: str, events: Iterable[Event]
) -> tuple[dict[str, RememberedEvent], dict[ClearSign, float]]:
    """What a slot remembers after new events, and the signs among them with the moment of each (seconds since
    boot).
    """
    after = dict(known)
    signs: dict[ClearSign, float] = {}
    for event in events:
        sign = SIGNS.get(event.signal)
        if sign is not None:
            signs[sign] = max(event.at, signs.get(sign, event.at))
            continue
        event = _short(event)  # noqa: PLW2901 - what is longer is remembered by nobody
        key = _key(source, event)
        old = after.pop(key, None)
        after[key] = _first(source, event) if old is None else _again(old, event)
    while len(after) > _DISTINCT:
        del after[min(after, key=lambda key: after[key].last)]
    return after, signs


def _short(event: Event) -> Event:
    if len(event.text) <= _TEXT and all(len(str(value)) <= _TEXT for value in event.fields.values()):
        return event
    fields = {
        name: value[:_TEXT] if isinstance(value, str) else value for name, value in event.fields.items()
    }
    return replace(event, text=event.text[:_TEXT], fields=fields)


def _key(source: str, event: Event) -> str:
    distinct = [f"{name}={event.fields[name]}" for name in _DISTINGUISHING if name in event.fields]
    return " ".join([source, event.signal, *distinct])


def _first(source: str, event: Event) -> RememberedEvent:
    return RememberedEvent(
        signal=event.signal,
        source=source,
        first=event.at,
        last=event.at,
        count=event.count,
        text=event.text,
        fields=event.fields,
        times=(event.at,) * min(event.count, _MOMENTS),
    )


def _again(old: RememberedEvent, event: Event) -> RememberedEvent:
    newer = event.at >= old.last
    return RememberedEvent(
        signal=old.signal,
        source=old.source,
        first=min(old.first, event.at),
        last=max(old.last, event.at),
        count=old.count + event.count,
        text=event.text if newer else old.text,
        fields=event.fields if newer else old.fields,
        times=(*old.times, *((event.at,) * min(event.count, _MOMENTS)))[-_MOMENTS:],
    )


def clearing_sign(
    event: RememberedEvent, clears: Iterable[ClearSign], signs: Mapping[str, float]
) -> ClearSign | None:
    """The first sign that may clear this event and was seen after it, None where there is none.

    `recovery-none`, the driver's own word that nothing is left to be done, clears only what the driver
    reports a recovery for (the event's field `recovery_reported`), and only once the driver had time to make
    up its mind. A person's word, `operator`, is given of one check, which need not say that it may be.
    """
    return next((sign for sign in (*clears, _PERSON) if _is_over(event, event.last, sign, signs)), None)


def _is_over(event: RememberedEvent, moment: float, sign: ClearSign, signs: Mapping[str, float]) -> bool:
    """Whether a sign came after one moment of an event, and may clear it."""
    at = signs.get(sign)
    if at is None:
        return False
    if sign == "recovery-none":
        return bool(event.fields.get("recovery_reported", True)) and at > moment + _SETTLING
    return at >= moment if sign == _PERSON else at > moment


def _left(event: RememberedEvent, clears: Iterable[ClearSign], signs: Mapping[str, float]) -> RememberedEvent:
    """An event without what of it came before a sign that cleared it: that began anew since."""
    ends = [sign for sign in (*clears, _PERSON) if _is_over(event, event.first, sign, signs)]
    if not ends:
        return event
    left = tuple(at for at in event.times if not any(_is_over(event, at, sign, signs) for sign in ends))
    gone = len(event.times) - len(left)
    count = event.count - gone if len(event.times) < _MOMENTS else len(left)
    return replace(event, first=min((*left, event.last)), count=count, times=left)


def active_events(
    events: Mapping[str, RememberedEvent],
    wanted: EventOccurred,
    clears: tuple[ClearSign, ...],
    signs: Mapping[str, float],
    now: float,
) -> list[RememberedEvent]:
    """Events that a condition asks for and that nothing has cleared, in the order they were last seen."""
    found = [
        _left(event, clears, signs)
        for event in _meant(events, wanted, now)
        if clearing_sign(event, clears, signs) is None
    ]
    if wanted.times > 1 and sum(_times(event, wanted.over, now) for event in found) < wanted.times:
        return []
    return sorted(found, key=lambda event: event.last)


def cleared_events(
    events: Mapping[str, RememberedEvent],
    wanted: EventOccurred,
    clears: tuple[ClearSign, ...],
    signs: Mapping[str, float],
    now: float,
    by: str = "",
) -> Iterator[tuple[RememberedEvent, str]]:
    """Events of the last day that a condition asks for and that something has cleared, and what did.

    by: who cleared those that a person did.
    """
    for event in _meant(events, wanted, now):
        since = _SINCE.get(clearing_sign(event, clears, signs) or "reboot", "").format(by=by)
        if since and event.last > now - UNCORROBORATED_LIMIT:
            yield event, since


def _meant(
    events: Mapping[str, RememberedEvent], wanted: EventOccurred, now: float
) -> Iterator[RememberedEvent]:
    for event in events.values():
        if event.signal != wanted.event or (wanted.over and event.last <= now - wanted.over):
            continue
        if wanted.until and any(_ends(other, event, wanted.until) for other in events.values()):
            continue
        if all(event.fields.get(field) in allowed for field, allowed in wanted.where.items()):
            yield event


def _ends(other: RememberedEvent, event: RememberedEvent, until: str) -> bool:
    """Whether another event came after this one and is the end of it: it speaks of the same."""
    if other.signal != until or other.last < event.last:
        return False
    return all(event.fields[field] == other.fields[field] for field in event.fields.keys() & other.fields)


def _times(event: RememberedEvent, over: float, now: float) -> int:
    return sum(1 for at in event.times if at > now - over) if over else event.count


def to_new_boot(at: float, ended: float) -> float:
    """A moment of the boot before on this boot's clock, where it is negative.

    ended: when that boot was last heard of, in seconds since it began; it took a second at least to come to
    the next one.
    """
    return min(at - ended, 0.0) - 1.0


def carry_over_events(
    events: Mapping[str, RememberedEvent], signals: Iterable[str], ended: float
) -> dict[str, RememberedEvent]:
    """Events of some signals from the boot before, on this boot's clock; see moved."""
    return {
        key: replace(
            event,
            first=to_new_boot(event.first, ended),
            last=to_new_boot(event.last, ended),
            times=tuple(to_new_boot(at, ended) for at in event.times),
        )
        for key, event in events.items()
        if event.signal in signals
    }
