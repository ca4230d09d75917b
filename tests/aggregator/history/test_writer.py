from __future__ import annotations

import os
import resource
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeguard.aggregator.history import writer as writing
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.aggregator.history.writer import HistoryLimits, HistoryWriter
from nodeguard.fleet.state.history_events import HistoryNote, NoteKind
from tests.aggregator.history.scene import START, rows, said, sick
from tests.waiting import PATIENCE, until

Make = Callable[..., HistoryWriter]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def make(path: Path) -> Iterator[Make]:
    made = []

    def writer(at: Path = path, again: float = 0.01) -> HistoryWriter:
        made.append(HistoryWriter(str(at), HistoryLimits(30.0, 64.0), lambda: START, again, 0.0))
        return made[-1]

    yield writer
    for one in made:
        one.close()


def sequences(path: Path) -> list[int]:
    return rows(path, "SELECT sequence FROM report ORDER BY id")


def test_what_is_put_is_written_in_its_order_and_the_last_before_the_end(make: Make, path: Path) -> None:
    writer = make()
    for number in range(700):
        writer.put(said(number, number, number))
    writer.close()
    assert sequences(path) == list(range(700))
    assert (writer.added, writer.lost, writer.error, writer.take_messages()) == (700, 0, "", [])
    assert writer.size > 0
    writer.put(said(0.0, 1, 900))
    assert writer.lost == 1


def test_what_cannot_be_written_waits_until_it_can(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "there" / "later" / "history.sqlite"
    writer = make(path)
    writer.put(said(0.0))
    until(lambda: writer.error)
    assert writer.error == (
        f"{path}: No such file or directory: make room there, make it writable, or name another --history; "
        "until then the latest 4000 transitions wait in memory"
    )
    writer.put(sick(1.0))
    path.parent.parent.mkdir()
    until(lambda: not writer.error)
    writer.close()
    assert sequences(path) == [1, 2]
    assert [said.split(": ")[1][:10] for said in writer.take_messages()] == ["No such fi", "the histor"]


def test_a_full_disk_costs_no_transition_that_fits_into_memory(make: Make, path: Path) -> None:
    writer = make()
    writer.put(said(0.0))
    until(lambda: writer.size)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    beside = os.stat(f"{path}-wal").st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (beside + 4096, before[1]))
    try:
        for number in range(2, 200):
            writer.put(said(number, number, number))
        until(lambda: writer.error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert writer.error.startswith(f"{path}: ")
    until(lambda: not writer.error)
    writer.close()
    assert sequences(path) == list(range(1, 200))
    assert (writer.added, writer.lost) == (199, 0)


def test_memory_holds_the_latest(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(writing, "_MOST", 10)
    path = tmp_path / "no" / "such" / "history.sqlite"
    writer = make(path)
    for number in range(50):
        writer.put(said(number, number, number))
    until(lambda: writer.error)
    path.parent.parent.mkdir()
    until(lambda: not writer.error)
    writer.close()
    assert len(sequences(path)) + writer.lost == 50
    assert sequences(path)[-1] == 49
    assert f"{writer.lost} transitions were lost" in writer.take_messages()[-1]


def test_a_damaged_file_is_set_aside_and_begun_anew(make: Make, path: Path) -> None:
    path.write_bytes(b"this is no database, whatever it was before\n" * 100)
    writer = make()
    writer.put(said(0.0))
    writer.close()
    assert sequences(path) == [1]
    assert (path.parent / "history.sqlite.damaged").read_bytes().startswith(b"this is no database")
    assert writer.take_messages() == [
        f"{path} was damaged (file is not a database): renamed to {path}.damaged, and a new file was created"
    ]


def test_a_file_that_is_damaged_in_its_middle_is_set_aside_too(make: Make, path: Path) -> None:
    store = HistoryStore(str(path))
    store.add((said(number, number) for number in range(200)), START)
    store.close()
    data = bytearray(path.read_bytes())
    data[8192:20_000] = bytes(20_000 - 8192)
    path.write_bytes(data)
    writer = make()
    writer.put(said(0.0, 300))
    writer.close()
    assert rows(path, "SELECT uid FROM report") == ["uid-300"]
    assert Path(f"{path}.damaged").stat().st_size == len(data)
    assert ("was damaged" in writer.take_messages()[0], writer.error) == (True, "")


def test_a_newer_file_is_left_alone_and_nothing_waits(make: Make, path: Path) -> None:
    HistoryStore(str(path)).close()
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 9")
    newer.close()
    writer = make()
    writer.put(said(0.0))
    until(lambda: writer.error)
    [told] = writer.take_messages()
    assert told == (
        f"{path}: it was written by a newer version (9, this program supports 1): upgrade, or name another "
        "file; until then no history is written"
    )
    writer.put(sick(1.0))
    until(lambda: writer.lost == 2)


def test_a_disk_that_hangs_is_told_of_and_nobody_waits_for_it(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_HANGS", 0.0)
    hangs, opened = threading.Event(), HistoryStore

    def slow(where: str) -> HistoryStore:
        hangs.wait(PATIENCE)
        return opened(where)

    monkeypatch.setattr(writing, "HistoryStore", slow)
    writer = make()
    writer.put(said(0.0))
    until(writer.take_messages)
    assert "its disk has not answered" in writer.error
    hangs.set()
    until(lambda: not writer.error)
    assert writer.take_messages()[-1] == f"{path}: the history is written again"


def test_an_error_of_its_own_ends_nothing(make: Make, path: Path) -> None:
    writer = make()
    writer.put(HistoryNote(START, NoteKind.PAUSE, "", "", object()))  # type: ignore[arg-type]
    until(lambda: writer.lost == 1)
    writer.put(said(0.0))
    until(lambda: sequences(path) == [1])
    assert "error in the history, please report it: AttributeError" in writer.take_messages()[0]
