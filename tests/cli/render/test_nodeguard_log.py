"""Explanations of lines that agent and aggregator have logged."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from nodeguard.cli.render.nodeguard_log import (
    NodeguardLogOutput,
    find_log_message,
    find_text_message,
    log_message_view,
)
from nodeguard.local.logs import LogOutput
from tests.cli.fleet_output import look

PROBLEM = "nodeguard.agent.sender", logging.WARNING, "the aggregator does not acknowledge"
CHANGE = "nodeguard.agent.app", logging.INFO, "agent started"


def logged(file: Path, *records: tuple[str, int, str], as_json: bool = True, **fields: str) -> str:
    """Return the lines of a log with these records. fields: of all of them."""
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY)
    output = LogOutput(descriptor, {"node": "gpu-1"}, as_json=as_json)
    for name, level, message in records:
        record = {"name": name, "levelno": level, "levelname": logging.getLevelName(level), "msg": message}
        output.emit(logging.makeLogRecord(record | fields))
    output.close()
    os.close(descriptor)
    return file.read_text()


def test_a_line_is_explained_from_its_fields(tmp_path: Path) -> None:
    error, remedy, check = "it answered 404", "correct the address", "gpu-lost"
    line = logged(tmp_path / "log", PROBLEM, error=error, remedy=remedy, check=check)
    found = find_log_message(f"Nov 28 19:19:17 gpu-1 nodeguard[7]: {line}")
    fields = {"node": "gpu-1", "check": check}
    assert found == NodeguardLogOutput("warning", PROBLEM[0], PROBLEM[2], error, remedy, fields)
    text = " ".join(look(log_message_view(found), 80).split())
    assert text.startswith(
        "Log of nodeguard - the aggregator does not acknowledge level warning: a problem that"
    )
    assert f"error {error} do {remedy} node gpu-1 check {check} see nodeguard explain {check}" in text


def test_the_most_severe_line_is_explained(tmp_path: Path) -> None:
    found = find_log_message(logged(tmp_path / "log", CHANGE, PROBLEM, CHANGE))
    assert found is not None
    assert found.message == PROBLEM[2]


@pytest.mark.parametrize("record", [PROBLEM, CHANGE])
def test_only_a_problem_without_error_and_remedy_refers_to_the_documentation(
    tmp_path: Path, record: tuple[str, int, str]
) -> None:
    found = find_log_message(logged(tmp_path / "log", record))
    assert found is not None
    assert ("troubleshooting.md" in look(log_message_view(found), 80)) == (record is PROBLEM)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"time": ',
        '{"time": 7}',
        '{"time": "x", "level": "warning", "logger": "other", "msg": "x"}',
        '{"time": "x", "level": "fatal", "logger": "nodeguard.x", "msg": "x"}',
        '{"time": "x", "level": ["warning"], "logger": "nodeguard.x", "msg": "x"}',
    ],
)
def test_another_text_is_no_line_of_the_log(text: str) -> None:
    assert find_log_message(text) is None


def test_an_empty_field_is_no_error() -> None:
    line = '{"time": "x", "level": "error", "logger": "nodeguard.a", "msg": "m", "error": null, "node": null}'
    assert find_log_message(line) == NodeguardLogOutput("error", "nodeguard.a", "m", "", "", {})


def test_a_deeply_nested_line_is_none_of_nodeguard() -> None:
    assert find_log_message('{"time": ' + "[" * 200_000) is None


def test_a_line_for_a_terminal_is_explained_from_its_fields(tmp_path: Path) -> None:
    error, remedy = 'it answered "404": x=1\nagain', "correct the address"
    lines = logged(tmp_path / "log", CHANGE, PROBLEM, as_json=False, error=error, remedy=remedy, endpoint="a")
    expected = NodeguardLogOutput("warning", "", PROBLEM[2], error, remedy, {"endpoint": "a"})
    assert find_text_message(f"some text\n{lines}") == expected
    line = lines.splitlines()[1]
    assert find_text_message(f"nodeguard[7]: {line}") == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "2026-11-28T19:19:17Z WARNING a message of another program",
        "2026-11-28T19:19:17Z ERROR a=1",
        "2026-11-28T19:19:17Z INFO    x=1, and more",
    ],
)
def test_another_line_with_a_time_is_no_line_for_a_terminal(line: str) -> None:
    assert find_text_message(line) is None
