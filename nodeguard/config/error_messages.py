"""Messages for values that do not fit their schema, made from msgspec's validation errors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from operator import getitem
from typing import Any

from msgspec import ValidationError, convert

from nodeguard.config.errors import FieldPath, parse_field_path

# msgspec writes "Expected `int`, got `str` - at `$.rows[3].code`".
_ERROR = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$(.*)`)?$", re.DOTALL)
_FIELD = re.compile(r"Object (?:contains (unknown)|missing required) field `(.*)`")
_EXPECTED = re.compile(r"Expected (`.*?)(?:, got .*)?$", re.DOTALL)
_NUMBER = re.compile(r"[\d.]+")
_WITH_UNIT = re.compile(r"[\d.]+(?:[a-z]+|%)")
_TYPE_NAMES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def explain_validation_error(
    error: str, schema: Any, data: Any, hidden: Collection[str] = ()
) -> tuple[FieldPath, str, str]:
    """Return the field, the problem and the remedy for the text of a msgspec validation error.

    schema: the type that data was converted to. hidden: top-level keys below which no value is shown, because
    the user may have written a secret there.
    """
    text, place = _ERROR.findall(error)[0]
    path = parse_field_path(place)
    if path and path[0] not in hidden:
        path = _with_keys(path, schema, data, error)
    if match := _FIELD.fullmatch(text):
        is_unknown, name = match.groups()
        if not is_unknown:
            return (*path, name), "is missing", "add it"
        allowed = allowed_values(schema, path)
        if path and path[0] in hidden and not name.isidentifier():
            return path, "has a key that is not known here", f"use one of {', '.join(allowed)}"
        return (
            (*path, name),
            "is not known here",
            f"use one of {', '.join(allowed)}{suggestion(name, allowed)}",
        )
    value = _value_text(data, path, hidden)
    if examples := _examples(schema, path):
        allowed_text = "".join(f" ({description})" for description in _descriptions(schema, path))
        return path, misfit(value, examples), f"write it like {' or '.join(examples)}{allowed_text}"
    if match := _EXPECTED.match(text):
        types = re.sub(
            r"`(.*?)`",
            lambda names: " or ".join(_TYPE_NAMES.get(name, name) for name in names[1].split(" | ")),
            match[1],
        )
        return path, f"{value} does not fit", f"write {types}"
    if text.startswith("Invalid ") and (allowed := allowed_values(schema, path)):
        return (
            path,
            f"{value} is not valid",
            f"use one of {', '.join(allowed)}{suggestion(value, allowed)}",
        )
    return path, text, "correct it"


def allowed_values(schema: Any, path: FieldPath) -> list[str]:
    """Return the values that an enumeration at a path allows, or the field names of a Struct there."""
    values = [value for node in _nodes_at(schema, path) for value in _values(_unwrapped(node))]
    return list(dict.fromkeys(map(str, values)))


def _with_keys(path: FieldPath, schema: Any, data: Any, error: str) -> FieldPath:
    """Return a path with the keys of mappings, which msgspec leaves out: the first with this error."""
    if ... not in path:
        return path
    before, after = path[: path.index(...)], path[path.index(...) + 1 :]
    for key, value in reduce(getitem, before, data).items():
        reduced = _replaced(data, before, {key: value})
        try:
            convert(reduced, schema)
        except ValidationError as again:
            if str(again) == error:
                return _with_keys((*before, key, *after), schema, reduced, error)
    return path


def _replaced(data: Any, path: FieldPath, value: Any) -> Any:
    """Return data with another value at a path."""
    if not path:
        return value
    copy = data.copy()
    copy[path[0]] = _replaced(data[path[0]], path[1:], value)
    return copy


def _value_text(data: Any, path: FieldPath, hidden: Collection[str]) -> str:
    for step in path:
        if step is ...:
            return "a value"
        data = data[step]
    return value_text(data, "the value" if path and path[0] in hidden else repr(data))


def value_text(data: Any, text: str = "") -> str:
    """Return a value as messages name it. text: of a scalar, if it is not its own."""
    return {list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(data), text or repr(data))


def misfit(value: str, examples: Sequence[str]) -> str:
    """Return the problem of a value, as messages name it, that is not written like the examples."""
    lacks_unit = _NUMBER.fullmatch(value) and _WITH_UNIT.fullmatch(examples[0])
    return f"{value} {'has no unit' if lacks_unit else 'does not fit'}"


def suggestion(name: str, allowed: Collection[str]) -> str:
    """Return a question for the allowed name that is nearest; empty where none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed only for an invalid file

    matches = get_close_matches(name.strip("'"), allowed, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


def _examples(schema: Any, path: FieldPath) -> list[str]:
    """Return the examples that the schema's metadata has for a path."""
    return [str(example) for extra in _metadata(schema, path) for example in extra.get("examples", ())]


def _descriptions(schema: Any, path: FieldPath) -> list[str]:
    """Return in words what the schema's metadata allows at a path."""
    return [extra["description"] for extra in _metadata(schema, path) if "description" in extra]


def _metadata(schema: Any, path: FieldPath) -> list[dict[str, Any]]:
    from msgspec import inspect  # noqa: PLC0415 - needed only for an invalid file

    nodes = _nodes_at(schema, path)
    return [node.extra_json_schema or {} for node in nodes if isinstance(node, inspect.Metadata)]


def _nodes_at(schema: Any, path: FieldPath) -> list[Any]:
    """Return the type nodes of msgspec.inspect at a path, the members of a union one by one."""
    from msgspec import inspect  # noqa: PLC0415 - needed only for an invalid file

    nodes = list(_members(inspect.type_info(schema)))
    for step in path:
        nodes = [
            member
            for node in nodes
            for child in _children(_unwrapped(node), step)
            for member in _members(child)
        ]
    return nodes


def _unwrapped(node: Any) -> Any:
    """Return a type node without its metadata."""
    from msgspec import inspect  # noqa: PLC0415

    return node.type if isinstance(node, inspect.Metadata) else node


def _members(node: Any) -> Iterator[Any]:
    from msgspec import inspect  # noqa: PLC0415

    union = _unwrapped(node)
    if isinstance(union, inspect.UnionType):
        yield from union.types
    else:
        yield node


def _children(node: Any, step: Any) -> Iterator[Any]:
    from msgspec import inspect  # noqa: PLC0415

    if isinstance(node, inspect.StructType):
        if step == node.tag_field:
            yield inspect.LiteralType((node.tag,))
        yield from (field.type for field in node.fields if field.encode_name == step)
    elif isinstance(node, inspect.TupleType):
        yield node.item_types[step]
    else:
        yield getattr(node, "item_type", None) or getattr(node, "value_type", node)


def _values(node: Any) -> list[Any]:
    from msgspec import inspect  # noqa: PLC0415

    if isinstance(node, inspect.StructType):
        return [field.encode_name for field in node.fields]
    if isinstance(node, inspect.EnumType):
        return [member.value for member in node.cls]
    return list(node.values) if isinstance(node, inspect.LiteralType) else []
