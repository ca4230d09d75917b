from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from nodeguard.bundle.failures import failure_from_name
from nodeguard.bundle.layer import Directory, Link
from nodeguard.bundle.observed_tree import ObservedTree, portable_link
from nodeguard.model.failure import StalledError


def readlink_of(**texts: str) -> Callable[[str], str]:
    """Return a machine's readlink with these links, by path with `__` for slashes."""
    by_path = {"/" + path.replace("__", "/"): text for path, text in texts.items()}

    def readlink(path: str) -> str:
        if path not in by_path:
            raise OSError(errno.EINVAL, "not a link", path)
        return by_path[path]

    return readlink


def observe(**links: str) -> ObservedTree:
    """Return an empty tree of a machine with these links."""
    return ObservedTree({}, {}, readlink_of(**links))


@pytest.mark.parametrize(
    ("directory", "text", "portable"),
    [
        ("/sys/class/net", "../../devices/nic/net/eth0", "../../devices/nic/net/eth0"),
        (
            "/etc/systemd/system/x.wants",
            "/usr/lib/systemd/system/k.service",
            "../../../../usr/lib/systemd/system/k.service",
        ),
        ("/var", "/run", "../run"),
        ("/etc", "../../../run/x", "../run/x"),
        ("/a", "b/../c", "c"),
        ("/", "/etc", "etc"),
        ("/etc", "/", ".."),
    ],
)
def test_portable_link_is_relative_and_inside_the_tree(directory: str, text: str, portable: str) -> None:
    assert portable_link(tuple(directory.split("/")[1:]) if directory != "/" else (), text) == portable


def test_file_is_stored_at_its_resolved_path_with_the_links_on_the_way() -> None:
    tree = observe(
        sys__class__net__eth0="../../devices/nic/net/eth0", sys__devices__nic__net__eth0__device="../.."
    )
    tree.file("/sys/class/net/eth0/mtu", "9000")
    tree.file("/sys/class/net/eth0/device/vendor", "0x15b3")
    assert tree.tree == {
        "sys": {
            "class": {"net": {"eth0": Link("../../devices/nic/net/eth0")}},
            "devices": {
                "nic": {"net": {"eth0": {"mtu": "9000", "device": Link("../..")}}, "vendor": "0x15b3"}
            },
        }
    }


def test_absolute_link_resolves_to_the_same_file() -> None:
    tree = observe(var__run="/run", etc__localtime="/usr/share/zoneinfo/UTC")
    tree.file("/var/run/x", "1")
    tree.link("/etc/localtime", "/usr/share/zoneinfo/UTC")
    assert tree.tree == {
        "var": {"run": Link("../run")},
        "run": {"x": "1"},
        "etc": {"localtime": Link("../usr/share/zoneinfo/UTC")},
    }


def test_listing_adds_and_removes_names() -> None:
    tree = observe()
    tree.file("/d/a", "1")
    tree.names("/d", ["a", "b"])
    tree.names("/empty", [])
    assert tree.tree == {"d": {"a": "1", "b": ""}, "empty": {}}
    tree.file("/d/b/c", "2")
    assert tree.tree["d"] == {"a": "1", "b": {"c": "2"}}
    tree.names("/d", ["c"])
    assert tree.tree["d"] == {"c": ""}


def test_listing_removes_failures_of_names_that_it_does_not_have() -> None:
    errors = {"/d/a": "ENOTDIR", "/d/b/c": "EIO", "/d/kept": "EIO", "/d/absent": "ENOENT", "/da": "EIO"}
    tree = ObservedTree({}, errors, readlink_of())
    tree.names("/d", ["kept"])
    assert tree.errors == {"/d/kept": "EIO", "/d/absent": "ENOENT", "/da": "EIO"}


def test_failure_stays_until_a_reading_succeeds() -> None:
    tree = observe()
    tree.file("/d/a", failure_from_name("EIO", "/d/a"))
    tree.names("/hung", StalledError("/hung"))
    assert tree.errors == {"/d/a": "EIO", "/hung": "stall"}
    tree.file("/d/a", "1")
    tree.names("/hung", [])
    assert tree.errors == {}


def test_failure_behind_a_link_is_stored_at_the_resolved_path() -> None:
    tree = observe(d="e")
    tree.file("/d/a", failure_from_name("EINVAL", "/d/a"))
    assert tree.errors == {"/e/a": "EINVAL"}


def test_failure_of_a_former_link_stays_when_a_path_leads_through_it() -> None:
    def readlink(path: str) -> str:
        raise StalledError(path)

    tree = ObservedTree({"c": Link("a")}, {}, readlink)
    tree.link("/c", StalledError("/c"))
    tree.names("/c/a", failure_from_name("ENOTDIR", "/c/a"))
    assert tree.tree == {}
    assert tree.errors == {"/c": "stall", "/c/a": "ENOTDIR"}


def test_removed_directory_removes_everything_below_it() -> None:
    tree = observe()
    tree.file("/d/a/b", "1")
    tree.file("/d/a/c", failure_from_name("EIO", "/d/a/c"))
    tree.file("/d/aa", failure_from_name("EIO", "/d/aa"))
    tree.names("/d/a", failure_from_name("ENOENT", "/d/a"))
    assert (tree.tree, tree.errors) == ({"d": {}}, {"/d/aa": "EIO"})


def test_failures_that_follow_from_the_tree_are_not_stored() -> None:
    tree = observe()
    tree.names("/d", ["a", "b"])
    tree.file("/d/a", failure_from_name("EISDIR", ""))
    tree.names("/d/b", failure_from_name("ENOTDIR", ""))
    tree.link("/d/b", failure_from_name("EINVAL", ""))
    tree.file("/d/b/x", failure_from_name("ENOTDIR", ""))
    tree.file("/d/c", failure_from_name("ENOENT", ""))
    assert tree.errors == {}
    assert tree.tree == {"d": {"a": {}, "b": ""}}


def test_failures_that_contradict_the_tree_are_stored() -> None:
    tree = observe()
    tree.names("/d", ["a"])
    tree.file("/d/a/x", failure_from_name("ENOENT", ""))
    tree.file("/f/x", failure_from_name("ENOTDIR", ""))
    assert tree.errors == {"/d/a/x": "ENOENT", "/f/x": "ENOTDIR"}
    tree.file("/d/a/y", "1")
    tree.file("/f", "2")
    assert tree.errors == {}


def test_earlier_tree_does_not_change() -> None:
    before: Directory = {"d": {"a": "1"}}
    tree = ObservedTree(before, {"/x": "EIO"}, readlink_of())
    tree.file("/d/a", "2")
    assert (before, tree.tree) == ({"d": {"a": "1"}}, {"d": {"a": "2"}})
    assert tree.errors == {"/x": "EIO"}


def test_link_loop_ends() -> None:
    tree = observe(a="b", b="a")
    tree.file("/a/x", failure_from_name("ELOOP", "/a/x"))
    assert tree.tree == {"a": Link("b"), "b": Link("a")}
    assert tree.errors == {}
