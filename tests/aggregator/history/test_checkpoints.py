"""A history while another program makes checkpoints of it, reads it, and copies backups over it."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeguard.aggregator.history import file as file_module
from nodeguard.aggregator.history.reader import read_history
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.fleet.state.history_events import HistoryNote, NoteKind
from tests.aggregator.history.other_program import OtherProgram
from tests.aggregator.history.scene import START, received, rows

SEQUENCES = "SELECT sequence FROM report ORDER BY id"

MODES = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def other(path: Path) -> Iterator[OtherProgram]:
    with OtherProgram(path) as program:
        yield program


def add(store: HistoryStore, number: int) -> None:
    store.add([received(number, number, number)], START + number)


@pytest.mark.parametrize("has_reader", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_checkpoint_of_another_program_replaces_nothing(
    path: Path, other: OtherProgram, mode: str, has_reader: bool
) -> None:
    store = HistoryStore(str(path))
    for number in range(1, 20):
        if has_reader and number % 5 == 0:
            other.close()
            other.run("BEGIN", "reader")
            other.run("SELECT count(*) FROM report", "reader")
        add(store, number)
        [[_, in_journal, moved]] = other.run(f"PRAGMA wal_checkpoint({mode})")
        is_partial = has_reader and number >= 5
        assert (moved < in_journal) == is_partial, "the reader holds the checkpoint back"
        assert not store.is_replaced()
        assert not store.is_written_by_others()
    other.close()
    store.close()
    assert rows(path, "PRAGMA integrity_check") == ["ok"]
    assert rows(path, SEQUENCES) == list(range(1, 20))


def test_a_history_is_written_during_checkpoints_of_another_program(path: Path, other: OtherProgram) -> None:
    store, is_done = HistoryStore(str(path)), threading.Event()

    def move() -> None:
        for mode in itertools.cycle(MODES):
            if is_done.is_set():
                break
            other.run(f"PRAGMA wal_checkpoint({mode})")

    with ThreadPoolExecutor() as pool:
        moves = pool.submit(move)
        try:
            for number in range(1, 400):
                add(store, number)
                assert not store.is_replaced()
        finally:
            is_done.set()
        moves.result()
    store.close()
    assert rows(path, SEQUENCES) == list(range(1, 400))


def test_a_copy_from_before_a_partial_checkpoint_is_noticed(path: Path, other: OtherProgram) -> None:
    """The partial checkpoint moves neither the first page nor the clock, which later frames have."""
    store, copy = HistoryStore(str(path)), path.parent / "copy"
    for number in range(3):
        if number == 2:
            other.run("BEGIN", "reader")
            other.run("SELECT count(*) FROM report", "reader")
        large = HistoryNote(START, NoteKind.INCIDENT, f"incident-{number}", "", "x" * 100_000)
        store.add([large], START + number)
        if number == 0:
            other.run("PRAGMA wal_checkpoint")
            assert not store.is_replaced()
    copy_file(path, copy)
    other.run("PRAGMA wal_checkpoint")
    assert not store.is_replaced()
    assert has_other_bytes(copy, path)
    copy_file(copy, path)
    assert store.is_replaced()
    store.abandon()


STEPS = ("add", "add", "read", "end", *MODES, "trim", "copy", "back up", "compact", "restore")


@settings(max_examples=20, deadline=None)
@example(steps=[*["add"] * 12, "read", "add", "PASSIVE", "copy", "read", "PASSIVE", "restore", "add"])
@given(steps=st.lists(st.sampled_from(STEPS), min_size=20, max_size=40))
def test_only_a_restored_copy_replaces_a_history_and_nothing_is_lost(steps: list[str]) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as name,
        OtherProgram(Path(name) / "history.sqlite") as other,
    ):
        patch.setattr(file_module, "_BUSY", 0.0)
        path, copy = Path(name) / "history.sqlite", Path(name) / "copy"
        store, expected = HistoryStore(str(path)), list[int]()
        for number, step in enumerate(steps, 1):
            match step:
                case "add":
                    add(store, number)
                    expected.append(number)
                case "read" | "end":
                    other.close()
                    if step == "read":
                        other.run("BEGIN", "reader")
                        other.run("SELECT count(*) FROM report", "reader")
                case "trim":
                    store.trim(START + number, 30.0, 1 << 30)
                case "copy":
                    copy_whole(path, copy)
                case "back up" | "compact":
                    copy.unlink(missing_ok=True)
                    (back_up if step == "back up" else compact)(path, copy)
                case "restore" if copy.exists():
                    other.close()
                    store, expected = restore(copy, path, store, expected)
                case mode if mode in MODES:
                    other.run(f"PRAGMA wal_checkpoint({mode})")
            assert not store.is_replaced()
        other.close()
        store.close()
        assert rows(path, "PRAGMA integrity_check") == ["ok"]
        assert rows(path, SEQUENCES) == expected


def restore(
    copy: Path, path: Path, store: HistoryStore, expected: list[int]
) -> tuple[HistoryStore, list[int]]:
    """Copy a backup over a running history. Returns the store then, and its sequence numbers."""
    is_other = has_other_bytes(copy, path)
    copy_file(copy, path)
    assert store.is_replaced() == is_other
    if not is_other:
        return store, expected
    store.abandon()
    return HistoryStore(str(path)), rows(copy, SEQUENCES)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file in another process: here it would end the locks of SQLite."""
    subprocess.run(["cp", source, target], check=True)


def copy_whole(path: Path, copy: Path) -> None:
    """Copy a history, and drop a copy that is no whole database: after a partial checkpoint, pages of it are in the
    journal.
    """
    copy_file(path, copy)
    with suppress(sqlite3.DatabaseError):
        if rows(copy, "PRAGMA integrity_check") == ["ok"]:
            return
    copy.unlink()


def has_other_bytes(first: Path, second: Path) -> bool:
    return subprocess.run(["cmp", "--silent", first, second], check=False).returncode == 1


def back_up(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def compact(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as source:
        source.execute("VACUUM INTO ?", (str(copy),))


def test_a_reader_of_this_process_leaves_the_journal_to_the_writer(path: Path, other: OtherProgram) -> None:
    """A program that closes the last connection that it sees moves the journal and removes it."""
    store = HistoryStore(str(path))
    add(store, 1)
    read_history(str(path))
    other.run("SELECT count(*) FROM report")
    other.close()
    add(store, 2)
    assert other.run(SEQUENCES) == [[1], [2]]
    store.close()
