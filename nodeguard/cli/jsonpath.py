"""Templates of `-o jsonpath`, as in kubectl: parsed from the command line, filled in from a document. Pure.

No JSONPath library for Python reads the `{range}` and the text that kubectl adds to JSONPath.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import msgspec

from nodeguard.model.failure import UserError
from nodeguard.model.printable import escape_unprintable

_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
_NAME = r"(?:[^\s.\[\]{}()=!<>,\"'\\*]|\\.)+"
_STEP = re.compile(
    rf"""
    \.(?P<name>{_NAME}) | \.?\[\s*(?P<quoted>{_QUOTED})\s*\] | (?P<every>\.\*|\.?\[\s*\*\s*\])
    | \.?\[\s*(?P<index>-?\d{{1,9}})\s*\]
    | \.?\[\s*\?\(\s*@(?P<tested>(?:\.{_NAME}|\[(?:{_QUOTED}|-?\d{{1,9}})\])*)
      \s*(?:(?P<operator>[=!<>]=|<|>)\s*(?P<operand>{_QUOTED}|-?\d+(?:\.\d+)?|true|false|null))?\s*\)\s*\]
""",
    re.VERBOSE,
)
_COMPARISONS = {"==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge,
    "<": operator.lt, ">": operator.gt}  # fmt: skip
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class TemplateError(UserError):
    """A template that is invalid, or does not fit the document. Its text has the position or the field."""


class Path(NamedTuple):
    """A path into a document. is_absolute: from the document, also in a range."""

    is_absolute: bool
    steps: tuple[re.Match[str], ...]


class Range(NamedTuple):
    """Parts that are repeated for each value of a path."""

    path: Path
    parts: tuple[str | Path | Range, ...]


class Template:
    r"""A template such as `{range .nodes[*]}{.node}{"\n"}{end}`. Raises TemplateError for an invalid one."""

    def __init__(self, text: str) -> None:
        if "{" not in text:
            raise TemplateError(f"template '{text}' has no expression: write it like {{.nodes[*].node}}")
        self._text = text
        self._position = 0
        self._parts = self._read_parts(in_range=False)

    def fill(self, document: Any) -> str:
        """Return the text for a document of JSON. Raises TemplateError for a path that does not fit it."""
        return "".join(_texts(self._parts, document, document))

    def _take(self, pattern: str | re.Pattern[str]) -> re.Match[str] | None:
        """Return the match at the position, and move behind it."""
        match = re.compile(pattern).match(self._text, self._position)
        self._position = match.end() if match else self._position
        return match

    def _fail(self, expected: str) -> NoReturn:
        rest = self._text[self._position :]
        actual = f"found '{rest}'" if rest else "found its end"
        raise TemplateError(f"template, character {self._position + 1}: expected {expected}, {actual}")

    def _read_parts(self, *, in_range: bool) -> tuple[str | Path | Range, ...]:
        parts: list[str | Path | Range] = []
        while self._position < len(self._text):
            if text := self._take(r"[^{]+"):
                parts.append(text[0])
            elif quoted := self._take(rf"\{{\s*({_QUOTED})\s*\}}"):
                parts.append(_unquoted(quoted[1]))
            elif in_range and self._take(r"\{\s*end\s*\}"):
                return tuple(parts)
            elif self._take(r"\{\s*range\s+"):
                path = self._read_path()
                parts.append(Range(path, self._read_parts(in_range=True)))
            else:
                self._take(r"\{\s*")
                parts.append(self._read_path())
        return self._fail("{end}") if in_range else tuple(parts)

    def _read_path(self) -> Path:
        """Return the path up to the end of its braces."""
        root = self._take(r"[$@]?\.(?=\s*\})|[$@]")
        steps: list[re.Match[str]] = []
        while step := self._take(_STEP):
            steps.append(step)
        if not (root or steps):
            self._fail("a path such as .nodes[*].node, a quoted text, range or end")
        if not self._take(r"\s*\}"):
            self._fail("}, .name, [*], [0], ['name'] or [?(@.name==\"text\")]")
        return Path(bool(root and root[0].startswith("$")), tuple(steps))


def _texts(parts: Sequence[str | Path | Range], document: Any, current: Any) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case Path():
                yield " ".join(map(_text, _values(part, document, current)))
            case Range():
                for value in _values(part.path, document, current):
                    yield from _texts(part.parts, document, value)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    return escape_unprintable(text)


def _values(path: Path, document: Any, current: Any) -> list[Any]:
    """Return the values that a path selects. Raises TemplateError for a field that the document lacks."""
    start = document if path.is_absolute else current
    values = [start]
    for step in path.steps:
        name = _name(step)
        if step is path.steps[0] and start is document and name is not None:
            _require_field(document, name)
        values = [selected for value in values for selected in _selected(step, value)]
    return values


def _require_field(document: Any, name: str) -> None:
    """Raise TemplateError for a document that is a list, or has no field of a name."""
    if isinstance(document, dict) and name not in document:
        raise TemplateError(f"the output has no field '{name}': its fields are {', '.join(document)}")
    if isinstance(document, list):
        fields = list(document[0]) if document and isinstance(document[0], dict) else []
        example = name if name in fields or not fields else fields[0]
        listed = f": its items have {', '.join(fields)}" if fields else ""
        raise TemplateError(f"the output is a list, write it like {{[*].{example}}}{listed}")


def _name(step: re.Match[str]) -> str | None:
    """Return the name of the field that a step selects; None for a step of a list."""
    if step["name"] is not None:
        return re.sub(r"\\(.)", r"\1", step["name"])
    return _unquoted(step["quoted"]) if step["quoted"] is not None else None


def _selected(step: re.Match[str], value: Any) -> Iterator[Any]:
    name = _name(step)
    if step["every"]:
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif name is not None:
        if isinstance(value, list):
            raise TemplateError(f"field '{name}' is of the items of a list: write [*] before {step[0]}")
        if isinstance(value, dict) and name in value:
            yield value[name]
    elif isinstance(value, list) and step["tested"] is not None:
        yield from (item for item in value if _passes(step, item))
    elif isinstance(value, list) and -len(value) <= (index := int(step["index"])) < len(value):
        yield value[index]


def _passes(step: re.Match[str], item: Any) -> bool:
    """Return whether an item of a list passes a filter: its field has the value, or only exists."""
    tested = Path(is_absolute=False, steps=tuple(_STEP.finditer(step["tested"])))
    fields = _values(tested, None, item)
    if step["operator"] is None:
        return bool(fields)
    operand = step["operand"]
    expected = _unquoted(operand) if operand[0] in "\"'" else msgspec.json.decode(operand)
    for field in fields:
        comparable = type(field) is type(expected) or {type(field), type(expected)} <= {int, float}
        if step["operator"] in {"==", "!="} or comparable:
            return bool(_COMPARISONS[step["operator"]](field, expected))
    return False


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), text[1:-1])
