from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.agent.spool import Spool, Store
from nodeguard.agent.spool_disk import DiskStore


class FaultyStore:
    """A disk in memory that fails while it is told to."""

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}
        self.fails = False

    def _check(self) -> None:
        if self.fails:
            raise OSError(28, "No space left on device", "/state/spool")

    def list(self) -> dict[int, int]:
        self._check()
        return {number: len(data) for number, data in self.kept.items()}

    def write(self, number: int, data: bytes) -> None:
        self._check()
        self.kept[number] = data

    def read(self, number: int) -> bytes:
        self._check()
        return self.kept[number]

    def remove(self, number: int) -> None:
        self._check()
        self.kept.pop(number, None)

    def set_aside(self, number: int) -> str:
        self._check()
        del self.kept[number]
        return f"{number}.aside"


def drained(spool: Spool) -> list[bytes]:
    found = []
    while (first := spool.first()) is not None:
        found.append(first[1])
        spool.done(first[0])
    return found


def store(path: Path) -> Store:
    return DiskStore(str(path / "spool"))


def test_what_was_put_comes_out_in_order_after_a_restart_too(tmp_path: Path) -> None:
    spool = Spool(store(tmp_path))
    for data in (b"1", b"2", b"3"):
        spool.put(data)
    again = Spool(store(tmp_path))
    again.put(b"4")
    assert drained(again) == [b"1", b"2", b"3", b"4"]
    assert len(Spool(store(tmp_path))) == 0
    assert (again.dropped, again.take_notes()) == (0, [])


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    Spool(store(tmp_path)).put(b"x")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "spool").iterdir()}
    assert list(modes.values()) == [0o600]
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700


def test_the_oldest_give_way_and_are_counted(tmp_path: Path) -> None:
    spool = Spool(store(tmp_path), most_bytes=100, most_entries=3)
    for number in range(5):
        spool.put(b"%d" % number)
    assert (len(spool), spool.dropped) == (3, 2)
    spool.put(b"x" * 99)
    assert (len(spool), spool.dropped, spool.size) == (2, 4, 100)
    spool.put(b"y" * 101)
    assert (len(spool), spool.dropped) == (0, 7)
    assert list((tmp_path / "spool").iterdir()) == []


@pytest.mark.parametrize("garbled", [b"", b"x", b"0" * 32 + b"\n1", b"\xff" * 5000, b"x" * 3_000_000])
def test_a_corrupt_entry_is_set_aside_and_told_of(tmp_path: Path, garbled: bytes) -> None:
    spool = Spool(store(tmp_path), most_bytes=10_000_000)
    spool.put(b"1")
    spool.put(b"2")
    (tmp_path / "spool" / "000000000001").write_bytes(garbled)
    again = Spool(store(tmp_path), most_bytes=10_000_000)
    assert drained(again) == [b"2"]
    assert again.dropped == 1
    [note] = again.take_notes()
    assert "000000000001.aside" in note
    assert "check the disk" in note
    assert again.take_notes() == []
    assert len(Spool(store(tmp_path))) == 0


def test_what_was_set_aside_is_bounded(tmp_path: Path) -> None:
    for _ in range(9):
        Spool(store(tmp_path)).put(b"1")
    for path in (tmp_path / "spool").iterdir():
        path.write_bytes(b"garbled")
    assert drained(Spool(store(tmp_path))) == []
    assert len(list((tmp_path / "spool").iterdir())) == 4


def test_a_write_that_was_cut_short_leaves_nothing(tmp_path: Path) -> None:
    Spool(store(tmp_path)).put(b"1")
    (tmp_path / "spool" / "000000000002.new").write_bytes(b"half")
    (tmp_path / "spool" / "notes.txt").write_bytes(b"a person's")
    assert drained(Spool(store(tmp_path))) == [b"1"]
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["notes.txt"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    Spool(store(tmp_path)).put(b"1")
    (tmp_path / "target").write_bytes(b"keep me")
    os.symlink(tmp_path / "target", tmp_path / "spool" / "000000000002.new2")
    os.symlink(tmp_path / "target", tmp_path / "spool" / "000000000005")
    assert drained(Spool(store(tmp_path))) == [b"1"]
    assert (tmp_path / "target").read_bytes() == b"keep me"


def test_where_there_can_be_no_directory_memory_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "spool").write_bytes(b"a file in the way")
    spool = Spool(store(tmp_path))
    spool.put(b"1")
    assert "kept in memory" in spool.problem
    assert len(spool.take_notes()) == 1
    (tmp_path / "spool").unlink()
    spool.put(b"2")
    assert spool.problem == ""
    assert drained(Spool(store(tmp_path))) == [b"1", b"2"]


def test_a_full_disk_is_told_of_once_and_what_it_held_before_comes_first() -> None:
    disk = FaultyStore()
    Spool(disk).put(b"0")
    disk.fails = True
    spool = Spool(disk)
    spool.put(b"1")
    spool.put(b"2")
    assert spool.take_notes() == [
        "/state/spool: No space left on device: transitions are kept in memory until the disk takes them"
    ]
    first = spool.first()
    assert first is not None
    assert first[1] == b"1"
    disk.fails = False
    spool.settle()
    assert drained(spool) == [b"0", b"1", b"2"]
    assert disk.kept == {}


def test_what_was_heard_while_the_disk_failed_is_removed_later() -> None:
    disk = FaultyStore()
    spool = Spool(disk)
    spool.put(b"1")
    first = spool.first()
    assert first is not None
    disk.fails = True
    spool.done(first[0])
    assert len(spool) == 0
    disk.fails = False
    spool.settle()
    assert disk.kept == {}


def test_a_refused_entry_lets_the_next_pass() -> None:
    spool = Spool(FaultyStore())
    spool.put(b"1")
    spool.put(b"2")
    spool.refuse(1, "for a reason")
    assert drained(spool) == [b"2"]
    assert spool.take_notes() == ["a transition was refused, for a reason; it is kept in 1.aside"]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["put", "done", "fail", "heal", "restart"]), max_size=40))
def test_nothing_is_lost_while_the_disk_comes_and_goes(steps: list[str]) -> None:
    """What was put is either out, in order, or still there; a restart on a good disk loses nothing."""
    disk = FaultyStore()
    spool = Spool(disk)
    put: list[bytes] = []
    out: list[bytes] = []
    for step in steps:
        if step == "put":
            put.append(b"%d" % len(put))
            spool.put(put[-1])
        elif step == "done" and not disk.fails and (first := spool.first()) is not None:
            out.append(first[1])
            spool.done(first[0])
        elif step in {"fail", "heal"}:
            disk.fails = step == "fail"
            spool.settle()
        elif step == "restart" and not disk.fails:
            spool.settle()
            spool = Spool(disk)
    disk.fails = False
    spool.settle()
    assert out + drained(spool) == put
    assert spool.dropped == 0
