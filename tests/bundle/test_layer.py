from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.layer import (
    MAX_FILES,
    MOST_DEPTH,
    File,
    Layer,
    Link,
    escapes_root,
    frame_directories,
    read_plain_file,
    scan_layer,
)
from tests.bundle.bundles import lay


def base(directory: Path, room: int = MAX_FILES) -> Layer:
    return scan_layer(str(directory), base=True, room=room)


def refusal(directory: Path, *, room: int = MAX_FILES) -> str:
    with pytest.raises(BundleError) as refused:
        base(directory, room)
    return str(refused.value).replace(str(directory), "B")


def test_a_layer_holds_files_links_and_empty_directories(tmp_path: Path) -> None:
    lay(tmp_path, {"sys/a": "1", "sys/l": Link("a"), "proc/empty": None, "bundle.yaml": "", "frames/1/x": ""})
    layer = base(tmp_path)
    assert layer.tree == {"sys": {"a": File(f"{tmp_path}/sys/a"), "l": Link("a")}, "proc": {"empty": {}}}
    assert layer.own == {"bundle.yaml"}


@pytest.mark.parametrize(
    ("text", "depth", "out"),
    [
        ("/etc", 3, True),
        ("../..", 2, False),
        ("../../..", 2, True),
        ("../../../etc/passwd", 2, True),
        ("a/../../..", 1, True),
        ("a/b/../..", 0, False),
        ("../sys/../../x", 1, True),
        ("./.././x", 1, False),
    ],
)
def test_link_above_the_root_leads_out_of_the_tree(text: str, depth: int, out: bool) -> None:
    assert escapes_root(text, depth) is out


def test_links_that_lead_out_are_refused(tmp_path: Path) -> None:
    lay(tmp_path, {"sys/class/x": Link("/etc/passwd")})
    remedy = "make it relative, to a path inside"
    assert refusal(tmp_path) == f"B/sys/class/x: is a link out of the bundle, to /etc/passwd: {remedy}"
    (tmp_path / "sys/class/x").unlink()
    lay(tmp_path, {"sys/class/y": Link("../../../secret")})
    assert refusal(tmp_path) == f"B/sys/class/y: is a link out of the bundle, to ../../../secret: {remedy}"


def test_a_directory_of_the_host_behind_a_link_is_never_entered(tmp_path: Path) -> None:
    lay(tmp_path, {"outside/secret": "s", "bundle/sys/l": Link("../../outside")})
    with pytest.raises(BundleError, match="is a link out of the bundle"):
        scan_layer(str(tmp_path / "bundle"), base=True, room=10)


def test_unsupported_file_type_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    os.mkfifo(tmp_path / "sys/pipe")
    assert refusal(tmp_path) == "B/sys/pipe: is neither file, directory nor link: remove it"
    (tmp_path / "sys/pipe").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sys/socket"))
        assert refusal(tmp_path) == "B/sys/socket: is neither file, directory nor link: remove it"


@pytest.mark.root
def test_a_device_node_is_refused(tmp_path: Path) -> None:
    os.mknod(tmp_path / "zero", 0o600 | 0o020000, os.makedev(1, 5))
    assert refusal(tmp_path) == "B/zero: is neither file, directory nor link: remove it"


def test_a_pipe_that_took_a_files_place_is_not_waited_for(tmp_path: Path) -> None:
    lay(tmp_path, {"sys/a": "1"})
    entry = base(tmp_path).tree["sys"]
    assert isinstance(entry, dict)
    (tmp_path / "sys/a").unlink()
    os.mkfifo(tmp_path / "sys/a")
    with pytest.raises(BundleError, match="is no longer a regular file"):
        read_plain_file(f"{tmp_path}/sys/a", 10)


def test_files_of_other_readers_are_separate(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    lay(tmp_path, {"nvml.json": "{}", "sys/kmsg": "x"})
    layer = scan_layer(
        str(tmp_path), base=True, room=9, exclude=frozenset({"kmsg"}), read_file=lambda path, _: path.encode()
    )
    assert layer.own == {"nvml.json"}
    assert layer.tree == {"sys": {"kmsg": File(f"{tmp_path}/sys/kmsg")}}
    assert layer.read("nvml.json") == f"{tmp_path}/nvml.json".encode()


def test_a_link_that_took_a_files_place_is_not_followed(tmp_path: Path) -> None:
    lay(tmp_path, {"secret": "s", "a": Link("secret")})
    with pytest.raises(BundleError, match="cannot be read"):
        read_plain_file(f"{tmp_path}/a", 10)


def test_read_size_of_a_large_file_is_limited(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert len(read_plain_file(f"{tmp_path}/huge", 1000)) == 1000


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("frame.yaml", "is not allowed in a base: remove it"),
        ("errors.yml", "is not a file of this format: name it errors.yaml, or remove it"),
        ("nvml.yaml", "is not a file of this format: name it nvml.json, or remove it"),
        ("kmsg.txt", "is not a file of this format: name it kmsg, or remove it"),
        ("calls.json/x", "is not a regular file: put the file itself there"),
    ],
)
def test_a_file_that_only_looks_like_the_formats_own_is_refused(
    tmp_path: Path, name: str, message: str
) -> None:
    lay(tmp_path, {name: ""})
    assert refusal(tmp_path) == f"B/{name.partition('/')[0]}: {message}"


@pytest.mark.parametrize("name", ["bundle.yaml", "frames/1/frame.yaml"])
def test_files_of_a_base_are_rejected_in_a_frame(tmp_path: Path, name: str) -> None:
    lay(tmp_path, {name: ""})
    with pytest.raises(BundleError, match="is not allowed in a frame"):
        scan_layer(str(tmp_path), base=False, room=10)


def test_the_formats_own_files_may_not_be_links(tmp_path: Path) -> None:
    lay(tmp_path, {"sys/kmsg": "", "kmsg": Link("sys/kmsg")})
    assert refusal(tmp_path) == "B/kmsg: is not a regular file: put the file itself there"


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    lay(tmp_path, {f"sys/{n}": "" for n in range(5)})
    assert base(tmp_path, room=6).count == 6
    assert refusal(tmp_path, room=5) == "B: more than 200000 files: record less, or in parts"


def test_too_deep_directories_are_refused(tmp_path: Path) -> None:
    lay(tmp_path, {"d/" * (MOST_DEPTH + 1) + "f": ""})
    assert refusal(tmp_path).endswith(": is deeper than 64 directories: record again")


def test_a_file_of_the_formats_own_has_a_limit(tmp_path: Path) -> None:
    lay(tmp_path, {"bundle.yaml": "#" * 65537})
    with pytest.raises(BundleError, match=r"bundle\.yaml: is longer than 64 KiB: shorten it"):
        base(tmp_path).read("bundle.yaml")


def test_frames_come_in_order_of_their_number(tmp_path: Path) -> None:
    lay(tmp_path, {"frames/000600/f": "", "frames/30/f": "", "frames/0100/f": ""})
    assert [seconds for seconds, _ in frame_directories(str(tmp_path))] == [30, 100, 600]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"frames/30s/f": ""}, "frames/30s: is not a number of seconds: name it like 000030, or remove it"),
        ({"frames/-1/f": ""}, "frames/-1: is not a number of seconds"),
        ({"frames/٣/f": ""}, "frames/٣: is not a number of seconds"),
        ({"frames/30": ""}, "frames/30: is not a directory: put the frame itself there"),
        ({"frames/30/f": "", "frames/31": Link("30")}, "frames/31: is not a directory"),
        (
            {"frames/000030/f": "", "frames/30/f": ""},
            "frames/30: is the same second as 000030: keep one of the two",
        ),
        (
            {"elsewhere/30/f": "", "frames": Link("elsewhere")},
            "frames: is a link: put the frames themselves there",
        ),
    ],
)
def test_other_frames_are_refused(tmp_path: Path, files: dict[str, object], message: str) -> None:
    lay(tmp_path, files)
    with pytest.raises(BundleError) as refused:
        frame_directories(str(tmp_path))
    assert str(refused.value).removeprefix(f"{tmp_path}/").startswith(message)


def test_a_missing_directory_is_refused_with_a_remedy(tmp_path: Path) -> None:
    remedy = "name the directory that holds bundle.yaml"
    assert refusal(tmp_path / "nowhere") == f"B: cannot be read (No such file or directory): {remedy}"


def test_message_is_one_line_for_any_file_name(tmp_path: Path) -> None:
    os.mkfifo(bytes(tmp_path) + b"/a\nb\xff")
    assert refusal(tmp_path).endswith("/a\\nb\\udcff: is neither file, directory nor link: remove it")
