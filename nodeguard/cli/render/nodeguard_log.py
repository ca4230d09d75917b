"""Explanations of lines of the log of agent and aggregator, as JSON or as text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from nodeguard.fleet_api.text.check import explanation
from nodeguard.fleet_api.view import Field, Note, Row, View
from nodeguard.model.json_decoder import JsonDecoder

# As nodeguard.local.logs defines the levels.
_LEVELS = {
    "debug": "a detail: nothing to do",
    "info": "a change of state: nothing to do",
    "warning": "a problem that may pass: act if the line comes again",
    "error": "a problem that needs a person",
}
_NO_REMEDY = (
    "The line names no remedy: look for its message in docs/troubleshooting.md, and in the lines before."
)
# A line of the format `text` of nodeguard.local.logs: it has no logger.
_TEXT_LINE = re.compile(
    r"[0-9-]{10}T[0-9:]{8}Z (DEBUG  |INFO   |WARNING|ERROR  ) ([^=]+?)"
    r'((?: \w+=(?:"(?:[^"\\]|\\.)*"|[^\s"\'=\\]+))+)$'
)
_TEXT_FIELD = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|\S+)')
# Fields that the explanation shows in another way.
_SHOWN = frozenset({"time", "level", "logger", "msg", "error", "remedy"})


class NodeguardLogOutput(Struct, frozen=True):
    """Output of nodeguard explain LINE -o json, for a line of the log of agent or aggregator.

    logger: empty for a line in the format for a terminal, which has none. error, remedy: of the line, empty
    for none. fields: all others, by name.
    """

    level: str
    logger: str
    message: str
    error: str
    remedy: str
    fields: dict[str, str]
    kind: Literal["nodeguard-log"] = "nodeguard-log"


def find_log_message(text: str) -> NodeguardLogOutput | None:
    """Return the first of the most severe lines of the log in a text; None for none. A line may have what
    journalctl or a log collector puts before it.
    """
    return _most_severe(map(_parsed, text.splitlines()))


def find_text_message(text: str) -> NodeguardLogOutput | None:
    """Return what `find_log_message` does, of lines in the format for a terminal. A line of another program
    may look like one: search for its messages first.
    """
    return _most_severe(map(_parsed_text, text.splitlines()))


def _most_severe(lines: Iterable[NodeguardLogOutput | None]) -> NodeguardLogOutput | None:
    return max(filter(None, lines), key=lambda line: list(_LEVELS).index(line.level), default=None)


def log_message_view(output: NodeguardLogOutput) -> View:
    """Return what a message of the log asks for."""
    return explanation("Log of nodeguard", output.message, tuple(_rows(output)))


def is_problem(output: NodeguardLogOutput) -> bool:
    """Return whether a message reports a problem."""
    return output.level in {"warning", "error"}


def _rows(output: NodeguardLogOutput) -> Iterator[Row]:
    yield Field("level", f"{output.level}: {_LEVELS[output.level]}")
    if output.error:
        yield Field("error", output.error)
    if output.remedy:
        yield Field("do", output.remedy)
    elif is_problem(output) and not output.error:
        yield Note(_NO_REMEDY)
    for name, value in output.fields.items():
        yield Field(name, value)
    if check := output.fields.get("check"):
        yield Field("see", f"nodeguard explain {check}")


def _parsed(line: str) -> NodeguardLogOutput | None:
    """Return a line of the log; None for another line."""
    _, start, rest = line.partition('{"time": ')
    try:
        fields = JsonDecoder(dict[str, object]).decode(f"{start}{rest}".strip())
    except msgspec.DecodeError:
        return None
    level, logger, message = (fields.get(name) for name in ("level", "logger", "msg"))
    if (
        not isinstance(level, str)
        or level not in _LEVELS
        or not str(logger).startswith("nodeguard.")
        or not isinstance(message, str)
    ):
        return None
    return _output(level, str(logger), message, fields)


def _parsed_text(line: str) -> NodeguardLogOutput | None:
    """Return a line in the format for a terminal that has fields; None for another line."""
    if (match := _TEXT_LINE.search(line)) is None:
        return None
    fields = {name: _field_value(value) for name, value in _TEXT_FIELD.findall(match[3])}
    return _output(match[1].strip().lower(), "", match[2], fields)


def _field_value(text: str) -> object:
    try:
        return JsonDecoder(str).decode(text)
    except msgspec.DecodeError:
        return text


def _output(level: str, logger: str, message: str, fields: Mapping[str, object]) -> NodeguardLogOutput:
    texts = {name: str(value) for name, value in fields.items() if value is not None}
    others = {name: text for name, text in texts.items() if name not in _SHOWN}
    error, remedy = texts.get("error", ""), texts.get("remedy", "")
    return NodeguardLogOutput(level, logger, message, error, remedy, others)
