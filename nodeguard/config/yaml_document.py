"""YAML files with the line of each field: the parser of checks, tables, policies, agent options and bundles.

The parser accepts mappings, sequences and scalars, and refuses anchors, aliases and tags: a few lines of
aliases expand to billions of values. Scalars follow the core schema of YAML 1.2, so `no` and `on` are text.
A number with a leading zero is text as well.
"""

from __future__ import annotations

import copy
import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from math import isinf
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nodeguard.config.error_messages import explain_validation_error
from nodeguard.config.errors import ConfigError, FieldPath, field_name, parse_field_path
from nodeguard.config.regular_file import EmptyPipeError, read_regular_file

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

# Files of nodeguard have less than a tenth of either limit.
SIZE_LIMIT = 1 << 20
DEPTH_LIMIT = 20

Schema = TypeVar("Schema")

_QUOTE = "write the value out, in quotes where it begins with *, & or !"
_SPACES = "indent with spaces, not with tabs"
_CONSTANTS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_TAB_INDENT = re.compile(rb" *\t")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d{0,18})|0x[0-9a-fA-F]{1,16}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?", re.ASCII)


class YamlDocument:
    """A parsed YAML file. file: name for messages. data: plain values. lines: line, from 1, by field path."""

    def __init__(self, file: str, data: Any, lines: dict[FieldPath, int]) -> None:
        self.file, self.data, self.lines = file, data, lines

    def line(self, path: str | FieldPath) -> int:
        """Return the line of a field, or of the nearest known field around it.

        path: as FieldPath or in msgspec's notation, `$.rows[3].code`.
        """
        path = parse_field_path(path) if isinstance(path, str) else path
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]

    def error(self, path: FieldPath, problem: str, remedy: str) -> ConfigError:
        """Return an error at a field."""
        return ConfigError(self.file, self.line(path), field_name(path), problem, remedy, path)

    def entry_error(self, entry: FieldPath, field: str, problem: str, remedy: str) -> ConfigError:
        """Return an error at a field that another field of its entry, or of a part of it, makes invalid."""
        path = (*entry, field)
        return ConfigError(self.file, self.line(path), field_name(path), problem, remedy, entry)

    def without(self, path: FieldPath) -> YamlDocument:
        """Return the document without a field that it has."""
        *parents, key = path
        data = copy.deepcopy(self.data)
        container = data
        for step in parents:
            container = container[step]
        del container[key]
        moved = ((_after_removal(field, path), line) for field, line in self.lines.items())
        return YamlDocument(self.file, data, {field: line for field, line in moved if field is not None})


def _after_removal(field: FieldPath, path: FieldPath) -> FieldPath | None:
    """Return the path that a field has once another path is removed; None if it is removed too."""
    depth, key = len(path) - 1, path[-1]
    if field[: depth + 1] == path:
        return None
    if field[:depth] != path[:-1] or len(field) <= depth:
        return field
    step = field[depth]
    if isinstance(step, int) and isinstance(key, int) and step > key:
        return (*field[:depth], step - 1, *field[depth + 1 :])
    return field


def collect_errors(document: YamlDocument, read: Callable[[YamlDocument], object]) -> list[ConfigError]:
    """Return all errors that a reader finds in a document, by line.

    read: raises ConfigError for the first error. It reads the document again without each invalid field.
    Where that field is required, the entry around it is left out too.
    """
    errors: list[ConfigError] = []
    removed: set[FieldPath] = set()
    while True:
        try:
            read(document)
        except ConfigError as error:
            # A field that was removed is missing now, and the entries around it may be invalid without it.
            is_around = (field[: len(error.path)] == error.path for field in removed)
            if not error.path or not any(is_around):
                errors.append(error)
            path = error.path
            while path not in document.lines:
                path = path[:-1]
            if not path:
                break
            document = document.without(path)
            removed = {field for old in removed if (field := _after_removal(old, path)) is not None}
            removed.add(path)
        else:
            break
    return sorted(errors, key=lambda error: error.line)


def load_yaml(path: Path | Traversable) -> YamlDocument:
    """Read and parse one YAML file of at most SIZE_LIMIT bytes. Raises ConfigError."""
    file = str(path)
    try:
        if isinstance(path, os.PathLike):
            data = read_regular_file(path, SIZE_LIMIT + 1, may_be_pipe=True)
        else:
            data = path.read_bytes()
    except OSError as error:
        remedy = "check that it is there and may be read"
        if isinstance(error, IsADirectoryError):
            remedy = "name a file in it"
        elif isinstance(error, EmptyPipeError):
            remedy = "check the command that writes to it"
        elif error.errno == errno.EINVAL:
            remedy = "name a regular file"
        raise ConfigError(file, 0, "", f"cannot be read: {error.strerror}", remedy) from None
    if len(data) > SIZE_LIMIT:
        raise ConfigError(file, 0, "", f"is larger than {SIZE_LIMIT >> 20} MiB", "shorten it")
    return parse_yaml(data, file)


def parse_yaml(data: bytes, file: str) -> YamlDocument:
    """Parse the content of one YAML file. file: name for messages. Raises ConfigError."""
    import yaml  # noqa: PLC0415 - slow to import, and no start of the product parses YAML

    try:
        events = yaml.parse(data.decode(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return _Composer(file, events).document()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(file, line, "", "is no UTF-8", "save the file as UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        line = mark.line + 1 if mark else 0
        if (getattr(error, "context", None) or "").endswith(("alias", "anchor")):
            remedy = _QUOTE
        # An error at the end of the file is one line behind its last.
        elif mark and any(_TAB_INDENT.match(text) for text in data.splitlines()[mark.line : mark.line + 1]):
            remedy = _SPACES
        else:
            remedy = "correct the YAML"
        raise ConfigError(file, line, "", f"is not valid YAML: {problem}", remedy) from None


def convert(
    document: YamlDocument,
    schema: type[Schema],
    hidden: Collection[str] = (),
    decode: Callable[[YamlDocument, Any], Any] = lambda document, _: document.data,
) -> Schema:
    """Return the data as a Struct or another type that msgspec converts to. Raises ConfigError.

    hidden: top-level keys below which errors show no value. decode: returns the data to convert, such as
    `decode_amounts`.
    """
    try:
        return msgspec.convert(decode(document, schema), schema)
    except msgspec.ValidationError as error:
        explanation = explain_validation_error(str(error), schema, document.data, hidden)
        raise document.error(*explanation) from None


def read_yaml(
    path: Path | Traversable, schema: type[Schema], hidden: Collection[str] = ()
) -> tuple[YamlDocument, Schema]:
    """Load a YAML file and convert its data; see load_yaml and convert."""
    document = load_yaml(path)
    return document, convert(document, schema, hidden)


def require_unique(document: YamlDocument, values: Iterable[tuple[FieldPath, Any]]) -> None:
    """Raise ConfigError for the first value that two fields share."""
    first: dict[Any, FieldPath] = {}
    for path, value in values:
        if value in first:
            problem = f"{value!r} is on line {document.line(first[value])} already"
            raise document.error(path, problem, "keep one of them")
        first[value] = path


class _Composer:
    """Builds data and lines from the parser's events, so that PyYAML resolves nothing on its own."""

    def __init__(self, file: str, events: Iterator[Any]) -> None:
        self.events = ((type(event).__name__.removesuffix("Event"), event) for event in events)
        self.result = YamlDocument(file, None, {})

    def document(self) -> YamlDocument:
        next(self.events)
        kind, event = next(self.events)
        if kind == "StreamEnd":
            raise self.error(event, (), "is empty", "write `name: value` lines")
        self.result.data = self.node(*next(self.events), ())
        next(self.events)
        kind, event = next(self.events)
        if kind != "StreamEnd":
            raise self.error(event, (), "has a second document", "keep one document in a file")
        return self.result

    def node(self, kind: str, event: Any, path: FieldPath) -> Any:
        self.result.lines.setdefault(path, event.start_mark.line + 1)
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise self.error(event, path, "has an anchor, alias or tag", _QUOTE)
        if len(path) > DEPTH_LIMIT:
            raise self.error(event, path, f"is nested deeper than {DEPTH_LIMIT} levels", "flatten it")
        if kind == "Scalar":
            return self.scalar(event, path) if event.implicit[0] else event.value
        return list(self.items(path)) if kind == "SequenceStart" else dict(self.entries(path))

    def scalar(self, event: Any, path: FieldPath) -> Any:
        value = _scalar(event.value)
        # A comparison with it would be the same for every reading.
        if isinstance(value, float) and isinf(value):
            raise self.error(event, path, f"{event.value} is too large for a number", "write a smaller one")
        return value

    def items(self, path: FieldPath) -> Iterator[Any]:
        index = 0
        while (item := next(self.events))[0] != "SequenceEnd":
            yield self.node(*item, (*path, index))
            index += 1

    def entries(self, path: FieldPath) -> Iterator[tuple[str | int, Any]]:
        while (item := next(self.events))[0] != "MappingEnd":
            key, event = self.node(*item, path), item[1]
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise self.error(event, path, "has a key that is no name", "write a word or a whole number")
            if (*path, key) in self.result.lines:
                raise self.error(event, (*path, key), "appears twice", "keep one of them")
            self.result.lines[*path, key] = event.start_mark.line + 1
            yield key, self.node(*next(self.events), (*path, key))

    def error(self, event: Any, path: FieldPath, problem: str, remedy: str) -> ConfigError:
        line = event.start_mark.line + 1
        return ConfigError(self.result.file, line, field_name(path), problem, remedy)


def _scalar(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text
