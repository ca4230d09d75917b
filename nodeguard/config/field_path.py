"""What may stand at a place of a form that msgspec converts to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import EllipsisType

# The keys and indices that lead to a part of a file; an ellipsis is a key that msgspec does not tell.
FieldPath = tuple["str | int | EllipsisType", ...]


def allowed_values(form: Any, place: FieldPath) -> list[str]:
    """Words that may stand at a place of a form: the values of an enumeration, or the fields of a Struct."""
    found = [word for kind in _kinds(form, place) for word in _words(_bare(kind))]
    return list(dict.fromkeys(map(str, found)))


def examples(form: Any, place: FieldPath) -> list[str]:
    """What a form gives as examples of what stands at a place."""
    from msgspec import inspect  # noqa: PLC0415 - needed only where something is wrong

    said = [
        kind.extra_json_schema or {} for kind in _kinds(form, place) if isinstance(kind, inspect.Metadata)
    ]
    return [str(example) for one in said for example in one.get("examples", ())]


def _kinds(form: Any, place: FieldPath) -> list[Any]:
    from msgspec import inspect  # noqa: PLC0415 - needed only where something is wrong

    kinds = list(_flat(inspect.type_info(form)))
    for step in place:
        kinds = [one for kind in kinds for found in _inside(_bare(kind), step) for one in _flat(found)]
    return kinds


def _bare(kind: Any) -> Any:
    """A kind without what is only said of it."""
    from msgspec import inspect  # noqa: PLC0415

    return kind.type if isinstance(kind, inspect.Metadata) else kind


def _flat(kind: Any) -> Iterator[Any]:
    from msgspec import inspect  # noqa: PLC0415

    union = _bare(kind)
    if isinstance(union, inspect.UnionType):
        yield from union.types
    else:
        yield kind


def _inside(kind: Any, step: Any) -> Iterator[Any]:
    from msgspec import inspect  # noqa: PLC0415

    if isinstance(kind, inspect.StructType):
        if step == kind.tag_field:
            yield inspect.LiteralType((kind.tag,))
        yield from (field.type for field in kind.fields if field.encode_name == step)
    elif isinstance(kind, inspect.TupleType):
        yield kind.item_types[step]
    else:
        yield getattr(kind, "item_type", None) or getattr(kind, "value_type", kind)


def _words(kind: Any) -> list[Any]:
    from msgspec import inspect  # noqa: PLC0415

    if isinstance(kind, inspect.StructType):
        return [field.encode_name for field in kind.fields]
    if isinstance(kind, inspect.EnumType):
        return [member.value for member in kind.cls]
    return list(kind.values) if isinstance(kind, inspect.LiteralType) else []
