"""Conditions as written, turned into the conditions that the judge knows, and refused where they make no
sense.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import UNSET, UnsetType

from nodeguard.catalog.check_schema import ConditionSchema, Operand, ReferenceSchema, Value, parse_duration
from nodeguard.model.check import (
    AllOf,
    AnyOf,
    Compare,
    Condition,
    EventOccurred,
    Increase,
    Operator,
    Reference,
    Sustained,
)
from nodeguard.model.platform import EXPECTATIONS
from nodeguard.model.signal import Signal

_OPERATORS: tuple[tuple[str, Operator], ...] = (
    ("is_", "is"),
    ("is_not", "is_not"),
    ("in_", "in"),
    ("below", "below"),
    ("at_most", "at_most"),
    ("above", "above"),
    ("at_least", "at_least"),
)
_ORDERED = frozenset({"below", "at_most", "above", "at_least"})


class ConditionError(Exception):
    """A condition that makes no sense. field: where in the condition; remedy: what to write instead."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.field, self.problem, self.remedy = field, problem, remedy


def parse_condition(form: ConditionSchema, signals: Mapping[str, Signal], path: str = "when") -> Condition:
    """The condition that a form says. signals: all that exist, by name. Raises DefectError."""
    inner = _inner(form, signals, path)
    if isinstance(form.for_, UnsetType):
        if form.seen_once is not UNSET:
            raise ConditionError(f"{path}.seen_once", "goes with `for`", "add `for`, or take it away")
        return inner
    return Sustained(inner, _seconds(form.for_, f"{path}.for"), seen_once=form.seen_once is not False)


def _inner(form: ConditionSchema, signals: Mapping[str, Signal], path: str) -> Condition:
    kinds = [name for name in ("signal", "event", "any_", "all_") if getattr(form, name) is not UNSET]
    if len(kinds) != 1:
        said = " and ".join(kind.rstrip("_") for kind in kinds) or "none of them"
        raise ConditionError(path, f"has {said}", "write exactly one of signal, event, any, all")
    if not isinstance(form.any_, UnsetType):
        _only(form, path, "any_")
        return AnyOf(tuple(_each(form.any_, signals, f"{path}.any")))
    if not isinstance(form.all_, UnsetType):
        _only(form, path, "all_")
        return AllOf(tuple(_each(form.all_, signals, f"{path}.all")))
    return _event(form, signals, path) if form.event is not UNSET else _signal(form, signals, path)


def _each(forms: list[ConditionSchema], signals: Mapping[str, Signal], path: str) -> Iterator[Condition]:
    return (parse_condition(form, signals, f"{path}[{at}]") for at, form in enumerate(forms))


def _only(form: ConditionSchema, path: str, *allowed: str) -> None:
    """Refuse words that do not go with this kind of condition."""
    for name in form.__struct_fields__:
        if name not in {*allowed, "for_", "seen_once"} and getattr(form, name) is not UNSET:
            shown = name.rstrip("_")
            raise ConditionError(
                f"{path}.{shown}", f"does not go with {allowed[0].rstrip('_')}", f"take {shown} away"
            )


def _seconds(duration: str, field: str) -> float:
    try:
        return parse_duration(duration)
    except ValueError:
        problem = f"{duration!r} is no length of time"
        raise ConditionError(field, problem, "write it like 30s, 5m, 24h or 7d") from None


def _known(name: object, signals: Mapping[str, Signal], field: str) -> Signal:
    found = signals.get(str(name))
    if found is None:
        from difflib import get_close_matches  # noqa: PLC0415 - only for a misspelt name

        near = get_close_matches(str(name), signals, n=3, cutoff=0.0)
        raise ConditionError(field, f"'{name}' is no signal", f"nearest are {', '.join(near)}")
    return found


def _reading(name: object, signals: Mapping[str, Signal], field: str) -> Signal:
    found = _known(name, signals, field)
    if found.kind == "event":
        raise ConditionError(field, f"{found.name} is an event", "use `event` for it")
    return found


def _known_event(name: object, signals: Mapping[str, Signal], field: str) -> Signal:
    found = _known(name, signals, field)
    if found.kind != "event":
        raise ConditionError(field, f"{found.name} is a {found.kind}", "use `signal` for it")
    return found


def _event(form: ConditionSchema, signals: Mapping[str, Signal], path: str) -> EventOccurred:
    _only(form, path, "event", "where", "times", "over", "until")
    signal = _known_event(form.event, signals, f"{path}.event")
    until = _known_event(form.until, signals, f"{path}.until").name if form.until is not UNSET else ""
    where: dict[str, tuple[Value, ...]] = {}
    for field, value in ({} if isinstance(form.where, UnsetType) else form.where).items():
        if field not in signal.fields:
            has = ", ".join(signal.fields) or "none"
            raise ConditionError(
                f"{path}.where.{field}", f"{signal.name} has no such field", f"its fields are {has}"
            )
        where[field] = tuple(value) if isinstance(value, list) else (value,)
    over = 0.0 if isinstance(form.over, UnsetType) else _seconds(form.over, f"{path}.over")
    times = 1 if isinstance(form.times, UnsetType) else form.times
    return EventOccurred(signal.name, where, times, over, until)


def _signal(form: ConditionSchema, signals: Mapping[str, Signal], path: str) -> Compare | Increase:
    signal = _reading(form.signal, signals, f"{path}.signal")
    if not isinstance(form.increases_by, UnsetType):
        _only(form, path, "signal", "increases_by", "over")
        if signal.kind != "counter":
            problem = f"{signal.name} is a {signal.kind}, and only counters increase"
            raise ConditionError(f"{path}.increases_by", problem, "compare it instead")
        if isinstance(form.over, UnsetType):
            raise ConditionError(f"{path}.over", "is missing", "say within what time, such as `over: 1h`")
        return Increase(signal.name, form.increases_by, _seconds(form.over, f"{path}.over"), signal.bits)
    return _compare(form, signal, signals, path)


def _compare(form: ConditionSchema, signal: Signal, signals: Mapping[str, Signal], path: str) -> Compare:
    _only(form, path, "signal", "by", "evidence", *(name for name, _ in _OPERATORS))
    given = [(name, word) for name, word in _OPERATORS if getattr(form, name) is not UNSET]
    if len(given) != 1:
        words = ", ".join(word for _, word in _OPERATORS)
        raise ConditionError(
            path, f"compares {signal.name} {len(given)} times", f"write exactly one of {words}"
        )
    [(name, word)] = given
    side: Operand | list[Value] = getattr(form, name)
    field = f"{path}.{word}"
    by = 0.0 if isinstance(form.by, UnsetType) else form.by
    told = form.evidence is not False
    if by and word not in _ORDERED:
        raise ConditionError(f"{path}.by", f"does not go with {word}", "take by away, or use below or above")
    if isinstance(side, ReferenceSchema):
        return Compare(signal.name, word, None, _reference(side, signal, signals, field), by, told)
    if by:
        raise ConditionError(
            f"{path}.by", "moves a reference, and this is a constant", "move the constant itself"
        )
    values = tuple(side) if isinstance(side, list) else (side,)
    for value in values:
        if word in _ORDERED and (isinstance(value, (bool, str))):
            raise ConditionError(field, f"{value!r} has no order", "write a number")
    return Compare(signal.name, word, values if word == "in" else values[0], evidence=told)


def _reference(side: ReferenceSchema, signal: Signal, signals: Mapping[str, Signal], field: str) -> Reference:
    given = [name for name in side.__struct_fields__ if getattr(side, name) is not UNSET]
    if len(given) != 1:
        raise ConditionError(
            field, f"has {len(given)} references", "write one of platform, signal, peers, inventory"
        )
    if not isinstance(side.platform, UnsetType):
        if side.platform not in EXPECTATIONS:
            names = ", ".join(EXPECTATIONS)
            raise ConditionError(
                f"{field}.platform", f"no platform expects '{side.platform}'", f"it is one of {names}"
            )
        return Reference("platform", side.platform)
    if not isinstance(side.signal, UnsetType):
        return Reference("signal", _reading(side.signal, signals, f"{field}.signal").name)
    return Reference("peers" if side.peers is not UNSET else "inventory", signal.name)
