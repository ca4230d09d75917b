from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from nodeguard.local import logs
from nodeguard.local.logs import DedupFilter, LogOutput, start_logging
from tests.waiting import PATIENCE

logger = logging.getLogger("nodeguard.test")


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def record(message: str, level: int = logging.WARNING, **fields: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "nodeguard.test", "msg": message, "levelno": level, "levelname": "WARNING", **fields}
    )


def lines(descriptor: int) -> list[dict[str, object]]:
    """Read all lines until the end."""
    with os.fdopen(descriptor) as stream:
        return [json.loads(line) for line in stream]


def logged(form: str, *records: logging.LogRecord, level: str = "info") -> str:
    reader, writer = os.pipe()
    with closing(start_logging(level, form, {"node": "gpu-1"}, writer)):
        for item in records:
            logger.handle(item)
    os.close(writer)
    with os.fdopen(reader) as stream:
        return stream.read()


def test_a_line_has_time_level_logger_message_and_fields() -> None:
    reader, writer = os.pipe()
    with closing(start_logging("info", "auto", {"node": "gpu-1"}, writer)):
        logger.debug("not this level")
        logger.info("lease acquired", extra={"epoch": 3, "holder": "a b"})
    os.close(writer)
    (line,) = lines(reader)
    assert str(line.pop("time")).endswith("Z")
    assert line == {
        "level": "info",
        "logger": "nodeguard.test",
        "msg": "lease acquired",
        "node": "gpu-1",
        "epoch": 3,
        "holder": "a b",
    }


def test_text_is_for_people_and_quotes_what_is_not_one_word() -> None:
    text = logged("text", record("cannot read", file="/a", error='no "b"\n\x1b[31m', empty=""))
    assert text.partition(" ")[2] == (
        'WARNING cannot read file=/a error="no \\"b\\"\\n\\u001b[31m" empty=""\n'
    )


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_character_controls_the_terminal(form: str) -> None:
    text = logged(form, record("a\x1b]0;b\x07\x9b2J\u202e", field="c\x9b1m\r\U000e0001"))
    assert text.removesuffix("\n").isprintable()


def test_an_exception_is_one_field_without_a_traceback() -> None:
    reader, writer = os.pipe()
    with closing(start_logging("info", "json", {}, writer)):
        try:
            int("bad\nvalue")
        except ValueError:
            logger.exception("cannot parse")
    os.close(writer)
    (line,) = lines(reader)
    assert line["error"] == "ValueError: invalid literal for int() with base 10: 'bad\\nvalue'"
    assert "Traceback" not in str(line)


@pytest.fixture
def patient_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close a log after all of its lines are written: half a second is short on a busy machine."""
    monkeypatch.setattr(logs, "_CLOSE_TIMEOUT", PATIENCE)


@pytest.mark.usefixtures("patient_end")
def test_a_slow_reader_gets_whole_lines_in_order() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    output, received = LogOutput(writer, {}, as_json=True), list[dict[str, object]]()
    for number in range(200):
        output.handle(record("x", number=number, text="\udcff" * 3000))
    reading = threading.Thread(target=lambda: received.extend(lines(reader)))
    reading.start()
    output.close()
    os.close(writer)
    reading.join()
    assert [line["number"] for line in received] == list(range(200))


@pytest.mark.usefixtures("patient_end")
def test_lines_that_do_not_fit_are_dropped_and_counted() -> None:
    reader, writer = os.pipe()
    output, received = LogOutput(writer, {}, as_json=True, max_waiting=10), list[dict[str, object]]()
    for number in range(100):
        output.handle(record("x", number=number, text="y" * 50_000))
    reading = threading.Thread(target=lambda: received.extend(lines(reader)))
    reading.start()
    while not received and output._lines:
        pass
    output.handle(record("last"))
    output.close()
    os.close(writer)
    reading.join()
    assert received[-1]["msg"] == "last"
    # Lines pass while the reader makes room; each names how many were dropped before it.
    assert sum(int(str(line.get("dropped", 0))) for line in received) == 100 - (len(received) - 1)


def test_without_a_thread_the_lines_are_written_at_the_end() -> None:
    reader, writer = os.pipe()
    before = threading.stack_size(1 << 46)
    try:
        output = LogOutput(writer, {}, as_json=True)
        output.handle(record("x"))
        output.close()
    finally:
        threading.stack_size(before)
    os.close(writer)
    assert [line["msg"] for line in lines(reader)] == ["x"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_repeated_problem_is_logged_once_in_ten_minutes_with_its_count() -> None:
    clock = Clock()
    dedup = DedupFilter(clock)
    assert dedup.filter(record("down", node="a"))
    for clock.now in (1.0, 300.0, 599.0):
        assert not dedup.filter(record("down", node="a"))
    assert dedup.filter(record("down", node="b"))
    clock.now = 600.0
    again = record("down", node="a")
    assert dedup.filter(again)
    assert vars(again)["repeated"] == 3


def test_a_problem_after_a_change_of_state_is_logged_again() -> None:
    dedup = DedupFilter(Clock())
    assert dedup.filter(record("down"))
    assert not dedup.filter(record("down"))
    assert dedup.filter(record("up", logging.INFO))
    assert dedup.filter(record("down"))


def test_a_fleet_of_problems_is_limited_and_counted() -> None:
    clock = Clock()
    dedup = DedupFilter(clock)
    assert sum(dedup.filter(record("rejected", node=f"gpu-{number}")) for number in range(7500)) == 50
    assert dedup.filter(record("another message"))
    clock.now = 5.0
    later = record("rejected", node="gpu-x")
    assert dedup.filter(later)
    assert vars(later)["omitted"] == 7450


def test_changes_of_state_are_never_limited() -> None:
    dedup = DedupFilter(Clock())
    assert all(dedup.filter(record("incident", logging.INFO, node="a")) for _ in range(1000))
