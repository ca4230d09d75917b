"""A kernel log that grows during the read: real files and pipes."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeguard.bundle import growing_log as growing
from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.growing_log import GrowingLog
from tests.waiting import PATIENCE

ONE, TWO, THREE = "6,1,1000000,-;one", "6,2,2000000,-;two", "6,3,3000000,-;three"


@contextmanager
def growing_log(path: Path) -> Iterator[GrowingLog]:
    log = GrowingLog(str(path))
    log.watch()
    try:
        yield log
    finally:
        log.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[GrowingLog]:
    """The log of an empty file."""
    (tmp_path / "kmsg").touch()
    with growing_log(tmp_path / "kmsg") as log:
        yield log


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[GrowingLog]:
    os.mkfifo(tmp_path / "kmsg")
    with growing_log(tmp_path / "kmsg") as log:
        yield log


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def new(log: GrowingLog) -> list[str]:
    return list(log.read().appended.records)


def has_news(log: GrowingLog) -> bool:
    return bool(select.select([log], [], [], 0)[0])


def test_lines_come_once_and_as_soon_as_they_are_there(tmp_path: Path, log: GrowingLog) -> None:
    assert not has_news(log)
    append(tmp_path / "kmsg", f"{ONE}\n{TWO}\n")
    assert has_news(log)
    assert new(log) == [ONE, TWO]
    assert not has_news(log)
    append(tmp_path / "kmsg", f"{THREE}\n")
    assert has_news(log)
    assert [new(log), new(log)] == [[THREE], []]


def test_unfinished_line_is_returned_when_it_is_complete(tmp_path: Path, log: GrowingLog) -> None:
    append(tmp_path / "kmsg", f"{ONE}\n{TWO[:9]}")
    assert new(log) == [ONE]
    assert new(log) == []
    append(tmp_path / "kmsg", f"{TWO[9:]}\n SUBSYSTEM=pci\n")
    assert new(log) == [f"{TWO}\n SUBSYSTEM=pci"]


def test_existing_lines_are_separate_and_need_no_last_newline(tmp_path: Path) -> None:
    (tmp_path / "kmsg").write_text(f"{ONE}\n{TWO}")
    with growing_log(tmp_path / "kmsg") as log:
        append(tmp_path / "kmsg", f"\n{THREE}\n")
        grown = log.read()
        assert (grown.existing.records, grown.appended.records) == ((ONE, TWO), (THREE,))
        assert grown.appended.defect is None


def test_existing_long_log_is_read_completely(tmp_path: Path) -> None:
    records = [f"6,{number},1,-;{'x' * 200}" for number in range(2000)]
    (tmp_path / "kmsg").write_text("\n".join(records))
    with growing_log(tmp_path / "kmsg") as log:
        assert list(log.read().existing.records) == records


def test_invalid_line_is_skipped_and_reported(tmp_path: Path, log: GrowingLog) -> None:
    append(tmp_path / "kmsg", f"{ONE}\n\n")
    new(log)
    append(tmp_path / "kmsg", f"{TWO}\nNVRM: Xid\n3,x,1,-;y\n{THREE}\n")
    records = log.read().appended
    assert records.records == (TWO, THREE)
    where = tmp_path / "kmsg"
    assert str(records.defect).startswith(
        f"{where}: line 4: is not a record of /dev/kmsg: write it like 6,1024,"
    )


def test_endless_line_has_bounded_memory(tmp_path: Path, log: GrowingLog) -> None:
    append(tmp_path / "kmsg", "6,1,1,-;" + "x" * 300_000)
    records = log.read().appended
    assert len(records.records) == 1
    assert records.defect is not None
    append(tmp_path / "kmsg", f"\n{TWO}\n")
    assert new(log)[-1] == TWO


@pytest.mark.parametrize("more", ["", f"{THREE}\n"])
def test_a_file_replaced_by_a_longer_one_is_read_on(tmp_path: Path, log: GrowingLog, more: str) -> None:
    append(tmp_path / "kmsg", f"{ONE}\n")
    new(log)
    (tmp_path / "other").write_text(f"{ONE}\n{TWO}\n{more}")
    (tmp_path / "other").rename(tmp_path / "kmsg")
    assert has_news(log)
    assert new(log) == [TWO, *([THREE] if more else [])]
    append(tmp_path / "kmsg", f"{THREE}\n")
    assert has_news(log)
    assert new(log) == [THREE]


def test_rewritten_file_with_more_lines_is_read_on(tmp_path: Path, log: GrowingLog) -> None:
    append(tmp_path / "kmsg", f"{ONE}\n")
    new(log)
    with (tmp_path / "kmsg").open("w") as file:
        assert new(log) == []
        file.write(f"{ONE}\n{TWO}\n")
    assert new(log) == [TWO]


def test_a_file_that_was_cut_is_read_from_its_beginning(tmp_path: Path, log: GrowingLog) -> None:
    append(tmp_path / "kmsg", f"{TWO}\n{THREE}\n")
    new(log)
    os.truncate(tmp_path / "kmsg", 0)
    assert new(log) == []
    append(tmp_path / "kmsg", f"{ONE}\n")
    assert new(log) == [ONE]
    (tmp_path / "kmsg").write_text(f"{THREE}\n{TWO}\n{ONE}\n")
    assert new(log) == [THREE, TWO, ONE]


def test_a_file_that_was_rotated_is_read_to_its_end_and_then_the_next(
    tmp_path: Path, log: GrowingLog
) -> None:
    append(tmp_path / "kmsg", f"{ONE}\n")
    new(log)
    append(tmp_path / "kmsg", f"{TWO}\n")
    (tmp_path / "kmsg").rename(tmp_path / "old")
    assert new(log) == [TWO]
    (tmp_path / "kmsg").write_text(f"{THREE}\n")
    assert has_news(log)
    assert new(log) == [THREE]
    (tmp_path / "kmsg").unlink()
    assert new(log) == []


def test_a_file_may_come_later(tmp_path: Path) -> None:
    with growing_log(tmp_path / "kmsg") as log:
        assert new(log) == []
        (tmp_path / "kmsg").write_text(f"{ONE}\n")
        assert has_news(log)
        assert new(log) == [ONE]


def test_size_of_one_reading_is_limited_and_the_rest_is_read_next(
    tmp_path: Path, log: GrowingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "_MAX_BYTES", 64 << 10)
    records = [f"6,{number},1,-;{'x' * 200}" for number in range(1000)]
    append(tmp_path / "kmsg", "\n".join(records) + "\n")
    first = log.read()
    assert first.more
    assert has_news(log)
    received = list(first.appended.records)
    while has_news(log):
        received += new(log)
    assert received == records
    append(tmp_path / "kmsg", f"{ONE}\n")
    assert log.read(within=-1.0) == growing.LogUpdate(more=True)


def test_a_pipe_s_writers_come_and_go(tmp_path: Path, pipe: GrowingLog) -> None:
    assert not has_news(pipe)
    for record in (ONE, TWO):
        append(tmp_path / "kmsg", f"{record}\n")
        assert has_news(pipe)
        assert new(pipe) == [record]
        assert not has_news(pipe)


def test_a_pipe_that_is_full_makes_its_writer_wait(tmp_path: Path, pipe: GrowingLog) -> None:
    records = [f"6,{number},1,-;{'x' * 200}" for number in range(2000)]
    writer = threading.Thread(target=append, args=(tmp_path / "kmsg", "\n".join(records) + "\n"))
    writer.start()
    received: list[str] = []
    while len(received) < len(records):
        select.select([pipe], [], [], PATIENCE)
        received += new(pipe)
    writer.join(PATIENCE)
    assert received == records


def test_unread_data_in_a_pipe_is_not_a_change_but_is_kept(tmp_path: Path, pipe: GrowingLog) -> None:
    append(tmp_path / "kmsg", f"{ONE}\n")
    pipe.clear_ready()
    assert not has_news(pipe)
    assert new(pipe) == [ONE]


def test_a_pipe_may_take_a_file_s_place_and_back(tmp_path: Path, log: GrowingLog) -> None:
    append(tmp_path / "kmsg", f"{ONE}\n")
    new(log)
    (tmp_path / "kmsg").unlink()
    os.mkfifo(tmp_path / "kmsg")
    new(log)
    append(tmp_path / "kmsg", f"{TWO}\n")
    assert has_news(log)
    assert new(log) == [TWO]
    (tmp_path / "kmsg").unlink()
    (tmp_path / "kmsg").write_text(f"{ONE}\n{THREE}\n")
    assert new(log) == [ONE, THREE]


def test_other_file_types_are_rejected_at_the_start_and_reported_later(
    tmp_path: Path, log: GrowingLog
) -> None:
    append(tmp_path / "kmsg", f"{ONE}\n")
    (tmp_path / "kmsg").unlink()
    (tmp_path / "kmsg").symlink_to("/dev/kmsg")
    grown = log.read()
    assert grown.appended.records == (ONE,)
    assert str(grown.defect) == f"{tmp_path}/kmsg: is neither file nor pipe: put the file itself there"
    with pytest.raises(BundleError, match="neither file nor pipe"):
        GrowingLog(str(tmp_path / "kmsg"))
