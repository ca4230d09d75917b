"""What msgspec complains of, in words that a person who edits a file can act on."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from nodeguard.config.field_path import FieldPath, allowed_values, examples

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


def explain_validation_error(
    complaint: str, form: Any, data: Any, hidden: Collection[str] = ()
) -> tuple[FieldPath, str, str]:
    """Where data does not fit form, what is wrong there and the remedy, from the text of msgspec's error.

    hidden: first keys beneath which a person may have written a secret, so that nothing of it is shown.
    """
    what, at = _COMPLAINT.findall(complaint)[0]
    place = parse_field_path(at)
    if field := _FIELD.fullmatch(what):
        unknown, name = field.groups()
        if unknown and place and place[0] in hidden and not name.isidentifier():
            return (
                place,
                "has a key that is not known here",
                f"use one of {', '.join(allowed_values(form, place))}",
            )
        if unknown:
            known = allowed_values(form, place)
            return (*place, name), "is not known here", f"use one of {', '.join(known)}{_near(name, known)}"
        return (*place, name), "is missing", "add it"
    shown = _shown(data, place, hidden)
    if like := examples(form, place):
        return place, f"{shown} does not fit", f"write it like {' or '.join(like)}"
    if expected := _EXPECTED.match(what):
        kinds = re.sub(r"`(.*?)`", lambda kind: " or ".join(map(_kind, kind[1].split(" | "))), expected[1])
        return place, f"{shown} does not fit", f"write {kinds}"
    if what.startswith("Invalid ") and (known := allowed_values(form, place)):
        return place, f"{shown} is none of {', '.join(known)}", f"use one of these{_near(shown, known)}"
    return place, what, "correct it"


def parse_field_path(path: str) -> FieldPath:
    """A place in msgspec's notation: `$.rows[3].code` → ("rows", 3, "code")."""
    return tuple(... if at == "..." else name or int(at) for name, at in _STEP.findall(path))


def field_name(place: FieldPath) -> str:
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


def _shown(data: Any, place: FieldPath, hidden: Collection[str]) -> str:
    for step in place:
        if step is ...:
            return "a value"
        data = data[step]
    value = "the value" if place and place[0] in hidden else repr(data)
    return {list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(data), value)


def _near(word: str, known: Collection[str]) -> str:
    """A question whether one of the known words was meant, empty where none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed only where something is wrong

    found = get_close_matches(word.strip("'"), known, n=1)
    return f"; did you mean {found[0]}?" if found else ""
