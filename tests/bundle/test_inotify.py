from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeguard.bundle.inotify import DirectoryChange, Inotify


@pytest.fixture
def inotify() -> Iterator[Inotify]:
    watching = Inotify()
    yield watching
    watching.close()


def is_readable(inotify: Inotify) -> bool:
    return bool(select.select([inotify], [], [], 0)[0])


def test_changes_in_a_directory_have_names(tmp_path: Path, inotify: Inotify) -> None:
    watch = inotify.watch(str(tmp_path))
    assert inotify.take() == []
    (tmp_path / "made").mkdir()
    (tmp_path / "written").write_text("x")
    (tmp_path / "written").rename(tmp_path / "named ü")
    (tmp_path / "named ü").chmod(0o600)
    (tmp_path / "named ü").unlink()
    assert is_readable(inotify)
    names = [change.name for change in inotify.take()]
    assert list(dict.fromkeys(names)) == ["made", "written", "named ü"]
    (tmp_path / "made").rmdir()
    assert inotify.take() == [DirectoryChange(watch, "made")]
    assert not is_readable(inotify)


def test_each_write_to_an_open_file_is_a_change(tmp_path: Path, inotify: Inotify) -> None:
    with (tmp_path / "log").open("w") as log:
        watch = inotify.watch(str(tmp_path))
        for _ in range(2):
            log.write("line\n")
            log.flush()
            assert inotify.take() == [DirectoryChange(watch, "log")]


def test_reading_is_no_change(tmp_path: Path, inotify: Inotify) -> None:
    (tmp_path / "file").write_text("x")
    inotify.watch(str(tmp_path))
    assert (tmp_path / "file").read_text() == "x"
    assert os.listdir(tmp_path) == ["file"]
    assert inotify.take() == []


def test_directory_is_watched_once_without_its_subdirectories(tmp_path: Path, inotify: Inotify) -> None:
    (tmp_path / "below").mkdir()
    assert inotify.watch(str(tmp_path)) == inotify.watch(str(tmp_path))
    (tmp_path / "below" / "file").write_text("x")
    assert inotify.take() == []


def test_path_that_is_not_a_directory_is_rejected(tmp_path: Path, inotify: Inotify) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        inotify.watch(str(tmp_path / "nowhere"))
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        inotify.watch(str(tmp_path / "link"))
