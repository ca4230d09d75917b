"""Structs with a distinct value in every field, and copies that differ in one field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, structs

# The value of a field in `filled`, and the one in `changed`.
Pair = tuple[Any, Any]

# A time in seconds since the epoch. Each field has one of its own, on a full second.
_EPOCH = 1_600_000_000


def leaves(kind: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every field that has no fields of its own, as `symptoms[].check`, with its type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind)
        for field in structs.fields(kind):
            yield from leaves(hints[field.name], f"{path}.{field.name}" if path else field.name)
    elif origin in {Union, UnionType}:
        [content] = [argument for argument in arguments if argument is not type(None)]
        yield from leaves(content, path)
    elif origin is tuple:
        yield from leaves(arguments[0], f"{path}[]")
    else:
        yield path, kind


def filled(kind: Any, values: Mapping[str, Pair], other: str = "") -> Any:
    """Return a value of a type with every field filled. values: of fields that cannot have any value.

    other: the path of the field that has its second value.
    """
    numbers = {path: number for number, (path, _) in enumerate(leaves(kind))}
    pairs = {path: values.get(path) or _pair(leaf, path, numbers[path]) for path, leaf in leaves(kind)}
    return _build(kind, "", {path: pair[path == other] for path, pair in pairs.items()})


def _build(kind: Any, path: str, values: Mapping[str, Any]) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind)
        names = {field.name: f"{path}.{field.name}" if path else field.name for field in structs.fields(kind)}
        return kind(**{name: _build(hints[name], below, values) for name, below in names.items()})
    if origin in {Union, UnionType}:
        [content] = [argument for argument in arguments if argument is not type(None)]
        return _build(content, path, values)
    if origin is tuple:
        return (_build(arguments[0], f"{path}[]", values),)
    return values[path]


def _pair(kind: Any, path: str, number: int) -> Pair:
    if kind is bool:
        return True, False
    if kind is int:
        return 100 + number, 200 + number
    if kind is float:
        return float(_EPOCH + 1000 * number), float(_EPOCH + 1000 * number + 500)
    if kind is str:
        return f"{path} one", f"{path} two"
    if isinstance(kind, type) and issubclass(kind, Enum):
        *_, second, first = kind
        return first, second
    raise TypeError(f"{path}: add values of {kind} here")
