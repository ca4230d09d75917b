"""Amounts with units in files: decoded before a file is converted, and written in its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import inspect

from nodeguard.config.error_messages import misfit, value_text
from nodeguard.config.errors import FieldPath
from nodeguard.config.units import parse_duration as parse_plain_duration
from nodeguard.config.yaml_document import YamlDocument
from nodeguard.model.instant import parse_rfc3339

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))

# Seconds. A longer duration is probably in a wrong unit.
MAX_DURATION = 365 * 86_400.0

# Seconds. Events and counters of a window belong to one boot, and a node rarely runs longer without a reboot.
MAX_WINDOW = 90 * 86_400.0


class AmountError(ValueError):
    """An amount is out of range. problem and remedy: see ConfigError."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}: {remedy}")
        self.problem, self.remedy = problem, remedy


def parse_share(text: str) -> float:
    """Return a percentage as a share: `5%` → 0.05. Raises ValueError."""
    return float(text.removesuffix("%")) / 100


def format_share(value: float) -> str:
    """Return a share as a percentage: 0.05 → `5%`."""
    return f"{round(value * 100, 4):g}%"


def parse_duration(text: str) -> float:
    """Return the seconds of `30s`, `10m`, `8h` or `1d`, up to a year, and of `0s`. Raises ValueError."""
    duration = 0.0 if text == "0s" else parse_plain_duration(text)
    if duration > MAX_DURATION:
        longest = f"{MAX_DURATION / 86_400:.0f}d"
        raise AmountError(f"{text} is longer than a year", f"write at most {longest}")
    return duration


def _window(text: str) -> float:
    try:
        window = parse_plain_duration(text)
    except ValueError:
        raise AmountError(f"{text!r} is no duration", "write it like 30s, 5m, 24h or 7d") from None
    if window > MAX_WINDOW:
        longest = f"{MAX_WINDOW / 86_400:.0f}d"
        raise AmountError(f"{text} is longer than a node runs without a reboot", f"write at most {longest}")
    return window


def _time(text: str) -> float:
    try:
        return parse_rfc3339(text)
    except ValueError:
        raise AmountError(
            f"{text!r} is not an RFC 3339 timestamp", "write it like 2026-11-01T12:00:00Z"
        ) from None


def _line(text: str) -> str:
    if not text or not text.isprintable():
        raise AmountError(f"{text!r} is not a text of one line", "put the name in quotes")
    return text


def format_duration(value: float) -> str:
    """Return whole seconds as a duration in the largest unit that leaves no remainder: 600.0 → `10m`."""
    size, unit = next((size, unit) for size, unit in _UNITS if value % size == 0)
    return f"{value // size:.0f}{unit}"


def _share(text: str, least: str = "write more than 0%") -> float:
    value = parse_share(text)
    if value > 1:
        raise AmountError(f"{text} is more than all", "write at most 100%")
    if value == 0:
        raise AmountError(f"{text} is invalid", least)
    return value


def _marked_share(text: str) -> float:
    return _share(text, "write more than 0%; to set no marks, use observe mode or `pause: true`")


def _reserved_share(text: str) -> float:
    value = parse_share(text)
    if value >= 1:
        raise AmountError(f"{text} leaves nothing for suspect nodes", "write less than 100%, such as 20%")
    return value


_PARSE: Mapping[str, Callable[[str], float | str]] = {
    "duration": parse_duration,
    "window": _window,
    "time": _time,
    "line": _line,
    "share": _marked_share,
    "stale share": _share,
    "reserved share": _reserved_share,
}


def decode_amounts(document: YamlDocument, schema: Any) -> Any:
    """Return the data of a document with numbers in place of amounts. schema: the type that it will have.

    Raises ConfigError for an amount that is no text of its unit, or out of range.
    """
    return _decoded(document, inspect.type_info(schema), document.data, ())


def write_amounts(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema with each amount, a number with examples, as text with its unit, and its default.

    Changes the schema in place.
    """
    definitions = schema["$defs"]
    nodes = [node for item in definitions.values() for node in item.get("properties", {}).values()]
    for node in nodes:
        if "default" in node:
            node["default"] = _written(node, node["default"], definitions)
    for node in (*nodes, *(node["items"] for node in nodes if "items" in node)):
        if _is_amount(node):
            node["type"] = "string"
    return schema


def _is_amount(node: Mapping[str, Any]) -> bool:
    return node.get("type") == "number" and "examples" in node


def _written(node: Mapping[str, Any], value: Any, definitions: Mapping[str, Any]) -> Any:
    node = definitions.get(node.get("$ref", "").rpartition("/")[2], node)
    if _is_amount(node):
        return format_share(value) if "%" in node["examples"][0] else format_duration(value)
    if isinstance(value, dict):
        fields = node.get("properties", {})
        return {name: _written(fields.get(name, {}), item, definitions) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_written(node["items"], item, definitions) for item in value)
    return value


def _decoded(document: YamlDocument, node: Any, data: Any, path: FieldPath) -> Any:
    match node:
        case inspect.Metadata(extra={"unit": str(unit)}):
            return _amount(document, _PARSE[unit], node.extra_json_schema, data, path)
        case inspect.Metadata():
            return _decoded(document, node.type, data, path)
        case inspect.UnionType():
            for member in node.types:
                data = _decoded(document, member, data, path)
        case inspect.StructType() if isinstance(data, dict):
            types = {field.encode_name: field.type for field in node.fields}
            return {
                name: _decoded(document, types[name], value, (*path, name)) if name in types else value
                for name, value in data.items()
            }
        case inspect.DictType() if isinstance(data, dict):
            return {
                name: _decoded(document, node.value_type, value, (*path, name))
                for name, value in data.items()
            }
        case inspect.VarTupleType() if isinstance(data, list):
            return [
                _decoded(document, node.item_type, value, (*path, index)) for index, value in enumerate(data)
            ]
    return data


def _amount(
    document: YamlDocument, parse: Callable[[str], float | str], written: Any, data: Any, path: FieldPath
) -> float | str:
    if not isinstance(data, str) or not re.search(written.get("pattern", ""), data):
        remedy = f"write it like {' or '.join(written['examples'])}"
        raise document.error(path, misfit(value_text(data), written["examples"]), remedy)
    try:
        return parse(data)
    except AmountError as error:
        raise document.error(path, error.problem, error.remedy) from None
