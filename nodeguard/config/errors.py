"""Problems of configuration files: file, line, field, problem and remedy, for errors and warnings alike."""

from __future__ import annotations

from msgspec import Struct


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
        text = ": ".join(part for part in (place, self.field, self.message, self.remedy) if part)
        # Text from the file may contain a line break or a control sequence of a terminal.
        return "".join(letter if letter.isprintable() else "?" for letter in text)


class ConfigError(Exception):
    """A configuration file that cannot be used. As text, one line.

    The parameters are those of ConfigProblem; `problem` is its message, `detail` the whole.
    """

    def __init__(self, file: str, line: int, field: str, problem: str, remedy: str) -> None:
        super().__init__(file, line, field, problem, remedy)
        self.file, self.line, self.field, self.problem, self.remedy = file, line, field, problem, remedy

    @property
    def detail(self) -> ConfigProblem:
        """The problem as data."""
        return ConfigProblem(self.file, self.line, self.field, self.problem, self.remedy)

    def __str__(self) -> str:
        return str(self.detail)
