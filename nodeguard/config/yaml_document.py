"""YAML with positions: what a file says, and the line on which it says it.

Only what a configuration needs is read: mappings, sequences and scalars; no anchors, aliases or tags. Scalars
are those of the YAML 1.2 core schema, so `no` and `on` are words; a number with a leading zero is text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nodeguard.config.error_messages import explain_validation_error, field_name, parse_field_path
from nodeguard.config.field_path import FieldPath

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

# No file of ours has a tenth of either; one that has more is a mistake or an attack.
SIZE_LIMIT = 1 << 20
DEPTH_LIMIT = 20

Form = TypeVar("Form")

_QUOTE = "write the value out, in quotes where it begins with *, & or !"
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d{0,18})|0x[0-9a-fA-F]{1,16}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?", re.ASCII)


class ConfigError(Exception):
    """A file of the catalogue that cannot be used: which file, line (from 1; 0 for all of it) and field, what
    is wrong, and the remedy. As text, one line.
    """

    def __init__(self, file: str, line: int, field: str, problem: str, remedy: str) -> None:
        super().__init__(file, line, field, problem, remedy)
        self.file, self.line, self.field, self.problem, self.remedy = file, line, field, problem, remedy

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        said = ": ".join(part for part in (where, self.field, self.problem, self.remedy) if part)
        # A file's own words may hold a line break, or what a terminal takes for a command.
        return "".join(one if one.isprintable() else "?" for one in said)


class YamlDocument:
    """What a file says: file, as messages name it; data, plain; lines, from 1, by place."""

    def __init__(self, file: str, data: Any, lines: dict[FieldPath, int]) -> None:
        self.file, self.data, self.lines = file, data, lines

    def line(self, place: str | FieldPath) -> int:
        """Line of a place, or of the nearest known one around it. msgspec's `$.rows[3].code` will do, too."""
        place = parse_field_path(place) if isinstance(place, str) else place
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]

    def error(self, place: FieldPath, problem: str, remedy: str) -> ConfigError:
        """An error at a place of this file."""
        return ConfigError(self.file, self.line(place), field_name(place), problem, remedy)


def load_yaml(path: Path | Traversable) -> YamlDocument:
    """Reads one YAML file. Raises CatalogueError where it cannot be read or is not as described above."""
    import yaml  # noqa: PLC0415 - no start of the product parses YAML

    file = str(path)
    try:
        text = _text(path)
        return _Builder(file, yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))).document()
    except OSError as error:
        remedy = "check that it is there and may be read"
        raise ConfigError(file, 0, "", f"cannot be read: {error.strerror}", remedy) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(file, line, "", "is no UTF-8", "save the file as UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        pointed = (getattr(error, "context", None) or "").endswith(("alias", "anchor"))
        remedy = _QUOTE if pointed else "correct the YAML"
        raise ConfigError(file, mark.line + 1 if mark else 0, "", problem, remedy) from None


def convert(located: YamlDocument, form: type[Form], hidden: Collection[str] = ()) -> Form:
    """The data as a Struct or whatever msgspec converts to. Raises CatalogueError where it does not fit.

    hidden: first keys beneath which no value is shown.
    """
    try:
        return msgspec.convert(located.data, form)
    except msgspec.ValidationError as error:
        raise located.error(*explain_validation_error(str(error), form, located.data, hidden)) from None


def read_yaml(
    path: Path | Traversable, form: type[Form], hidden: Collection[str] = ()
) -> tuple[YamlDocument, Form]:
    """A YAML file, and what it says as a form. Raises CatalogueError as load and convert do."""
    located = load_yaml(path)
    return located, convert(located, form, hidden)


def require_unique(located: YamlDocument, values: Iterable[tuple[FieldPath, Any]]) -> None:
    """Raises CatalogueError where two places have the same value."""
    seen: dict[Any, FieldPath] = {}
    for place, value in values:
        if value in seen:
            problem = f"{value!r} stands on line {located.line(seen[value])} already"
            raise located.error(place, problem, "keep one of them")
        seen[value] = place


def _text(path: Path | Traversable) -> str:
    with path.open("rb") as stream:
        raw: bytes = stream.read(SIZE_LIMIT + 1)
    if len(raw) > SIZE_LIMIT:
        raise ConfigError(str(path), 0, "", f"is larger than {SIZE_LIMIT} bytes", "split it")
    return raw.decode()


class _Builder:
    """Builds data and lines from the parser's events, so that nothing is resolved that was not asked for."""

    def __init__(self, file: str, events: Iterator[Any]) -> None:
        self.events = ((type(event).__name__.removesuffix("Event"), event) for event in events)
        self.found = YamlDocument(file, None, {})

    def document(self) -> YamlDocument:
        next(self.events)
        kind, event = next(self.events)
        if kind == "StreamEnd":
            raise self.refused(event, (), "is empty", "remove it, or write what it is for")
        self.found.data = self.node(*next(self.events), ())
        next(self.events)
        kind, event = next(self.events)
        if kind != "StreamEnd":
            raise self.refused(event, (), "a second document begins", "keep one document in a file")
        return self.found

    def node(self, kind: str, event: Any, place: FieldPath) -> Any:
        self.found.lines.setdefault(place, event.start_mark.line + 1)
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise self.refused(event, place, "has an anchor, alias or tag", _QUOTE)
        if len(place) > DEPTH_LIMIT:
            raise self.refused(event, place, f"is nested deeper than {DEPTH_LIMIT} levels", "flatten it")
        if kind == "Scalar":
            return _scalar(event.value) if event.implicit[0] else event.value
        return list(self.items(place)) if kind == "SequenceStart" else dict(self.entries(place))

    def items(self, place: FieldPath) -> Iterator[Any]:
        index = 0
        while (item := next(self.events))[0] != "SequenceEnd":
            yield self.node(*item, (*place, index))
            index += 1

    def entries(self, place: FieldPath) -> Iterator[tuple[str | int, Any]]:
        while (item := next(self.events))[0] != "MappingEnd":
            key, event = self.node(*item, place), item[1]
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise self.refused(event, place, "a key is no name", "write a word or a whole number")
            if (*place, key) in self.found.lines:
                raise self.refused(event, (*place, key), "stands twice", "keep one of them")
            self.found.lines[*place, key] = event.start_mark.line + 1
            yield key, self.node(*next(self.events), (*place, key))

    def refused(self, event: Any, place: FieldPath, problem: str, remedy: str) -> ConfigError:
        line = event.start_mark.line + 1
        return ConfigError(self.found.file, line, field_name(place), problem, remedy)


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text
