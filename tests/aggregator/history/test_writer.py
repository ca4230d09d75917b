from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from nodeguard.aggregator.history import queue as queue_module
from nodeguard.aggregator.history import writer as writer_module
from nodeguard.aggregator.history.reader import HistoryError, read_history
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.aggregator.history.writer import HistoryLimits, HistoryWriter
from nodeguard.fleet.state.history_events import HistoryNote, NoteKind
from nodeguard.wire.report import Inventory
from tests.aggregator.history.scene import START, received, rows, unhealthy
from tests.logs import LogLines
from tests.waiting import PATIENCE, until

Make = Callable[..., HistoryWriter]
Restore = Callable[[Path, Path], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def make(path: Path) -> Iterator[Make]:
    writers = []

    def make_writer(file: Path = path) -> HistoryWriter:
        writers.append(HistoryWriter(str(file), HistoryLimits(30.0, 64.0), lambda: START, 0.01, 0.0))
        return writers[-1]

    yield make_writer
    for writer in writers:
        writer.close(PATIENCE)


def sequences(path: Path) -> list[int]:
    return rows(path, "SELECT sequence FROM report ORDER BY id")


def test_transitions_are_written_in_order_and_the_last_at_the_close(
    make: Make, path: Path, log: LogLines
) -> None:
    writer = make()
    for number in range(700):
        writer.put(received(number / 10.0, number, number))
    writer.close(PATIENCE)
    assert sequences(path) == list(range(700))
    assert (writer.added, writer.lost, writer.error, log.text()) == (700, 0, "", [])
    assert writer.size > 0
    writer.put(received(0.0, 1, 900))
    assert writer.lost == 1


def test_transitions_wait_until_they_can_be_written(make: Make, tmp_path: Path, log: LogLines) -> None:
    path = tmp_path / "missing" / "directory" / "history.sqlite"
    writer = make(path)
    writer.put(received(0.0))
    until(lambda: writer.error)
    assert writer.error == (
        "No such file or directory: create its directory, or name another --history; "
        "until then the latest 16 MiB of transitions wait in memory"
    )
    assert writer.problem == f"{path}: {writer.error}"
    writer.put(unhealthy(1.0))
    path.parent.parent.mkdir()
    until(lambda: not writer.problem)
    writer.close(PATIENCE)
    assert sequences(path) == [1, 2]
    assert log.messages() == ["cannot write the history", "the history is written again"]


def test_a_full_disk_loses_no_transition_that_fits_into_memory(make: Make, path: Path) -> None:
    writer = make()
    writer.put(received(0.0))
    until(lambda: writer.size)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    beside = os.stat(f"{path}-wal").st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (beside + 4096, before[1]))
    try:
        for number in range(2, 200):
            writer.put(received(number, number, number))
        until(lambda: writer.error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    until(lambda: not writer.error)
    writer.close(PATIENCE)
    assert sequences(path) == list(range(1, 200))
    assert (writer.added, writer.lost) == (199, 0)


def test_the_latest_transitions_stay_in_memory(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: LogLines
) -> None:
    monkeypatch.setattr(queue_module, "MAX_BYTES", 10_000)
    path = tmp_path / "no" / "such" / "history.sqlite"
    writer = make(path)
    for number in range(50):
        writer.put(received(number, number, number))
    until(lambda: writer.error)
    path.parent.parent.mkdir()
    until(lambda: not writer.error)
    writer.close(PATIENCE)
    assert len(sequences(path)) + writer.lost == 50
    assert sequences(path)[-1] == 49
    assert log.text()[-1] == f"INFO the history is written again file={path} lost={writer.lost}"


def test_a_damaged_file_is_renamed_and_a_new_one_created(make: Make, path: Path, log: LogLines) -> None:
    path.write_bytes(b"this is no database, but another file\n" * 100)
    writer = make()
    writer.put(received(0.0))
    writer.close(PATIENCE)
    assert sequences(path) == [1]
    assert (path.parent / "history.sqlite.damaged").read_bytes().startswith(b"this is no database")
    assert not writer.is_renewed
    assert log.text() == [
        (
            f"WARNING renamed a damaged history and created a new one file={path} renamed_to={path}.damaged "
            "error=file is not a database"
        )
    ]


def test_the_first_and_the_latest_damaged_files_are_kept(make: Make, path: Path) -> None:
    for number in range(5):
        path.write_bytes(f"this is no database, but file {number}\n".encode() * 100)
        writer = make()
        writer.put(received(0.0))
        writer.close(PATIENCE)
    aside = {file.name: file.read_bytes().split()[6] for file in path.parent.glob("*.damaged*")}
    assert aside == {
        f"{path.name}.damaged": b"0",
        f"{path.name}.damaged-2": b"1",
        f"{path.name}.damaged-3": b"4",
    }


def test_a_file_with_a_schema_that_cannot_be_decoded_is_renamed(
    make: Make, path: Path, log: LogLines
) -> None:
    HistoryStore(str(path)).close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE note", b"CREATE TA\xff\xff\xff note"))
    with pytest.raises(HistoryError, match=f"{path}: it is not a history of nodeguard, or damaged"):
        read_history(str(path))
    writer = make()
    writer.put(received(0.0))
    writer.close(PATIENCE)
    assert sequences(path) == [1]
    assert ("renamed a damaged history" in log.messages()[0], writer.error) == (True, "")


def test_a_file_without_the_time_of_its_latest_write_is_renamed(
    make: Make, path: Path, log: LogLines
) -> None:
    store = HistoryStore(str(path))
    store.add([received(0.0)], START)
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE clock SET alive = 'x'")
    writer = make()
    writer.put(received(0.0, 1, 2))
    writer.close(PATIENCE)
    assert sequences(path) == [2]
    assert ("renamed a damaged history" in log.messages()[0], writer.error) == (True, "")


def test_a_file_with_damaged_pages_is_renamed(make: Make, path: Path, log: LogLines) -> None:
    store = HistoryStore(str(path))
    store.add([received(number, number) for number in range(200)], START)
    store.close()
    data = bytearray(path.read_bytes())
    data[8192:20_000] = bytes(20_000 - 8192)
    path.write_bytes(data)
    writer = make()
    writer.put(received(0.0, 300))
    writer.close(PATIENCE)
    assert rows(path, "SELECT uid FROM report") == ["uid-300"]
    assert Path(f"{path}.damaged").stat().st_size == len(data)
    assert ("renamed a damaged history" in log.messages()[0], writer.error) == (True, "")


def test_a_new_file_is_created_after_another_program_removed_it(
    make: Make, path: Path, log: LogLines
) -> None:
    writer = make()
    writer.put(received(0.0, 1, 1))
    until(lambda: writer.added == 1)
    for file in path.parent.glob("history.sqlite*"):
        file.unlink()
    writer.put(received(1.0, 2, 2))
    until(lambda: writer.added == 2)
    assert (sequences(path), writer.is_renewed) == ([2], True)
    assert "the history was removed: a new one is created" in log.text()[-1]


def writer_has(writer: HistoryWriter, added: int) -> Callable[[], bool]:
    return lambda: writer.added == added


def _back_up(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def _compact(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as source:
        source.execute("VACUUM INTO ?", (str(copy),))


@pytest.mark.parametrize("restore", [os.replace, shutil.copyfile])
@pytest.mark.parametrize("back_up", [_back_up, _compact])
@pytest.mark.parametrize("number", [1, 3_000])
def test_a_restored_copy_is_continued(
    make: Make, path: Path, log: LogLines, restore: Restore, back_up: Restore, number: int
) -> None:
    """SQLite would write the journal of the old file into the copy: pages of both in one file."""
    copy, writer = path.parent / "copy", make()
    writer.put(received(0.0, 1, 1))
    until(lambda: writer.added == 1)
    back_up(path, copy)
    for sequence in range(2, 2 + number):
        writer.put(received(1.0, sequence, sequence))
    until(lambda: writer.added == 1 + number)
    restore(copy, path)
    writer.put(received(2.0, 9_000, 9_000))
    until(lambda: writer.added == 2 + number)
    assert (sequences(path), writer.is_renewed, writer.lost, writer.error) == ([1, 9_000], True, 0, "")
    assert log.text() == [f"WARNING the history was replaced: the new file is continued file={path}"]
    writer.close(PATIENCE)
    assert rows(path, "PRAGMA integrity_check") == ["ok"]
    assert sequences(path) == [1, 9_000]
    assert sorted(file.name for file in path.parent.glob("history.*")) == ["history.sqlite"]


def has_added(writer: HistoryWriter, count: int) -> bool:
    return writer.added == count


@pytest.mark.parametrize("restore", [os.replace, shutil.copyfile])
def test_the_copy_of_a_running_history_without_its_journal_is_continued(
    make: Make, path: Path, restore: Restore
) -> None:
    store = HistoryStore(str(path))
    store.add([received(0.0, 1, 1)], START)
    store.close()
    copy, writer = path.parent / "copy", make()
    shutil.copyfile(path, copy)
    # One transaction each, so that SQLite certainly moves the journal into the file: after 1,000 pages.
    for number in range(1, 601):
        writer.put(received(1.0, number + 1, number + 1))
        until(partial(has_added, writer, number))
    restore(copy, path)
    writer.put(received(2.0, 9_000, 9_000))
    until(lambda: writer.added == 601)
    writer.close(PATIENCE)
    assert rows(path, "PRAGMA integrity_check") == ["ok"]
    assert sequences(path) == [1, 9_000]


def test_readers_and_a_new_time_of_the_file_replace_nothing(make: Make, path: Path, log: LogLines) -> None:
    writer = make()
    for number in range(1, 6):
        writer.put(received(number, number, number))
        until(writer_has(writer, number))
        _back_up(path, path.parent / f"copy-{number}")
        path.touch()
    assert (sequences(path), writer.is_renewed, log.text()) == ([1, 2, 3, 4, 5], False, [])


def test_a_history_that_another_program_wrote_to_is_read_again(make: Make, path: Path, log: LogLines) -> None:
    """SQLite restores a backup as a transaction, which the ids of shared texts in memory do not survive."""
    copy, writer = path.parent / "copy", make()
    writer.put(received(0.0, 1, 1))
    until(lambda: writer.added == 1)
    _back_up(path, copy)
    writer.put(received(1.0, 2, 2, inventory=Inventory("580.1", "6.12", "", {})))
    until(lambda: writer.added == 2)
    _back_up(copy, path)
    writer.put(received(2.0, 2, 3, inventory=Inventory("580.1", "6.12", "", {})))
    until(lambda: writer.added == 3)
    assert (sequences(path), writer.is_renewed, writer.error) == ([1, 3], True, "")
    assert log.text() == [f"WARNING the history was changed: it is read again file={path}"]
    assert "580.1" in rows(path, "SELECT text FROM report JOIN shared ON inventory = shared.id")[-1]


@pytest.mark.parametrize("content", [b"", b"another file\n" * 5000])
def test_a_file_that_another_program_wrote_over_is_renamed(
    make: Make, path: Path, log: LogLines, content: bytes
) -> None:
    """SQLite goes on to write to it, so that no write fails."""
    writer = make()
    writer.put(received(0.0, 1, 1))
    until(lambda: writer.size)
    path.write_bytes(content)
    writer.put(received(1.0, 2, 2))
    until(lambda: writer.added == 2)
    assert (sequences(path), writer.is_renewed, writer.error) == ([2], True, "")
    assert log.text()[-1].endswith(f"renamed_to={path}.damaged error=another program wrote over it")


def test_a_file_of_a_newer_version_is_not_changed_and_no_transition_waits(make: Make, path: Path) -> None:
    HistoryStore(str(path)).close()
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 9")
    newer.close()
    writer = make()
    writer.put(received(0.0))
    until(lambda: writer.error)
    assert writer.error == (
        "it was written by a newer version (9, this program supports 1): upgrade, or name another file; "
        "until then no history is written"
    )
    writer.put(unhealthy(1.0))
    until(lambda: writer.lost == 2)


def test_a_disk_that_hangs_is_logged_and_blocks_no_caller(
    make: Make, monkeypatch: pytest.MonkeyPatch, log: LogLines
) -> None:
    monkeypatch.setattr(writer_module, "_HANGS", 0.0)
    responds, open_store = threading.Event(), HistoryStore

    def slow(path: str) -> HistoryStore:
        responds.wait(PATIENCE)
        return open_store(path)

    monkeypatch.setattr(writer_module, "HistoryStore", slow)
    writer = make()
    writer.put(received(0.0))

    def has_error() -> bool:
        writer.check_progress()
        return bool(writer.error)

    until(has_error)
    assert "the disk does not respond" in writer.error
    responds.set()
    until(lambda: not writer.error)
    until(lambda: log.messages()[-1] == "the history is written again")


def test_an_internal_error_loses_only_the_transition_that_causes_it(
    make: Make, path: Path, log: LogLines
) -> None:
    writer = make()
    writer._gather = 60.0
    invalid = HistoryNote(START, NoteKind.PAUSE, "", "", cast("str", ()))
    for step in (received(0.0, 1, 1), invalid, received(0.0, 2, 2)):
        writer.put(step)
    writer.close(PATIENCE)
    assert (sequences(path), writer.lost, writer.error) == ([1, 2], 1, "")
    assert writer.take_lost()
    assert "error=internal error, please report it: AttributeError" in log.text()[0]
