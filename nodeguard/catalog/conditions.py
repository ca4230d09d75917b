"""Conditions of checks, parsed from their YAML schema and validated against the signals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import fields

from nodeguard.catalog.check_schema import ConditionSchema, Operand, ReferenceSchema, Value
from nodeguard.config.errors import FieldPath
from nodeguard.config.yaml_document import YamlDocument
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

# The attribute of ConditionSchema with the operand of each operator.
_ATTRIBUTES = {field.encode_name: field.name for field in fields(ConditionSchema)}
_OPERATORS: dict[Operator, str] = {operator: _ATTRIBUTES[operator] for operator in get_args(Operator)}
_ORDER_OPERATORS = frozenset({"below", "at_most", "above", "at_least"})

# No reading has more than 64 bits.
_LARGEST_READING = 1 << 64


class ConditionParser(Struct, frozen=True):
    """Parses the conditions of a file. Each method raises ConfigError.

    document: the file, for the line of an error. signals: all that exist, by name. path: of the condition.
    """

    document: YamlDocument
    signals: Mapping[str, Signal]

    def condition(self, schema: ConditionSchema, path: FieldPath) -> Condition:
        """Return the condition of a schema."""
        inner = self._inner(schema, path)
        if isinstance(schema.for_, UnsetType):
            if schema.seen_once is not UNSET:
                remedy = "add `for`, or remove it"
                raise self.document.error((*path, "seen_once"), "goes with `for`", remedy)
            return inner
        return Sustained(inner, schema.for_, seen_once=schema.seen_once is not False)

    def _inner(self, schema: ConditionSchema, path: FieldPath) -> Condition:
        kinds = [name for name in ("signal", "event", "any_", "all_") if getattr(schema, name) is not UNSET]
        if len(kinds) != 1:
            present = " and ".join(kind.rstrip("_") for kind in kinds) or "none of them"
            remedy = "write exactly one of signal, event, any, all"
            raise self.document.error(path, f"has {present}", remedy)
        if not isinstance(schema.any_, UnsetType):
            self._allow_only(schema, path, "any_")
            return AnyOf(self._parts(schema.any_, (*path, "any")))
        if not isinstance(schema.all_, UnsetType):
            self._allow_only(schema, path, "all_")
            return AllOf(self._parts(schema.all_, (*path, "all")))
        if schema.event is not UNSET:
            return self._event_condition(schema, path)
        return self._signal_condition(schema, path)

    def _parts(self, schemas: tuple[ConditionSchema, ...], path: FieldPath) -> tuple[Condition, ...]:
        return tuple(self.condition(schema, (*path, index)) for index, schema in enumerate(schemas))

    def _allow_only(self, schema: ConditionSchema, path: FieldPath, *allowed: str) -> None:
        """Refuse fields that do not go with this kind of condition."""
        for field in schema.__struct_fields__:
            if field not in {*allowed, "for_", "seen_once"} and getattr(schema, field) is not UNSET:
                name = field.rstrip("_")
                kind = allowed[0].rstrip("_")
                raise self.document.error((*path, name), f"does not go with {kind}", f"remove {name}")

    def _signal(self, name: object, path: FieldPath) -> Signal:
        signal = self.signals.get(str(name))
        if signal is None:
            from difflib import get_close_matches  # noqa: PLC0415 - only for a misspelt name

            nearest = get_close_matches(str(name), self.signals, n=3, cutoff=0.0)
            raise self.document.error(path, f"'{name}' is no signal", f"nearest are {', '.join(nearest)}")
        return signal

    def _reading_signal(self, name: object, path: FieldPath) -> Signal:
        signal = self._signal(name, path)
        if signal.kind == "event":
            raise self.document.error(path, f"{signal.name} is an event", "use `event` for it")
        return signal

    def _event_signal(self, name: object, path: FieldPath) -> Signal:
        signal = self._signal(name, path)
        if signal.kind != "event":
            raise self.document.error(path, f"{signal.name} is a {signal.kind}", "use `signal` for it")
        if sign := SIGN_EVENTS.get(signal.name):
            problem = f"{signal.name} is a sign, which no condition counts"
            raise self.document.error(path, problem, f"add {sign} to the check's `cleared_by`")
        return signal

    def _event_condition(self, schema: ConditionSchema, path: FieldPath) -> EventOccurred:
        self._allow_only(schema, path, "event", "where", "times", "over", "until", "apart", "unless_read")
        signal = self._event_signal(schema.event, (*path, "event"))
        until = self._event_signal(schema.until, (*path, "until")).name if schema.until is not UNSET else ""
        where: dict[str, tuple[Value, ...]] = {}
        for field, value in (schema.where or {}).items():
            if field not in signal.fields:
                fields = ", ".join(signal.fields) or "none"
                problem = f"{signal.name} has no such field"
                raise self.document.error((*path, "where", field), problem, f"its fields are {fields}")
            where[field] = tuple(value) if isinstance(value, list) else (value,)
        times, apart = schema.times or 1, schema.apart or 0.0
        if apart and times == 1:
            raise self.document.error((*path, "apart"), "goes with `times`", "add `times`, or remove it")
        readings = [self._reading_signal(name, (*path, "unless_read")) for name in schema.unless_read or []]
        unless_read = {reading.name: reading.source for reading in readings}
        return EventOccurred(signal.name, where, times, schema.over or 0.0, until, apart, unless_read)

    def _signal_condition(self, schema: ConditionSchema, path: FieldPath) -> Compare | Increase:
        signal = self._reading_signal(schema.signal, (*path, "signal"))
        if isinstance(schema.increases_by, UnsetType):
            return self._comparison(schema, signal, path)
        self._allow_only(schema, path, "signal", "increases_by", "over")
        if signal.kind != "counter":
            problem = f"{signal.name} is a {signal.kind}, and only counters increase"
            raise self.document.error((*path, "increases_by"), problem, "compare it instead")
        if isinstance(schema.over, UnsetType):
            raise self.document.error((*path, "over"), "is missing", "write a window, such as `over: 1h`")
        if schema.increases_by > _LARGEST_READING:
            problem = f"{schema.increases_by:g} is larger than any reading"
            raise self.document.error((*path, "increases_by"), problem, "write a number of at most 64 bits")
        return Increase(signal.name, schema.increases_by, schema.over, signal.bits)

    def _comparison(self, schema: ConditionSchema, signal: Signal, path: FieldPath) -> Compare:
        if schema.over is not UNSET:
            raise self.document.entry_error(
                path, "over", "goes with `increases_by`", "add it, or remove `over`"
            )
        self._allow_only(schema, path, "signal", "by", "evidence", *_OPERATORS.values())
        present = [operator for operator, name in _OPERATORS.items() if getattr(schema, name) is not UNSET]
        if len(present) != 1:
            operators = ", ".join(_OPERATORS)
            problem = f"compares {signal.name} {len(present)} times"
            raise self.document.error(path, problem, f"write exactly one of {operators}")
        [operator] = present
        operand: Operand | list[Value] = getattr(schema, _OPERATORS[operator])
        by = schema.by or 0.0
        is_evidence = schema.evidence is not False
        if by and operator not in _ORDER_OPERATORS:
            remedy = "remove by, or use below or above"
            raise self.document.error((*path, "by"), f"does not go with {operator}", remedy)
        if isinstance(operand, ReferenceSchema):
            reference = self._reference(operand, signal, (*path, operator))
            return Compare(signal.name, operator, None, reference, by, is_evidence)
        if by:
            problem = "moves a reference, and this is a constant"
            raise self.document.error((*path, "by"), problem, "move the constant itself")
        values = tuple(operand) if isinstance(operand, list) else (operand,)
        for value in values:
            self._require_possible_value(signal, operator, value, path)
            if signal.unit == "ratio" and isinstance(value, (int, float)) and value > 1:
                problem = f"{value:g} is above 1, and {signal.name} is a ratio"
                remedy = f"write {value / 100:g} for {value:g} %"
                raise self.document.error((*path, operator), problem, remedy)
        value_or_values = values if operator == "in" else values[0]
        return Compare(signal.name, operator, value_or_values, evidence=is_evidence)

    def _require_possible_value(
        self, signal: Signal, operator: Operator, value: Value, path: FieldPath
    ) -> None:
        """Refuse a constant that no reading of the signal can be compared with, or equal to."""
        if isinstance(value, (bool, str)):
            if operator in _ORDER_OPERATORS:
                problem = f"{value!r} is no number, and `{operator}` compares numbers"
                ratio = " from 0 to 1, such as 0.95 for 95 %" if signal.unit == "ratio" else ""
                raise self.document.error((*path, operator), problem, f"write a number{ratio}")
            if signal.kind != "state":
                problem = f"{value!r} is no number, and {signal.name} is a {signal.kind}"
                raise self.document.error((*path, operator), problem, "write a number")
        elif abs(value) > _LARGEST_READING:
            problem = f"{value:g} is larger than any reading"
            raise self.document.error((*path, operator), problem, "write a number of at most 64 bits")

    def _reference(self, schema: ReferenceSchema, signal: Signal, path: FieldPath) -> Reference:
        present = [name for name in schema.__struct_fields__ if getattr(schema, name) is not UNSET]
        if len(present) != 1:
            remedy = "write one of platform, signal, peers, inventory"
            raise self.document.error(path, f"has {len(present)} references", remedy)
        if not isinstance(schema.platform, UnsetType):
            if schema.platform not in EXPECTATIONS:
                names = ", ".join(EXPECTATIONS)
                problem = f"no platform expects '{schema.platform}'"
                raise self.document.error((*path, "platform"), problem, f"it is one of {names}")
            return Reference("platform", schema.platform)
        if not isinstance(schema.signal, UnsetType):
            return Reference("signal", self._reading_signal(schema.signal, (*path, "signal")).name)
        return Reference("peers" if schema.peers is not UNSET else "inventory", signal.name)
