from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.bundle.privacy import anonymous_mounts, is_mount_table, public_mounts
from nodeguard.sources.mounts import Mount, parse_mounts


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("/etc/fstab", True), ("/proc/self/mounts", True), ("/proc/91/mounts", True), ("/proc/91/stat", False)],
)
def test_which_files_are_mount_tables(path: str, *, is_one: bool) -> None:
    assert is_mount_table(path) is is_one


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("//files/x /x cifs username=alice,password=hunter2 0 0", "//files/x /x cifs rw 0 0"),
        ("mon1:/ /c ceph name=admin,secret=AQ==,ro 0 0", "mon1:/ /c ceph ro 0 0"),
        ("https://alice:hunter2@dav/ /d davfs rw 0 0", "https://alice:<masked>@dav/ /d davfs rw 0 0"),
        ("a@o2ib:b@o2ib:/s /s lustre rw", "a@o2ib:b@o2ib:/s /s lustre rw 0 0"),
        ("/dev/sda1 / ext4", "/dev/sda1 / ext4 rw 0 0"),
    ],
)
def test_of_the_options_only_the_mode_is_kept(line: str, kept: str) -> None:
    assert public_mounts(f"# password=x\n{line}\n") == f"{kept}\n"


def test_a_line_that_is_none_stays_none() -> None:
    assert public_mounts("xyz secret\n") == "?\n"
    assert anonymous_mounts("?\n", str.upper) == "?\n"


LINES = st.lists(st.lists(st.text("ab/#,=:ro\\\\ 01", min_size=1), max_size=5).map(" ".join)).map("\n".join)


def said(text: str) -> list[tuple[str, str, bool]]:
    return [(mount.path, mount.type, mount.read_only) for mount in parse_mounts(text)]


@given(LINES)
def test_what_a_source_reads_stays(text: str) -> None:
    assert said(public_mounts(text)) == said(text)
    assert said(anonymous_mounts(public_mounts(text), lambda word: word)) == said(text)
    assert all(isinstance(mount, Mount) for mount in parse_mounts(public_mounts(text)))
