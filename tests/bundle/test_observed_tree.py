from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from nodeguard.bundle.failures import failure_from_name
from nodeguard.bundle.layer import Link
from nodeguard.bundle.observed_tree import ObservedTree, portable_link
from nodeguard.model.failure import StalledError


def links(**texts: str) -> Callable[[str], str]:
    by_path = {"/" + path.replace("__", "/"): text for path, text in texts.items()}

    def readlink(path: str) -> str:
        if path not in by_path:
            raise OSError(errno.EINVAL, "no link", path)
        return by_path[path]

    return readlink


def survey(**texts: str) -> ObservedTree:
    return ObservedTree({}, {}, links(**texts))


@pytest.mark.parametrize(
    ("directory", "text", "told"),
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
def test_a_link_is_told_relative_and_inside(directory: str, text: str, told: str) -> None:
    assert portable_link(tuple(directory.split("/")[1:]) if directory != "/" else (), text) == told


def test_a_file_stands_where_its_path_leads_and_the_links_on_its_way_are_known() -> None:
    known = survey(
        sys__class__net__eth0="../../devices/nic/net/eth0", sys__devices__nic__net__eth0__device="../.."
    )
    known.file("/sys/class/net/eth0/mtu", "9000")
    known.file("/sys/class/net/eth0/device/vendor", "0x15b3")
    assert known.tree == {
        "sys": {
            "class": {"net": {"eth0": Link("../../devices/nic/net/eth0")}},
            "devices": {
                "nic": {"net": {"eth0": {"mtu": "9000", "device": Link("../..")}}, "vendor": "0x15b3"}
            },
        }
    }


def test_an_absolute_link_leads_to_the_same_file() -> None:
    known = survey(var__run="/run", etc__localtime="/usr/share/zoneinfo/UTC")
    known.file("/var/run/x", "1")
    known.link("/etc/localtime", "/usr/share/zoneinfo/UTC")
    assert known.tree == {
        "var": {"run": Link("../run")},
        "run": {"x": "1"},
        "etc": {"localtime": Link("../usr/share/zoneinfo/UTC")},
    }


def test_a_listing_tells_all_names() -> None:
    known = survey()
    known.file("/d/a", "1")
    known.names("/d", ["a", "b"])
    known.names("/empty", [])
    assert known.tree == {"d": {"a": "1", "b": ""}, "empty": {}}
    known.file("/d/b/c", "2")
    assert known.tree["d"] == {"a": "1", "b": {"c": "2"}}
    known.names("/d", ["c"])
    assert known.tree["d"] == {"c": ""}


def test_a_failure_is_kept_until_something_is_read() -> None:
    known = survey()
    known.file("/d/a", failure_from_name("EIO", "/d/a"))
    known.names("/hung", StalledError("/hung"))
    assert known.errors == {"/d/a": "EIO", "/hung": "stall"}
    known.file("/d/a", "1")
    known.names("/hung", [])
    assert known.errors == {}


def test_a_failure_behind_a_link_is_kept_where_it_is() -> None:
    known = survey(d="e")
    known.file("/d/a", failure_from_name("EINVAL", "/d/a"))
    assert known.errors == {"/e/a": "EINVAL"}


def test_what_is_gone_takes_with_it_all_below() -> None:
    known = survey()
    known.file("/d/a/b", "1")
    known.file("/d/a/c", failure_from_name("EIO", "/d/a/c"))
    known.file("/d/aa", failure_from_name("EIO", "/d/aa"))
    known.names("/d/a", failure_from_name("ENOENT", "/d/a"))
    assert (known.tree, known.errors) == ({"d": {}}, {"/d/aa": "EIO"})


def test_failures_that_tell_what_is_there_are_no_entries() -> None:
    known = survey()
    known.names("/d", ["a", "b"])
    known.file("/d/a", failure_from_name("EISDIR", ""))
    known.names("/d/b", failure_from_name("ENOTDIR", ""))
    known.link("/d/b", failure_from_name("EINVAL", ""))
    known.file("/d/b/x", failure_from_name("ENOTDIR", ""))
    known.file("/d/c", failure_from_name("ENOENT", ""))
    assert known.errors == {}
    assert known.tree == {"d": {"a": {}, "b": ""}}


def test_a_failure_that_the_tree_does_not_tell_is_an_entry() -> None:
    known = survey()
    known.names("/d", ["a"])
    known.file("/d/a/x", failure_from_name("ENOENT", ""))
    known.file("/f/x", failure_from_name("ENOTDIR", ""))
    assert known.errors == {"/d/a/x": "ENOENT", "/f/x": "ENOTDIR"}
    known.file("/d/a/y", "1")
    known.file("/f", "2")
    assert known.errors == {}


def test_what_was_known_before_stays_as_it_was() -> None:
    before = {"d": {"a": "1"}}
    known = ObservedTree(before, {"/x": "EIO"}, links())  # type: ignore[arg-type]
    known.file("/d/a", "2")
    assert (before, known.tree) == ({"d": {"a": "1"}}, {"d": {"a": "2"}})
    assert known.errors == {"/x": "EIO"}


def test_a_link_loop_ends() -> None:
    known = survey(a="b", b="a")
    known.file("/a/x", failure_from_name("ELOOP", "/a/x"))
    assert known.tree == {"a": Link("b"), "b": Link("a")}
    assert known.errors == {}
