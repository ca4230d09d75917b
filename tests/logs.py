"""The log of a test: records of nodeguard's loggers as lines, after the filter of repeated problems."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from nodeguard.local.logs import DedupFilter, _fields


class LogLines(logging.Handler):
    """Collects records. lines: level, message as `msg`, and the fields of each."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(DedupFilter())
        self.lines: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = {"level": record.levelname.lower(), "msg": record.getMessage(), **_fields(record)}
        self.lines.append(line)

    def messages(self) -> list[str]:
        """Return the messages of all lines."""
        return [str(line["msg"]) for line in self.lines]

    def errors(self) -> list[str]:
        """Return the field `error` of each line that has one."""
        return [str(line["error"]) for line in self.lines if "error" in line]


@pytest.fixture
def log() -> Iterator[LogLines]:
    """Collect the lines of level `info` and above."""
    logger, output = logging.getLogger("nodeguard"), LogLines()
    level = logger.level
    logger.addHandler(output)
    logger.setLevel(logging.INFO)
    yield output
    logger.setLevel(level)
    logger.removeHandler(output)
