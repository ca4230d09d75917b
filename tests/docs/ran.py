"""Which printed commands the current test has run, and which tests have to run which."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

# Commands by the test that runs them, as they are printed.
TABLE = Path(__file__).parent / "run_by.yaml"

# Of the current test.
_RAN: set[str] = set()


def one_line(printed: str) -> str:
    """Return a printed command without its comment, with single spaces."""
    return " ".join(re.sub(r"\s+# .*", "", printed).split())


def record_command(printed: str) -> None:
    """Record that the current test runs a command that a page prints."""
    _RAN.add(one_line(printed))


def begin_test() -> None:
    _RAN.clear()


def check_commands(test: str) -> None:
    """Fail where the test that ends has not run the commands that the table names for it. test: its node id."""
    ran = {_words(command) for command in _RAN}
    missing = [command for command in run_by().get(test, ()) if _words(command) not in ran]
    assert not missing, f"{TABLE.name} names commands that the test does not run: {missing}"


def _words(command: str) -> tuple[str, ...]:
    """Return the words of a command: a test may write their quotes differently."""
    return tuple(shlex.split(command))


@cache
def run_by() -> Mapping[str, tuple[str, ...]]:
    """Return the table."""
    loaded: dict[str, list[str]] = yaml.safe_load(TABLE.read_text("utf-8"))
    return {test: tuple(commands) for test, commands in loaded.items()}
