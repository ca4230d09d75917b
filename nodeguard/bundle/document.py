"""The YAML of a bundle: maps, lists and scalars, nothing clever.

PyYAML's parser does the reading; the values are made here, event by event, because a bundle may come from
anybody and its meaning must be plain: no aliases (a few lines of them make billions of values), no tags, no
key that stands twice, no `no` that becomes a truth or time that becomes an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nodeguard.bundle.defect import BundleError

_DEEPEST = 8
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def mapping(data: bytes, file: str) -> dict[str, Any]:
    """The map that a YAML document is. Keys are text; values text, int, float, bool, None, list or map.

    Raises BundleError with the line of whatever is wrong.
    """
    import yaml  # noqa: PLC0415 - much of a start's time, and only those who open a bundle need it

    try:
        events = yaml.parse(data.decode(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        value = _Composer(events, file).document()
    except UnicodeDecodeError as error:
        raise BundleError(file, "", f"is no UTF-8 (byte {error.start})", "save it as UTF-8") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        problem = f"is no YAML: {error.problem}"
        raise BundleError(file, f"line {mark.line + 1}" if mark else "", problem, "mend it") from error
    except yaml.YAMLError as error:
        raise BundleError(file, "", f"is no YAML: {' '.join(str(error).split())}", "mend it") from error
    if not isinstance(value, dict):
        raise BundleError(
            file, "", "is no map", "write `name: value` lines, or {} where nothing is to be said"
        )
    return value


def quoted(text: str) -> str:
    """Text as a YAML scalar in double quotes, on one line. What is no Unicode becomes `?`."""
    from msgspec import json  # noqa: PLC0415 - only who writes needs it

    scalar = json.encode(text.encode(errors="replace").decode()).decode()
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", scalar)


class _Composer:
    """Makes values of parse events."""

    def __init__(self, events: Iterator[Any], file: str) -> None:
        self._events = events
        self._file = file

    def document(self) -> Any:
        """The value of the one document; None where there is none."""
        values = [
            self._value(next(self._events), 1)
            for event in self._events
            if type(event).__name__ == "DocumentStartEvent"
        ]
        if len(values) > 1:
            raise BundleError(self._file, "", "holds several documents", "keep one")
        return values[0] if values else None

    def _value(self, event: Any, depth: int) -> Any:
        kind = type(event).__name__
        if kind == "AliasEvent":
            raise self._defect(event, "holds an alias", "write the value out")
        if event.tag not in (None, "!"):
            raise self._defect(event, f"holds a tag, {event.tag}", "write the plain value")
        if kind == "ScalarEvent":
            return _scalar(event)
        if depth > _DEEPEST:
            raise self._defect(event, f"is more than {_DEEPEST} levels deep", "write it flat")
        if kind == "SequenceStartEvent":
            return [self._value(item, depth + 1) for item in self._until("SequenceEndEvent")]
        found: dict[str, Any] = {}
        for key in self._until("MappingEndEvent"):
            if type(key).__name__ != "ScalarEvent":
                raise self._defect(key, "holds a key that is no text", "write a name")
            if key.value in found:
                raise self._defect(key, f"{key.value!r} stands twice", "keep one")
            found[key.value] = self._value(next(self._events), depth + 1)
        return found

    def _until(self, end: str) -> Iterator[Any]:
        for event in self._events:
            if type(event).__name__ == end:
                return
            yield event

    def _defect(self, event: Any, problem: str, remedy: str) -> BundleError:
        return BundleError(self._file, f"line {event.start_mark.line + 1}", problem, remedy)


def _scalar(event: Any) -> str | int | float | bool | None:
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
