from __future__ import annotations

import os
import select

from nodeguard.worker.device_events import DeviceEvent, DeviceEventQueue

_LINE = b'[0,8,79,"00000000:01:00.0",12.5]\n'


def _is_readable(events: DeviceEventQueue) -> bool:
    return bool(select.select([events.fileno()], [], [], 0)[0])


def test_events_are_queued_until_they_are_taken() -> None:
    events = DeviceEventQueue()
    try:
        assert (events.take(), _is_readable(events)) == ((), False)
        os.write(events.writable(), _LINE)
        os.write(events.writable(), b"[-1,8,13]\n")
        assert _is_readable(events)
        assert events.take() == (DeviceEvent(0, 8, 79, "00000000:01:00.0", 12.5), DeviceEvent(-1, 8, 13))
        assert (events.take(), _is_readable(events)) == ((), False)
    finally:
        events.close()


def test_an_event_storm_is_limited_and_never_blocks_the_writer() -> None:
    events = DeviceEventQueue()
    written = 0
    try:
        while True:
            try:
                os.write(events.writable(), _LINE)
            except BlockingIOError:
                break
            written += 1
        assert 1000 < written < 100_000
        assert len(events.take()) == written
    finally:
        events.close()


def test_invalid_lines_are_skipped() -> None:
    events = DeviceEventQueue()
    try:
        os.write(events.writable(), b"\0\xff\n[1]\n{}\n\n" + _LINE)
        assert [event.data for event in events.take()] == [79]
    finally:
        events.close()


def test_a_closed_queue_has_no_events() -> None:
    before = len(os.listdir("/proc/self/fd"))
    events = DeviceEventQueue()
    os.write(events.writable(), _LINE)
    events.close()
    events.close()
    assert events.take() == ()
    assert len(os.listdir("/proc/self/fd")) == before
