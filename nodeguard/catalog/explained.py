"""What msgspec complains of, in words that a person who edits a file can act on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import EllipsisType

# The keys and indices that lead to a part of a file; an ellipsis is a key that msgspec does not tell.
Place = tuple["str | int | EllipsisType", ...]

# A complaint reads "Expected `int`, got `str` - at `$.rows[3].code`".
_COMPLAINT = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$(.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_FIELD = re.compile(r"Object (?:contains (unknown)|missing required) field `(.*)`")
_EXPECTED = re.compile(r"Expected (`.*?)(?:, got .*)?$", re.DOTALL)
_KINDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def explain(complaint: str, form: Any, data: Any, hidden: Collection[str] = ()) -> tuple[Place, str, str]:
    """Where data does not fit form, what is wrong there and the remedy, from the text of msgspec's error.

    hidden: first keys beneath which a person may have written a secret, so that nothing of it is shown.
    """
    what, at = _COMPLAINT.findall(complaint)[0]
    place = steps(at)
    if field := _FIELD.fullmatch(what):
        unknown, name = field.groups()
        if unknown and place and place[0] in hidden and not name.isidentifier():
            return place, "has a key that is not known here", f"use one of {', '.join(_allowed(form, place))}"
        if unknown:
            return (*place, name), "is not known here", f"use one of {', '.join(_allowed(form, place))}"
        return (*place, name), "is missing", "add it"
    shown = _shown(data, place, hidden)
    if expected := _EXPECTED.match(what):
        kinds = re.sub(r"`(.*?)`", lambda kind: " or ".join(map(_kind, kind[1].split(" | "))), expected[1])
        return place, f"{shown} does not fit", f"write {kinds}"
    if what.startswith("Invalid ") and (allowed := _allowed(form, place)):
        return place, f"{shown} is none of {', '.join(allowed)}", "use one of these"
    return place, what, "correct it"


def steps(path: str) -> Place:
    """A place in msgspec's notation: `$.rows[3].code` → ("rows", 3, "code")."""
    return tuple(... if at == "..." else name or int(at) for name, at in _STEP.findall(path))


def name(place: Place) -> str:
    """A place as a person names it: its last key, with the indices that follow; empty without a key."""
    found = ""
    for step in place:
        if isinstance(step, str):
            found = step
        elif found:
            found += "[...]" if step is ... else f"[{step}]"
    return found


def _kind(word: str) -> str:
    return _KINDS.get(word, word)


def _shown(data: Any, place: Place, hidden: Collection[str]) -> str:
    for step in place:
        if step is ...:
            return "a value"
        data = data[step]
    value = "the value" if place and place[0] in hidden else repr(data)
    return {list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(data), value)


def _allowed(form: Any, place: Place) -> list[str]:
    """Words that may stand at a place of a form: the values of an enumeration, or the fields of a Struct."""
    from msgspec import inspect  # noqa: PLC0415 - needed only where something is wrong

    def flat(kind: Any) -> list[Any]:
        return list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]

    def inside(kind: Any, step: Any) -> Iterator[Any]:
        if isinstance(kind, inspect.StructType):
            if step == kind.tag_field:
                yield inspect.LiteralType((kind.tag,))
            yield from (field.type for field in kind.fields if field.encode_name == step)
        elif isinstance(kind, inspect.TupleType):
            yield kind.item_types[step]
        else:
            yield getattr(kind, "item_type", None) or getattr(kind, "value_type", kind)

    def words(kind: Any) -> list[Any]:
        if isinstance(kind, inspect.StructType):
            return [field.encode_name for field in kind.fields]
        if isinstance(kind, inspect.EnumType):
            return [member.value for member in kind.cls]
        return list(kind.values) if isinstance(kind, inspect.LiteralType) else []

    kinds = flat(inspect.type_info(form))
    for step in place:
        kinds = [one for kind in kinds for found in inside(kind, step) for one in flat(found)]
    return list(dict.fromkeys(str(word) for kind in kinds for word in words(kind)))
