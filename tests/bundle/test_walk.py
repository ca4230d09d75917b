from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.bundle.file_tree import resolve
from nodeguard.bundle.layer import Directory, Link

ROOT: Directory = {
    "sys": {
        "class": {"net": {"eth0": Link("../../devices/nic/net/eth0")}},
        "devices": {"nic": {"net": {"eth0": {"state": "up", "device": Link("../..")}}, "id": "7"}},
        "loop": Link("loop"),
        "there": Link("back"),
        "back": Link("there"),
        "dangling": Link("nowhere/x"),
        "file": "f",
    },
    "run": Link("sys/class"),
}


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/sys/class/net/eth0/state", "/sys/devices/nic/net/eth0/state"),
        ("/sys/class/net/eth0/device/id", "/sys/devices/nic/id"),
        ("/run/net/eth0/device/../nic/id", "/sys/devices/nic/id"),
        ("//run/./net/", "/sys/class/net"),
        ("/../sys/file", "/sys/file"),
        ("/", "/"),
    ],
)
def test_a_path_is_followed_through_links_in_the_tree(path: str, real: str) -> None:
    place = resolve(ROOT, path)
    assert place.path == real
    assert place.entry is not None


def test_resolve_can_keep_the_last_link() -> None:
    place = resolve(ROOT, "/run/net/eth0", follow=False)
    assert (place.path, place.entry) == ("/sys/class/net/eth0", Link("../../devices/nic/net/eth0"))


@pytest.mark.parametrize(
    ("path", "code", "real"),
    [
        ("/sys/nothing/deeper", errno.ENOENT, "/sys/nothing/deeper"),
        ("/sys/dangling", errno.ENOENT, "/sys/nowhere/x"),
        ("/run/net/eth0/gone/a/../b", errno.ENOENT, "/sys/devices/nic/net/eth0/gone/b"),
        ("/sys/file/x", errno.ENOTDIR, "/sys/file/x"),
        ("/sys/file/..", errno.ENOTDIR, "/sys"),
        ("/sys/loop", errno.ELOOP, "/sys/loop"),
        ("/sys/there/x", errno.ELOOP, "/sys/there/x"),
    ],
)
def test_missing_path_has_the_errno_of_the_kernel(path: str, code: int, real: str) -> None:
    place = resolve(ROOT, path)
    assert (place.entry, place.code) == (None, code)
    assert place.path == real


def test_links_that_grow_end_like_a_loop() -> None:
    assert resolve({"a": Link("a/" * 1500 + "b")}, "/a").code == errno.ELOOP


names = st.sampled_from(["a", "b", "c", ".."])
targets = st.lists(names, min_size=1, max_size=4).map("/".join)
trees = st.recursive(
    st.sampled_from(["x", "y"]) | targets.map(Link),
    lambda below: st.dictionaries(st.sampled_from(["a", "b", "c"]), below, max_size=3),
    max_leaves=8,
)
directories = st.dictionaries(st.sampled_from(["a", "b", "c"]), trees, max_size=3)


def build(directory: str, tree: Directory) -> None:
    os.mkdir(directory)
    for name, entry in tree.items():
        path = f"{directory}/{name}"
        if isinstance(entry, dict):
            build(path, entry)
        elif isinstance(entry, Link):
            os.symlink(entry.text, path)
        else:
            Path(path).write_text(str(entry))


@settings(deadline=None)
@given(directories, st.lists(names, min_size=1, max_size=5))
def test_resolution_of_a_path_equals_that_of_the_kernel(
    tmp_path_factory: pytest.TempPathFactory, tree: Directory, path: list[str]
) -> None:
    # Below a root that is deep enough, no `..` climbs to anything of this machine.
    top = tmp_path_factory.mktemp("walk")
    build(f"{top}/r", tree)
    place = resolve({"r": tree}, "/r/" + "/".join(path))
    if not place.path.startswith("/r"):
        return
    asked = f"{top}/r/" + "/".join(path)
    here = os.path.realpath(asked)
    if place.entry is not None and here.startswith(f"{top}/r"):
        assert f"{top}{place.path}" == here
        assert isinstance(place.entry, dict) == os.path.isdir(asked)
    assert place.code == errno_of(asked)


def errno_of(path: str) -> int:
    try:
        os.stat(path)
    except OSError as error:
        return error.errno or 0
    return 0
