"""Problems of configuration files: file, line, field, problem and remedy, of errors and warnings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from nodeguard.model.failure import UserError

if TYPE_CHECKING:
    from types import EllipsisType


# Keys and indices, outermost first; an ellipsis replaces a key that msgspec does not report.
FieldPath = tuple["str | int | EllipsisType", ...]


# Characters of a field and of a message, which may quote a damaged file, as text.
_FIELD, _MESSAGE = 100, 400


class ConfigProblem(Struct, frozen=True):
    """One problem of a configuration file: the detail of an error, or a warning. As text, one line.

    file: name as the user wrote it. line: from 1; 0 for the whole file. field: empty for the whole file.
    message: what is wrong. remedy: how to fix it.
    """

    file: str
    line: int
    field: str
    message: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        field, message = _limited(self.field, _FIELD), _limited(self.message, _MESSAGE)
        text = ": ".join(part for part in (place, field, message, self.remedy) if part)
        # Text from the file may contain a line break or a control sequence of a terminal.
        return "".join(letter if letter.isprintable() else "?" for letter in text)


def _limited(text: str, limit: int) -> str:
    """Return the begin and the end of a text, where it is longer than `limit` characters."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"


class ConfigError(UserError):
    """A configuration file that cannot be used. As text, one line.

    The parameters are those of ConfigProblem; `problem` is its message, `detail` the whole. path: of the
    field in the document, empty where it is unknown.
    """

    def __init__(
        self, file: str, line: int, field: str, problem: str, remedy: str, path: FieldPath = ()
    ) -> None:
        super().__init__(file, line, field, problem, remedy)
        self.file, self.line, self.field, self.problem, self.remedy = file, line, field, problem, remedy
        self.path = path

    @property
    def detail(self) -> ConfigProblem:
        """The problem as data."""
        return ConfigProblem(self.file, self.line, self.field, self.problem, self.remedy)

    def __str__(self) -> str:
        return str(self.detail)


_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


def parse_field_path(text: str) -> FieldPath:
    """Return the path that msgspec's notation describes: `$.rows[3].code` → ("rows", 3, "code")."""
    return tuple(... if index == "..." else name or int(index) for name, index in _STEP.findall(text))


def field_name(path: FieldPath) -> str:
    """Return a field's name for messages: its last key and the indices after it; empty without a key."""
    name = ""
    for step in path:
        if isinstance(step, str):
            name = step
        elif name:
            name += "[...]" if step is ... else f"[{step}]"
    return name
