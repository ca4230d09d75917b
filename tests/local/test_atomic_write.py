from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeguard.local.atomic_write import atomic_write


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "state" / "file"
    assert atomic_write(str(path), (b"one", b"", b" two")) == 7
    assert atomic_write(str(path), [b"three"], 0o644) == 5
    assert path.read_bytes() == b"three"
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(path.parent) == ["file"]


def test_a_link_in_place_of_the_unfinished_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    (tmp_path / "file.new").symlink_to("other")
    atomic_write(str(tmp_path / "file"), (b"new",))
    assert (tmp_path / "other").read_text() == "other"
    assert (tmp_path / "file").read_text() == "new"


def test_a_failed_write_leaves_the_old_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic_write(str(path), (b"new",))
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["file"])


def test_only_the_last_directory_is_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        atomic_write(str(tmp_path / "a" / "b" / "file"), (b"",))


def test_the_error_names_the_path_that_is_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        atomic_write(str(path), (b"new",))
    assert (raised.value.filename, os.listdir(tmp_path)) == (str(path), ["file"])
