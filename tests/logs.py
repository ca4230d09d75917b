"""The log of a test: records of nodeguard's loggers as lines, after the filter of repeated problems."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

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

    def text(self) -> list[str]:
        """Return each line as text: level, message, then `field=value`."""
        return [_text(line) for line in self.lines]


def _text(line: dict[str, object]) -> str:
    fields = [f"{name}={value}" for name, value in line.items() if name not in {"level", "msg"}]
    return " ".join((str(line["level"]).upper(), str(line["msg"]), *fields))


@contextmanager
def recorded_log() -> Iterator[LogLines]:
    """Collect the lines of level `info` and above."""
    logger, output = logging.getLogger("nodeguard"), LogLines()
    level = logger.level
    logger.addHandler(output)
    logger.setLevel(logging.INFO)
    try:
        yield output
    finally:
        logger.setLevel(level)
        logger.removeHandler(output)


@pytest.fixture
def log() -> Iterator[LogLines]:
    """Return the log of a test."""
    with recorded_log() as output:
        yield output
