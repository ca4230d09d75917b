from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from nodeguard.sources.kmsg import parse_records
from nodeguard.sources.machine import LogCursor, LogRecords
from nodeguard.sources.machines import kernel_log
from nodeguard.sources.machines.kernel_log import KernelLog, last_sequence

OVERWRITTEN = BrokenPipeError()
NO_MORE = BlockingIOError()


def record(number: int, text: str = "text") -> bytes:
    return f"6,{number},5000000,-;{text}\n".encode()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes | OSError]]:
    """What reading the open log gives, one after the other; then there is no more."""
    script: list[bytes | OSError] = []

    def read(descriptor: int, length: int) -> bytes:
        result = script.pop(0) if script else NO_MORE
        if isinstance(result, OSError):
            raise result
        return result

    monkeypatch.setattr(os, "read", read)
    yield script
    assert script == []


def numbers(result: LogRecords) -> list[int]:
    return [int(raw.split(",")[1]) for raw in result.records]


def test_existing_records_are_read_first_then_new_ones(log: list[bytes | OSError]) -> None:
    device = KernelLog("/dev/null")
    log += [record(5), record(6)]
    assert device.read() == LogRecords((record(5).decode(), record(6).decode()), last=6)
    assert device.read() == LogRecords((), last=6)
    log += [record(7)]
    assert numbers(device.read()) == [7]
    device.close()


def test_records_lost_before_the_first_reading_are_not_reported(log: list[bytes | OSError]) -> None:
    log += [record(4000)]
    assert KernelLog("/dev/null").read().lost == 0


def test_gap_is_reported_as_lost(log: list[bytes | OSError]) -> None:
    device = KernelLog("/dev/null")
    log += [record(5), OVERWRITTEN, record(16), record(17)]
    result = device.read()
    assert (numbers(result), result.lost) == ([5, 16, 17], 10)


def test_gap_between_two_readings_is_reported(log: list[bytes | OSError]) -> None:
    device = KernelLog("/dev/null")
    log += [record(5)]
    device.read()
    log += [OVERWRITTEN, record(8)]
    assert device.read().lost == 2
    log += [record(9)]
    assert device.read().lost == 0


def test_records_read_before_a_restart_are_not_returned_again(log: list[bytes | OSError]) -> None:
    device = KernelLog("/dev/null", after=6)
    log += [record(5), record(6), record(7)]
    assert device.read() == LogRecords((record(7).decode(),), last=7)
    log += [record(8)]
    assert numbers(device.read()) == [8]


def test_restart_without_new_records_keeps_the_cursor(log: list[bytes | OSError]) -> None:
    log += [record(5), record(6), b"garbage\n"]
    assert KernelLog("/dev/null", after=6).read() == LogRecords(("garbage\n",), last=6)


def test_records_lost_during_a_restart_are_reported(log: list[bytes | OSError]) -> None:
    log += [record(16), record(17)]
    result = KernelLog("/dev/null", after=6).read()
    assert (numbers(result), result.lost) == ([16, 17], 9)


def test_the_first_record_of_a_boot_is_read_once(log: list[bytes | OSError]) -> None:
    log += [record(0), record(1)]
    assert numbers(KernelLog("/dev/null", after=0).read()) == [1]


def test_cursor_of_another_boot_is_ignored() -> None:
    assert last_sequence(None, "boot") == -1
    assert last_sequence(LogCursor("boot", 7), "boot") == 7
    assert last_sequence(LogCursor("before", 7), "boot") == -1


def test_a_log_is_read_to_its_end_however_long_it_is(log: list[bytes | OSError]) -> None:
    log += [record(number) for number in range(60_000)]
    result = KernelLog("/dev/null").read(3600.0)
    assert (numbers(result)[-1], result.more) == (59_999, False)


def test_endless_log_is_read_in_parts(log: list[bytes | OSError], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_MAX_RECORDS", 3)
    device = KernelLog("/dev/null")
    log += [record(number) for number in range(5)]
    first, second = device.read(), device.read()
    assert (numbers(first), first.more) == ([0, 1, 2], True)
    assert (numbers(second), second.more) == ([3, 4], False)


def test_log_without_time_left_reports_more_records(log: list[bytes | OSError]) -> None:
    device = KernelLog("/dev/null")
    log += [record(1)]
    assert device.read(-1.0) == LogRecords((), more=True)
    assert numbers(device.read()) == [1]


def test_invalid_utf_8_is_replaced(log: list[bytes | OSError]) -> None:
    log += [b"6,1,1,-;a\xffb\n", b"garbage\n", b""]
    assert KernelLog("/dev/null").read() == LogRecords(("6,1,1,-;a\ufffdb\n", "garbage\n"), last=1)


def test_any_other_error_is_raised_to_the_caller(log: list[bytes | OSError]) -> None:
    log += [PermissionError()]
    with pytest.raises(PermissionError):
        KernelLog("/dev/null").read()


def test_missing_log_raises_an_error_with_its_path() -> None:
    with pytest.raises(FileNotFoundError) as absent:
        KernelLog("/nowhere/kmsg")
    assert absent.value.filename == "/nowhere/kmsg"


def test_the_log_of_this_machine() -> None:
    try:
        device = KernelLog("/dev/kmsg")
        device.read()
        writer = os.open("/dev/kmsg", os.O_WRONLY)
    except OSError as error:
        pytest.skip(f"the kernel log cannot be read and written here: {error}")
    text = f"nodeguard: a test of {os.getpid()} writes this"
    try:
        os.write(writer, f"<3>{text}\n".encode())
    finally:
        os.close(writer)
    result = [raw for raw in device.read().records if text in raw]
    if not result:
        pytest.skip("the kernel takes no more records from processes for now")
    # Whatever level a process asks for, its record is of another facility than the kernel's.
    assert [int(raw.partition(",")[0]) >> 3 != 0 for raw in result] == [True]
    assert list(parse_records(result)) == []
    assert not [raw for raw in device.read().records if text in raw]
    device.close()
