from __future__ import annotations

import errno
from pathlib import Path

import pytest

from nodeguard.bundle.layer import FILE_LIMIT, Directory, File, Link
from nodeguard.bundle.recorded_tree import RecordedTree, TreeCache
from nodeguard.model.failure import HungError, StalledError

ROOT: Directory = {
    "sys": {
        "class": {"infiniband": {"mlx5_0": Link("../../devices/mlx5_0")}, "empty": {}},
        "devices": {"mlx5_0": {"state": "4: ACTIVE\n", "port": {"counter": "0"}, "old": Link("state")}},
        "loop": Link("loop"),
    }
}


def tree() -> RecordedTree:
    return RecordedTree(ROOT, {}, TreeCache())


def failing(path: str, failure: str) -> RecordedTree:
    return RecordedTree(ROOT, {path: failure}, TreeCache())


def test_files_directories_and_links_are_read() -> None:
    assert tree().read("/sys/class/infiniband/mlx5_0/state") == "4: ACTIVE\n"
    assert tree().names("/sys/class/infiniband/mlx5_0") == ("old", "port", "state")
    assert tree().names("/sys/class/empty") == ()
    assert tree().link("/sys/class/infiniband/mlx5_0") == "../../devices/mlx5_0"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/sys/class/infiniband/mlx5_1/state", errno.ENOENT),
        ("/sys/class/infiniband/mlx5_0/state/x", errno.ENOTDIR),
        ("/sys/class", errno.EISDIR),
        ("/sys/loop", errno.ELOOP),
    ],
)
def test_a_read_fails_as_on_the_machine(path: str, code: int) -> None:
    with pytest.raises(OSError) as failed:  # noqa: PT011 - the errno below is asserted
        tree().read(path)
    assert (failed.value.errno, failed.value.filename) == (code, path)


def test_a_listing_and_a_link_fail_as_on_the_machine() -> None:
    with pytest.raises(NotADirectoryError):
        tree().names("/sys/devices/mlx5_0/state")
    with pytest.raises(FileNotFoundError):
        tree().names("/sys/block")
    with pytest.raises(OSError, match="Invalid argument") as failed:
        tree().link("/sys/devices/mlx5_0/state")
    assert failed.value.errno == errno.EINVAL


def test_failure_is_found_by_the_requested_and_the_resolved_path() -> None:
    asked = "/sys/class/infiniband/mlx5_0/port/counter"
    real = "/sys/devices/mlx5_0/port/counter"
    for path in (asked, real):
        with pytest.raises(OSError, match="Invalid argument") as failed:
            failing(path, "EINVAL").read(asked)
        assert failed.value.errno == errno.EINVAL
    assert failing(asked, "EINVAL").read(real) == "0"
    assert failing(asked, "EINVAL").read("/sys/devices/mlx5_0/state") == "4: ACTIVE\n"


def test_a_failure_of_the_link_itself_is_one_of_the_path_that_ends_there() -> None:
    broken = failing("/sys/devices/mlx5_0/old", "EIO")
    with pytest.raises(OSError, match="Input/output error"):
        broken.read("/sys/class/infiniband/mlx5_0/old")
    with pytest.raises(OSError, match="Input/output error"):
        broken.link("/sys/devices/mlx5_0/old")
    assert broken.read("/sys/devices/mlx5_0/state") == "4: ACTIVE\n"


def test_a_failure_needs_no_file() -> None:
    with pytest.raises(PermissionError):
        failing("/sys/devices/mlx5_0/hidden/x", "EACCES").read("/sys/class/infiniband/mlx5_0/hidden/x")
    with pytest.raises(PermissionError):
        failing("/sys/class", "EACCES").names("/sys/class/")


def test_failed_paths_are_in_the_listing() -> None:
    assert failing("/sys/class/empty/mlx5_1", "EIO").names("/sys/class/empty") == ("mlx5_1",)
    expected = ("gid", "old", "port", "state")
    assert failing("/sys/devices/mlx5_0/gid", "EIO").names("/sys/class/infiniband/mlx5_0") == expected
    assert failing("/sys/class/empty/mlx5_1", "ENOENT").names("/sys/class/empty") == ()


def test_no_answer_is_a_stall_or_a_hang() -> None:
    with pytest.raises(StalledError) as stalled:
        failing("/proc/self/mounts", "stall").read("/proc/self/mounts")
    assert stalled.value.detail == "/proc/self/mounts"
    with pytest.raises(HungError):
        failing("/sys/class/empty", "hang").names("/sys/class/empty")


def test_path_is_recorded_if_it_or_a_path_below_has_data() -> None:
    assert tree().is_recorded(["/sys/class/infiniband"])
    assert tree().is_recorded(["/nowhere", "/sys/class/empty"])
    assert tree().is_recorded(["/sys/class/infiniband/mlx5_0/state"])
    assert not tree().is_recorded(["/sys/class/infiniband/mlx5"])
    assert not tree().is_recorded([])
    assert failing("/proc/self/mounts", "EIO").is_recorded(["/proc/self"])
    assert failing("/sys/devices/mlx5_0/new/x", "EIO").is_recorded(["/sys/class/infiniband/mlx5_0/new"])
    assert not failing("/proc/selfish", "EIO").is_recorded(["/proc/self"])


def test_files_are_read_up_to_a_limit_and_once(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"a" * FILE_LIMIT + b"b")
    (tmp_path / "odd").write_bytes(b"a\xffb")
    on_disk = RecordedTree({name: File(f"{tmp_path}/{name}") for name in ("long", "odd")}, {}, TreeCache())
    assert on_disk.read("/long") == "a" * FILE_LIMIT
    assert on_disk.read("/odd") == "a�b"
    (tmp_path / "odd").unlink()
    assert on_disk.read("/odd") == "a�b"


def test_a_frame_without_files_shares_the_tree() -> None:
    first = tree()
    assert first.with_frame((), {}, {}) is first
    assert first.with_frame((), {}, {"/a": "EIO"}).root is first.root
