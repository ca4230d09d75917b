"""Events of a target: how they are stored and counted, and the signs and clears that end them. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from msgspec.structs import replace

from nodeguard.judge.state import OperatorClear, RememberedEvent, TargetState
from nodeguard.model.check import SIGN_EVENTS, ClearSign, EventOccurred
from nodeguard.model.observation import Event

# Distinct events of one target, and times of each, newest kept: a flood costs no memory. A check cannot ask
# for more events in a window than there are times.
_MAX_EVENTS = 64
_MAX_TIMES = 64

# Letters kept of a line, and of each of its fields.
_MAX_TEXT = 400

# Seconds after which an event that no reading corroborates is a warning at most: in a day of work the fault
# of a GPU shows in its readings or in another event.
UNCORROBORATED_LIMIT = 86_400.0

# The clause for a cleared event. A replaced component has none: its events are not those of the new one.
_CLEARED_BY: dict[ClearSign, str] = {
    "reset": "it was reset since",
    "driver-reload": "the driver was loaded since",
    "recovery-none": "the driver asks for no recovery any more",
    "retest": "a test passed since",
    "operator": "cleared by {by}",
}

_OPERATOR: ClearSign = "operator"

# Fields that make two events of one signal distinct.
_DISTINGUISHING = (
    "xid", "sxid", "link", "injected", "verdict", "dev", "label", "severity", "constraint", "server",
    "interface", "adapter", "problem", "what", "code", "cache", "module",
)  # fmt: skip


def record_events(
    before: Mapping[str, RememberedEvent], source: str, events: Iterable[Event]
) -> tuple[dict[str, RememberedEvent], dict[ClearSign, float]]:
    """Return the remembered events after new ones, and the time of each new sign in seconds since boot."""
    after = dict(before)
    signs: dict[ClearSign, float] = {}
    for event in events:
        sign = SIGN_EVENTS.get(event.signal)
        if sign is not None:
            signs[sign] = max(event.at, signs.get(sign, event.at))
            continue
        short = _truncated(event)
        key = _key(source, short)
        earlier = after.pop(key, None)
        after[key] = _first(source, short) if earlier is None else _repeated(earlier, short)
    while len(after) > _MAX_EVENTS:
        del after[_oldest_of_most_frequent(after)]
    return after, signs


def _oldest_of_most_frequent(events: Mapping[str, RememberedEvent]) -> str:
    """Return the key of the oldest event of the signal that has most: a flood only displaces itself."""
    number = Counter(event.signal for event in events.values())
    return min(events, key=lambda key: (-number[events[key].signal], events[key].last))


def _truncated(event: Event) -> Event:
    if len(event.text) <= _MAX_TEXT and all(len(str(value)) <= _MAX_TEXT for value in event.fields.values()):
        return event
    fields = {
        name: value[:_MAX_TEXT] if isinstance(value, str) else value for name, value in event.fields.items()
    }
    return replace(event, text=event.text[:_MAX_TEXT], fields=fields)


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
        times=(event.at,) * min(event.count, _MAX_TIMES),
    )


def _repeated(before: RememberedEvent, event: Event) -> RememberedEvent:
    is_newer = event.at >= before.last
    return RememberedEvent(
        signal=before.signal,
        source=before.source,
        first=min(before.first, event.at),
        last=max(before.last, event.at),
        count=before.count + event.count,
        text=event.text if is_newer else before.text,
        fields=event.fields if is_newer else before.fields,
        times=(*before.times, *((event.at,) * min(event.count, _MAX_TIMES)))[-_MAX_TIMES:],
    )


def clearing_sign(
    event: RememberedEvent, clears: Iterable[ClearSign], signs: Mapping[str, float]
) -> ClearSign | None:
    """Return the first sign after this event that clears it; None without one.

    `recovery-none` is the driver's report that no recovery is needed. It clears only events that have a
    recovery (field `recovery_reported`). `operator` clears an event of any check.
    """
    return next((sign for sign in (*clears, _OPERATOR) if _clears(sign, event, event.last, signs)), None)


def _clears(sign: ClearSign, event: RememberedEvent, time: float, signs: Mapping[str, float]) -> bool:
    """Return whether a sign clears an event that happened at a time."""
    at = signs.get(sign)
    if at is None:
        return False
    if sign == "recovery-none" and not event.fields.get("recovery_reported", True):
        return False
    return at >= time if sign == _OPERATOR else at > time


def _after_signs(
    event: RememberedEvent, clears: Iterable[ClearSign], signs: Mapping[str, float]
) -> RememberedEvent:
    """Return an event without its times before a sign that clears it."""
    clearing = [sign for sign in (*clears, _OPERATOR) if _clears(sign, event, event.first, signs)]
    if not clearing:
        return event
    times = tuple(at for at in event.times if not any(_clears(sign, event, at, signs) for sign in clearing))
    cleared = len(event.times) - len(times)
    count = event.count - cleared if len(event.times) < _MAX_TIMES else len(times)
    return replace(event, first=min((*times, event.last)), count=count, times=times)


def active_events(
    events: Mapping[str, RememberedEvent],
    condition: EventOccurred,
    clears: tuple[ClearSign, ...],
    signs: Mapping[str, float],
    now: float,
) -> list[RememberedEvent]:
    """Return the events of a condition that nothing has cleared, in the order of their latest time."""
    active = [
        _after_signs(event, clears, signs)
        for event in _matching(events, condition, now)
        if clearing_sign(event, clears, signs) is None
    ]
    if condition.times > 1 and _count(active, condition, now) < condition.times:
        return []
    return sorted(active, key=lambda event: event.last)


def cleared_events(
    events: Mapping[str, RememberedEvent],
    condition: EventOccurred,
    clears: tuple[ClearSign, ...],
    signs: Mapping[str, float],
    now: float,
    by: str = "",
) -> Iterator[tuple[RememberedEvent, str]]:
    """Yield the events of the last day that a sign has cleared, with a clause that names the sign.

    by: the operator, for events that an operator cleared.
    """
    for event in _matching(events, condition, now):
        clause = _CLEARED_BY.get(clearing_sign(event, clears, signs) or "reboot", "").format(by=by)
        if clause and event.last > now - UNCORROBORATED_LIMIT:
            yield event, clause


def first_expiry(events: Mapping[str, RememberedEvent], condition: EventOccurred, now: float) -> float:
    """Return when the first event leaves a condition's window, in seconds since boot; infinity for never."""
    if not condition.over:
        return inf
    named = [event for event in events.values() if event.signal == condition.event]
    times = (at for event in named for at in (*event.times, event.last))
    return min((at for at in times if at > now - condition.over), default=inf) + condition.over


def _matching(
    events: Mapping[str, RememberedEvent], condition: EventOccurred, now: float
) -> Iterator[RememberedEvent]:
    for event in events.values():
        if event.signal != condition.event or (condition.over and event.last <= now - condition.over):
            continue
        if condition.until and any(_ends(other, event, condition.until) for other in events.values()):
            continue
        if all(event.fields.get(field) in allowed for field, allowed in condition.where.items()):
            yield event


def _ends(other: RememberedEvent, event: RememberedEvent, until: str) -> bool:
    """Return whether another event is the end of this one: it is later, and their common fields are equal."""
    if other.signal != until or other.last < event.last:
        return False
    return all(event.fields[field] == other.fields[field] for field in event.fields.keys() & other.fields)


def _count(events: list[RememberedEvent], condition: EventOccurred, now: float) -> int:
    """Return how often an event occurred; events closer together than `apart` count as one."""
    start = now - condition.over if condition.over else -inf
    if not condition.apart and not condition.over:
        return sum(event.count for event in events)
    times = sorted(at for event in events for at in event.times if at > start)
    if not condition.apart:
        return len(times)
    count, latest = 0, -inf
    for at in times:
        if at - latest >= condition.apart:
            count, latest = count + 1, at
    return count


def to_new_boot(at: float, ended: float) -> float:
    """Return a time of the boot before on this boot's clock, as a negative number of seconds.

    ended: time of the last reading of that boot, in seconds since its start. A reboot takes a second at
    least.
    """
    return min(at - ended, 0.0) - 1.0


def carry_over_events(
    events: Mapping[str, RememberedEvent], signals: Iterable[str], ended: float
) -> dict[str, RememberedEvent]:
    """Return the events of some signals of the boot before, on this boot's clock; see to_new_boot."""
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


# Each clear belongs to a finding that was active, so a node has far fewer.
_MAX_CLEARS = 256

_ByTarget = Mapping[str, tuple[OperatorClear, ...]]
_NONE: dict[str, OperatorClear] = {}


def clears_by_target(clears: Iterable[OperatorClear]) -> _ByTarget:
    """Return the clears of each target."""
    by_target: dict[str, tuple[OperatorClear, ...]] = defaultdict(tuple)
    for clear in clears:
        by_target[clear.target] += (clear,)
    return by_target


def latest_clears(by_target: _ByTarget, target: str, state: TargetState) -> dict[str, OperatorClear]:
    """Return the latest clear of each check that applies to the component in a target's location.

    Where the component is not known, every clear of the target applies.
    """
    if target not in by_target:
        return _NONE
    component = state.component.id if state.component else ""
    applying = (clear for clear in by_target[target] if not component or clear.component in {"", component})
    return {clear.check: clear for clear in sorted(applying, key=lambda clear: clear.at)}


def add_clears(before: Iterable[OperatorClear], new: Iterable[OperatorClear]) -> tuple[OperatorClear, ...]:
    """Return all clears, oldest first; a new one replaces one of the same check, target and component."""
    clears = {(clear.check, clear.target, clear.component): clear for clear in (*before, *new)}
    return tuple(sorted(clears.values(), key=lambda clear: clear.at)[-_MAX_CLEARS:])


def carry_over_clears(
    clears: Iterable[OperatorClear], targets: Mapping[str, TargetState], ended: float
) -> tuple[OperatorClear, ...]:
    """Return the clears of the boot before, on this boot's clock, of targets that have state; see
    to_new_boot.
    """
    return tuple(
        replace(clear, at=to_new_boot(clear.at, ended)) for clear in clears if clear.target in targets
    )
