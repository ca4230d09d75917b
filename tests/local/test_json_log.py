from __future__ import annotations

import json
import os
import threading

from nodeguard.local.json_log import JsonLog


def read(descriptor: int) -> list[dict[str, object]]:
    """All lines until the end."""
    with os.fdopen(descriptor) as stream:
        return [json.loads(line) for line in stream]


def test_lines_are_written_in_order_and_whole_whoever_takes_long() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    log, heard = JsonLog(writer, "a"), list[dict[str, object]]()
    for number in range(200):
        log({"event": "x", "number": number, "text": "\udcff" * 3000})
    reading = threading.Thread(target=lambda: heard.extend(read(reader)))
    reading.start()
    log.close()
    os.close(writer)
    reading.join()
    assert [line["number"] for line in heard] == list(range(200))
    assert heard[0]["node"] == "a"


def test_what_nobody_reads_is_lost_and_counted_and_the_end_does_not_wait() -> None:
    reader, writer = os.pipe()
    log, heard = JsonLog(writer, "a", most=10), list[dict[str, object]]()
    for number in range(100):
        log({"event": "x", "number": number, "text": "y" * 50_000})
    reading = threading.Thread(target=lambda: heard.extend(read(reader)))
    reading.start()
    while len(heard) == 0 and log._lines:
        pass
    log({"event": "last"})
    log.close()
    os.close(writer)
    reading.join()
    assert heard[-1]["event"] == "last"
    # Room that comes and goes meanwhile lets lines through, each of which says what was lost before it.
    assert sum(int(str(one.get("lost", 0))) for one in heard) == 100 - (len(heard) - 1)


def test_without_a_thread_what_there_is_room_for_is_written_at_the_end() -> None:
    reader, writer = os.pipe()
    before = threading.stack_size(1 << 46)
    try:
        log = JsonLog(writer, "a")
        log({"event": "x"})
        log.close()
    finally:
        threading.stack_size(before)
    os.close(writer)
    assert [line["event"] for line in read(reader)] == ["x"]
