"""Conditions of checks, parsed from their YAML schema and validated against the signals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import UNSET, UnsetType

from nodeguard.catalog.check_schema import ConditionSchema, Operand, ReferenceSchema, Value
from nodeguard.config.units import parse_duration
from nodeguard.model.check import (
    SIGN_EVENTS,
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
_ORDER_OPERATORS = frozenset({"below", "at_most", "above", "at_least"})


class ConditionError(Exception):
    """An invalid condition. field: path within it. problem: what is wrong. remedy: how to fix it."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.field, self.problem, self.remedy = field, problem, remedy


def parse_condition(schema: ConditionSchema, signals: Mapping[str, Signal], path: str = "when") -> Condition:
    """Return the condition of a schema. signals: all that exist, by name. Raises ConditionError."""
    inner = _inner(schema, signals, path)
    if isinstance(schema.for_, UnsetType):
        if schema.seen_once is not UNSET:
            raise ConditionError(f"{path}.seen_once", "goes with `for`", "add `for`, or remove it")
        return inner
    return Sustained(inner, _seconds(schema.for_, f"{path}.for"), seen_once=schema.seen_once is not False)


def _inner(schema: ConditionSchema, signals: Mapping[str, Signal], path: str) -> Condition:
    kinds = [name for name in ("signal", "event", "any_", "all_") if getattr(schema, name) is not UNSET]
    if len(kinds) != 1:
        present = " and ".join(kind.rstrip("_") for kind in kinds) or "none of them"
        raise ConditionError(path, f"has {present}", "write exactly one of signal, event, any, all")
    if not isinstance(schema.any_, UnsetType):
        _allow_only(schema, path, "any_")
        return AnyOf(tuple(_parts(schema.any_, signals, f"{path}.any")))
    if not isinstance(schema.all_, UnsetType):
        _allow_only(schema, path, "all_")
        return AllOf(tuple(_parts(schema.all_, signals, f"{path}.all")))
    if schema.event is not UNSET:
        return _event_condition(schema, signals, path)
    return _signal_condition(schema, signals, path)


def _parts(schemas: list[ConditionSchema], signals: Mapping[str, Signal], path: str) -> Iterator[Condition]:
    return (parse_condition(schema, signals, f"{path}[{index}]") for index, schema in enumerate(schemas))


def _allow_only(schema: ConditionSchema, path: str, *allowed: str) -> None:
    """Refuse fields that do not go with this kind of condition."""
    for field in schema.__struct_fields__:
        if field not in {*allowed, "for_", "seen_once"} and getattr(schema, field) is not UNSET:
            name = field.rstrip("_")
            kind = allowed[0].rstrip("_")
            raise ConditionError(f"{path}.{name}", f"does not go with {kind}", f"remove {name}")


def _seconds(duration: str, field: str) -> float:
    try:
        return parse_duration(duration)
    except ValueError:
        problem = f"{duration!r} is no duration"
        raise ConditionError(field, problem, "write it like 30s, 5m, 24h or 7d") from None


def _signal(name: object, signals: Mapping[str, Signal], field: str) -> Signal:
    signal = signals.get(str(name))
    if signal is None:
        from difflib import get_close_matches  # noqa: PLC0415 - only for a misspelt name

        nearest = get_close_matches(str(name), signals, n=3, cutoff=0.0)
        raise ConditionError(field, f"'{name}' is no signal", f"nearest are {', '.join(nearest)}")
    return signal


def _reading_signal(name: object, signals: Mapping[str, Signal], field: str) -> Signal:
    signal = _signal(name, signals, field)
    if signal.kind == "event":
        raise ConditionError(field, f"{signal.name} is an event", "use `event` for it")
    return signal


def _event_signal(name: object, signals: Mapping[str, Signal], field: str) -> Signal:
    signal = _signal(name, signals, field)
    if signal.kind != "event":
        raise ConditionError(field, f"{signal.name} is a {signal.kind}", "use `signal` for it")
    if sign := SIGN_EVENTS.get(signal.name):
        problem = f"{signal.name} is a sign, which no condition counts"
        raise ConditionError(field, problem, f"add {sign} to the check's `cleared_by`")
    return signal


def _event_condition(schema: ConditionSchema, signals: Mapping[str, Signal], path: str) -> EventOccurred:
    _allow_only(schema, path, "event", "where", "times", "over", "until", "apart", "unless_read")
    signal = _event_signal(schema.event, signals, f"{path}.event")
    until = _event_signal(schema.until, signals, f"{path}.until").name if schema.until is not UNSET else ""
    where: dict[str, tuple[Value, ...]] = {}
    for field, value in (schema.where or {}).items():
        if field not in signal.fields:
            fields = ", ".join(signal.fields) or "none"
            problem = f"{signal.name} has no such field"
            raise ConditionError(f"{path}.where.{field}", problem, f"its fields are {fields}")
        where[field] = tuple(value) if isinstance(value, list) else (value,)
    over = 0.0 if isinstance(schema.over, UnsetType) else _seconds(schema.over, f"{path}.over")
    times = schema.times or 1
    apart = 0.0 if isinstance(schema.apart, UnsetType) else _seconds(schema.apart, f"{path}.apart")
    if apart and times == 1:
        raise ConditionError(f"{path}.apart", "goes with `times`", "add `times`, or remove it")
    names = schema.unless_read or []
    readings = [_reading_signal(name, signals, f"{path}.unless_read") for name in names]
    unless_read = {reading.name: reading.source for reading in readings}
    return EventOccurred(signal.name, where, times, over, until, apart, unless_read)


def _signal_condition(
    schema: ConditionSchema, signals: Mapping[str, Signal], path: str
) -> Compare | Increase:
    signal = _reading_signal(schema.signal, signals, f"{path}.signal")
    if isinstance(schema.increases_by, UnsetType):
        return _comparison(schema, signal, signals, path)
    _allow_only(schema, path, "signal", "increases_by", "over")
    if signal.kind != "counter":
        problem = f"{signal.name} is a {signal.kind}, and only counters increase"
        raise ConditionError(f"{path}.increases_by", problem, "compare it instead")
    if isinstance(schema.over, UnsetType):
        raise ConditionError(f"{path}.over", "is missing", "write a window, such as `over: 1h`")
    return Increase(signal.name, schema.increases_by, _seconds(schema.over, f"{path}.over"), signal.bits)


def _comparison(schema: ConditionSchema, signal: Signal, signals: Mapping[str, Signal], path: str) -> Compare:
    _allow_only(schema, path, "signal", "by", "evidence", *(name for name, _ in _OPERATORS))
    present = [(name, operator) for name, operator in _OPERATORS if getattr(schema, name) is not UNSET]
    if len(present) != 1:
        operators = ", ".join(operator for _, operator in _OPERATORS)
        problem = f"compares {signal.name} {len(present)} times"
        raise ConditionError(path, problem, f"write exactly one of {operators}")
    [(name, operator)] = present
    operand: Operand | list[Value] = getattr(schema, name)
    field = f"{path}.{operator}"
    by = schema.by or 0.0
    is_evidence = schema.evidence is not False
    if by and operator not in _ORDER_OPERATORS:
        remedy = "remove by, or use below or above"
        raise ConditionError(f"{path}.by", f"does not go with {operator}", remedy)
    if isinstance(operand, ReferenceSchema):
        reference = _reference(operand, signal, signals, field)
        return Compare(signal.name, operator, None, reference, by, is_evidence)
    if by:
        problem = "moves a reference, and this is a constant"
        raise ConditionError(f"{path}.by", problem, "move the constant itself")
    values = tuple(operand) if isinstance(operand, list) else (operand,)
    for value in values:
        if operator in _ORDER_OPERATORS and (isinstance(value, (bool, str))):
            raise ConditionError(field, f"{value!r} has no order", "write a number")
    value_or_values = values if operator == "in" else values[0]
    return Compare(signal.name, operator, value_or_values, evidence=is_evidence)


def _reference(
    schema: ReferenceSchema, signal: Signal, signals: Mapping[str, Signal], field: str
) -> Reference:
    present = [name for name in schema.__struct_fields__ if getattr(schema, name) is not UNSET]
    if len(present) != 1:
        problem = f"has {len(present)} references"
        raise ConditionError(field, problem, "write one of platform, signal, peers, inventory")
    if not isinstance(schema.platform, UnsetType):
        if schema.platform not in EXPECTATIONS:
            names = ", ".join(EXPECTATIONS)
            problem = f"no platform expects '{schema.platform}'"
            raise ConditionError(f"{field}.platform", problem, f"it is one of {names}")
        return Reference("platform", schema.platform)
    if not isinstance(schema.signal, UnsetType):
        return Reference("signal", _reading_signal(schema.signal, signals, f"{field}.signal").name)
    return Reference("peers" if schema.peers is not UNSET else "inventory", signal.name)
