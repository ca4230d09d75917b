from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.file_tree import resolve
from nodeguard.bundle.layer import FILE_LIMIT, Directory, Link
from nodeguard.bundle.layer_files import BundleDirectory
from nodeguard.bundle.manifest import Manifest
from nodeguard.bundle.nvml import NvmlEvent
from nodeguard.bundle.observed_tree import portable_link
from nodeguard.bundle.recorded_tree import FileCache, RecordedTree
from nodeguard.bundle.recording import RecordedState, Recording
from nodeguard.bundle.writer import BundleWriter
from nodeguard.model.failure import UnansweredError
from nodeguard.model.instant import Instant

MANIFEST = Manifest("gpu-17", "5c8f1d2e-0a1b-2c3d-4e5f-60718293a4b5", 1793534400.0, 864000.0, "dgx-h100")


def writer(directory: Path, machine: RecordedTree | None = None, **options: bool) -> BundleWriter:
    return BundleWriter(
        str(directory), MANIFEST, (machine or RecordedTree({}, {}, FileCache())).link, **options
    )


def later(seconds: float) -> Instant:
    return Instant(MANIFEST.recorded_at + seconds, MANIFEST.uptime_s + seconds, MANIFEST.boot_id)


def outcome(reading: Callable[[], Any]) -> Any:
    """What came of a reading, comparable."""
    try:
        return reading()
    except OSError as error:
        return error.errno
    except UnansweredError as error:
        return type(error)


def said(reading: Callable[[], Any]) -> Any:
    """What came of a reading, as a recording machine tells it."""
    try:
        return reading()
    except (OSError, UnansweredError) as error:
        return error


def test_an_empty_recording_is_a_bundle(tmp_path: Path) -> None:
    with writer(tmp_path / "b"):
        pass
    recording = Recording.open(str(tmp_path / "b"))
    assert (recording.manifest, recording.end) == (MANIFEST, 0.0)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o700


def test_a_directory_that_is_not_free_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("")
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="full: is not empty: name an empty or a new directory"):
        writer(tmp_path / "full")
    with pytest.raises(BundleError, match="file: is not a directory: name an empty or a new directory"):
        writer(tmp_path / "file")
    (tmp_path / "free").mkdir()
    writer(tmp_path / "free").close()


def test_a_frame_holds_only_what_changed(tmp_path: Path) -> None:
    told = writer(tmp_path)
    for path in ("/sys/a", "/sys/b", "/sys/c/d"):
        told.file(path, "1")
    told.call("adjtimex", {"status": 64})
    told.nvml([(0, "nvmlDeviceGetUUID", "a"), (0, "nvmlDeviceGetPerformanceState", 0)])
    told.log(["6,1,1,-;one\n"])
    told.frame(30, later(30.4))
    told.file("/sys/a", "1")
    told.file("/sys/b", "2")
    told.names("/sys", ["a", "b"])
    told.call("adjtimex", {"status": 64})
    told.call("statvfs(/)", {"error": "stall"})
    told.nvml([(0, "nvmlDeviceGetUUID", "a"), (0, "nvmlDeviceGetPerformanceState", 8)])
    told.event(0, 8, 79)
    told.log(["6,2,2,-;two\n"])
    told.frame(60, later(60))
    told.close()
    frame = tmp_path / "frames/000030"
    assert sorted(path.name for path in frame.rglob("*")) == [
        "b",
        "calls.json",
        "frame.yaml",
        "kmsg",
        "nvml.json",
        "sys",
    ]
    assert (frame / "frame.yaml").read_text() == 'removed:\n  - "sys/c"\n'
    assert "adjtimex" not in (frame / "calls.json").read_text()
    assert "UUID" not in (frame / "nvml.json").read_text()
    assert [path.name for path in (tmp_path / "frames/000060").iterdir()] == ["frame.yaml"]
    recording = Recording.open(str(tmp_path))
    assert recording.end == 60.0
    assert recording.state_at(30).tree.names("/sys") == ("a", "b")
    assert recording.state_at(60).calls == {"adjtimex": {"status": 64}, "statvfs(/)": {"error": "stall"}}
    assert recording.state_at(60).nvml == {
        "system": {},
        "devices": [{"nvmlDeviceGetUUID": "a", "nvmlDeviceGetPerformanceState": 8}],
    }
    assert recording.nvml_events(60) == (NvmlEvent(0, 8, 79),)
    assert recording.log(60) == ("6,1,1,-;one", "6,2,2,-;two")


def test_a_clock_that_jumped_a_suspend_and_a_boot_are_said(tmp_path: Path) -> None:
    told = writer(tmp_path)
    moments = [
        (30, later(30.9)),
        (60, Instant(MANIFEST.recorded_at + 3660, MANIFEST.uptime_s + 60, MANIFEST.boot_id)),
        (90, Instant(MANIFEST.recorded_at + 3690, MANIFEST.uptime_s + 60.5, MANIFEST.boot_id)),
        (120, Instant(MANIFEST.recorded_at + 3720, 12.0, "two")),
    ]
    for seconds, instant in moments:
        told.frame(seconds, instant)
    told.close()
    recording = Recording.open(str(tmp_path))
    assert recording.state_at(30).instant == later(30)
    assert [recording.state_at(seconds).instant for seconds, _ in moments[1:]] == [
        instant for _, instant in moments[1:]
    ]


def test_frames_follow_one_another(tmp_path: Path) -> None:
    told = writer(tmp_path)
    told.frame(30, later(30))
    with pytest.raises(ValueError, match="frame 30 does not come after 30"):
        told.frame(30, later(30))
    told.close()
    told.close()
    with pytest.raises(ValueError, match="is closed"):
        told.frame(60, later(60))


def test_a_library_that_is_not_there_leaves_no_nvml_json(tmp_path: Path) -> None:
    with writer(tmp_path) as told:
        told.log([])
    assert not (tmp_path / "nvml.json").exists()
    assert (tmp_path / "kmsg").read_text() == ""


def test_nvml_that_comes_later_and_changes_nothing_else(tmp_path: Path) -> None:
    with writer(tmp_path) as told:
        told.frame(30, later(30))
        told.nvml([(-1, "nvmlInit", {"error": "NVML_ERROR_DRIVER_NOT_LOADED"})])
        told.frame(60, later(60))
        told.nvml([(-1, "nvmlDeviceGetCount", 1), (0, "nvmlDeviceGetUUID", "a")])
    recording = Recording.open(str(tmp_path))
    assert recording.state_at(0).nvml is None
    assert recording.state_at(30).nvml == {
        "system": {},
        "devices": [],
        "error": "NVML_ERROR_DRIVER_NOT_LOADED",
    }
    assert recording.state_at(60).nvml == {
        "system": {"nvmlDeviceGetCount": 1},
        "devices": [{"nvmlDeviceGetUUID": "a"}],
    }


def test_a_long_file_is_cut_and_a_note_says_so(tmp_path: Path) -> None:
    told = writer(tmp_path)
    told.file("/proc/long", "é" * FILE_LIMIT)
    told.file("/proc/short", "x" * (FILE_LIMIT - 1))
    told.close()
    assert told.notes == ["/proc/long: recorded up to 1 MiB, what follows is left out"]
    assert (tmp_path / "proc/long").stat().st_size == FILE_LIMIT
    assert (tmp_path / "proc/short").stat().st_size == FILE_LIMIT - 1


def test_a_bundle_that_grows_too_large_stops_and_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeguard.bundle.layer_files.BUNDLE_LIMIT", 1 << 20)
    told = writer(tmp_path)
    told.file("/sys/a", "1")
    told.frame(30, later(30))
    told.file("/sys/a", "2" * FILE_LIMIT)
    problem = (
        "stops before second 30: over 1 MiB or 100000 files: record for a shorter time, or fewer sources"
    )
    with pytest.raises(BundleError, match=problem):
        told.frame(60, later(60))
    told.close()
    assert Recording.open(str(tmp_path)).end == 0.0


def test_private_files_and_the_formats_own_names_are_left_out(tmp_path: Path) -> None:
    told = writer(tmp_path)
    told.file("/proc/1/cmdline", "secret")
    told.file("/proc/cmdline", "secret")
    told.file("/proc/1/comm", "init")
    told.file("/kmsg", "x")
    told.close()
    assert told.notes == ["/kmsg: not recorded, the bundle format uses this name"]
    assert Recording.open(str(tmp_path)).state_at(0).tree.names("/proc") == ("1",)
    assert Recording.open(str(tmp_path)).state_at(0).tree.names("/proc/1") == ("comm",)


def test_a_mount_table_is_recorded_without_its_options(tmp_path: Path) -> None:
    with writer(tmp_path / "b") as told:
        told.file("/etc/fstab", "//files/x /x cifs username=alice,password=hunter2 0 0\n")
        told.file("/proc/self/mounts", OSError(13, "EACCES"))
    assert Recording.open(str(tmp_path / "b")).state_at(0).read("/etc/fstab") == "//files/x /x cifs rw 0 0\n"


def test_records_are_masked_and_broken_ones_left_out(tmp_path: Path) -> None:
    told = writer(tmp_path)
    told.log(
        ["14,1,1,-;user\n", "6;broken\n", "3,3,3,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=9, name=a.out, Ch 1\n"]
    )
    told.close()
    assert told.notes == ["kernel log: a record without the form of /dev/kmsg is left out"]
    assert Recording.open(str(tmp_path)).log(0) == (
        "3,3,3,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=9, name=<masked>, Ch 1",
    )


def test_anonymised_recordings_agree_with_themselves(tmp_path: Path) -> None:
    with writer(tmp_path / "b", anonymise=True) as told:
        told.file("/proc/sys/kernel/hostname", "gpu-17\n")
        told.file("/sys/class/infiniband/mlx5_0/node_desc", "gpu-17 mlx5_0\n")
        told.file("/proc/self/mounts", "10.0.0.5:/data /mnt/gpu-17 nfs4 rw,addr=10.0.0.5 0 0\n")
        told.call("statvfs(/mnt/gpu-17)", {"f_frsize": 4096})
        told.link("/run/here", "gpu-17/x")
        told.file("/run/gpu-17/x", "serial is 1650522000123\n")
        told.file("/mnt/gpu-17/broken", OSError(5, "EIO"))
        told.nvml(
            [(0, "nvmlDeviceGetSerial", "1650522000123"), (0, "nvmlDeviceGetUUID", f"GPU-{MANIFEST.boot_id}")]
        )
        told.log(["6,1,1,-;gpu-17 NVRM: GPU Board Serial Number: 1650522000123"])
        told.frame(30, Instant(MANIFEST.recorded_at + 30, 3.0, "plain-boot"))
        told.names("/run/gpu-17", [])
        told.nvml([(0, "nvmlDeviceGetSerial", "1650522000999")])
    written = "".join(
        [
            str(path) + (path.read_text() if path.is_file() else "")
            for path in sorted((tmp_path / "b").rglob("*"))
        ]
    ) + os.readlink(tmp_path / "b/run/here")
    for original in ("gpu-17", "10.0.0.5", "1650522000123", "1650522000999", MANIFEST.boot_id, "plain-boot"):
        assert original not in written
    recording = Recording.open(str(tmp_path / "b"))
    name, boot_id = recording.manifest.hostname, recording.manifest.boot_id
    moment = recording.state_at(0)
    serial = (moment.nvml or {})["devices"][0]["nvmlDeviceGetSerial"]
    assert moment.read("/proc/sys/kernel/hostname") == f"{name}\n"
    assert moment.read("/sys/class/infiniband/mlx5_0/node_desc").startswith(f"{name} ")
    assert moment.read("/run/here") == f"serial is {serial}\n"
    assert moment.calls == {f"statvfs(/mnt/{name})": {"f_frsize": 4096}}
    [(broken, word)] = moment.tree.errors.items()
    assert (broken.rpartition("/")[0], word) == (f"/mnt/{name}", "EIO")
    assert f" /mnt/{name} nfs4 " in moment.read("/proc/self/mounts")
    assert (moment.nvml or {})["devices"][0]["nvmlDeviceGetUUID"] == f"GPU-{boot_id}"
    assert recording.log(0) == (f"6,1,1,-;{name} NVRM: GPU Board Serial Number: {serial}",)
    assert recording.state_at(30).tree.names(f"/run/{name}") == ()


def test_this_machine_is_read_again(tmp_path: Path) -> None:
    files = [
        "/proc/sys/kernel/ostype",
        "/proc/sys/kernel/osrelease",
        "/sys/class/net/lo/mtu",
        "/sys/class/net/lo/nothing",
    ]
    listings = ["/sys/class/net", "/sys/class/net/lo/statistics", "/proc/nowhere"]
    with BundleWriter(str(tmp_path), MANIFEST, os.readlink) as told:
        for path in files:
            told.file(path, said(Path(path).read_text))
        for path in listings:
            told.names(path, said(partial(os.listdir, path)))
    tree = Recording.open(str(tmp_path)).state_at(0).tree
    assert [outcome(partial(tree.read, path)) for path in files] == [
        outcome(Path(path).read_text) for path in files
    ]
    for path in listings:
        listed = outcome(partial(os.listdir, path))
        assert outcome(partial(tree.names, path)) == (
            tuple(sorted(listed)) if isinstance(listed, list) else listed
        )


names = st.sampled_from(["a", "b", "c"])
texts = st.sampled_from(["", "1", "é\n2"])
targets = st.sampled_from(["a", "b/c", "../a", "../../b", "nowhere", "../../../../a", "."])
trees = st.recursive(
    texts | targets.map(Link), lambda below: st.dictionaries(names, below, max_size=3), max_leaves=10
)


def machine_of(root: Directory, errors: dict[str, str]) -> RecordedTree:
    """A machine; only what is there can fail to be read."""
    there = {
        path: word
        for path, word in errors.items()
        if resolve(root, path).path == path and resolve(root, path).entry
    }
    return RecordedTree(root, there, FileCache())


words = st.sampled_from(["EIO", "stall", "hang"])
failures = st.dictionaries(st.sampled_from(["/a", "/a/a", "/a/b", "/b/c", "/c"]), words, max_size=2)
machines = st.builds(machine_of, st.dictionaries(names, trees, max_size=3), failures)
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
readings = st.lists(st.tuples(st.sampled_from(["read", "names", "link"]), paths), min_size=1, max_size=12)


def tell(told: BundleWriter, machine: RecordedTree, asked: list[tuple[str, str]]) -> None:
    for kind, path in asked:
        heard = said(partial(getattr(machine, kind), path))
        {"read": told.file, "names": told.names, "link": told.link}[kind](path, heard)


def expected(machine: RecordedTree, kind: str, path: str) -> Any:
    found = outcome(partial(getattr(machine, kind), path))
    if kind == "link" and isinstance(found, str):
        return portable_link(resolve(machine.root, path, follow=False).names[:-1], found)
    return found


def differing(
    moment: RecordedState, machine: RecordedTree, asked: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """What a recording answers otherwise than the machine did."""
    return [
        (kind, path)
        for kind, path in asked
        if outcome(partial(getattr(moment.tree, kind), path)) != expected(machine, kind, path)
    ]


@settings(deadline=None)
@example(
    [RecordedTree({"c": {"c": Link("b/c"), "a": "", "b": Link(".")}}, {}, FileCache())], [("read", "/c/b/c")]
)
@given(st.lists(machines, min_size=1, max_size=3), readings)
@example(
    [RecordedTree({"a": {}}, {}, FileCache()), RecordedTree({"a": ""}, {}, FileCache())],
    [("link", "/a"), ("read", "/a/a"), ("names", "/a")],
)
def test_what_was_read_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, lives: list[RecordedTree], asked: list[tuple[str, str]]
) -> None:
    directory = tmp_path_factory.mktemp("written")
    now = lives[0]

    def readlink(path: str) -> str:
        return now.link(path)

    with BundleWriter(str(directory), MANIFEST, readlink) as told:
        for turn, machine in enumerate(lives):
            now = machine
            if turn:
                told.frame(turn, later(turn))
            tell(told, machine, asked)
    recording = Recording.open(str(directory))
    for turn, machine in enumerate(lives):
        assert differing(recording.state_at(turn), machine, asked) == []


answers = st.dictionaries(
    st.sampled_from(["adjtimex", "statvfs(/)"]), st.dictionaries(names, st.integers()), max_size=2
)
records = st.lists(st.sampled_from(["6,1,1,-;one", "3,2,2,-;two\n DEVICE=+pci:0000:3b:00.0"]), max_size=2)


@settings(deadline=None)
@given(st.lists(st.tuples(answers, records), min_size=1, max_size=3))
def test_calls_and_records_are_read_again(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[dict[str, dict[str, int]], list[str]]]
) -> None:
    directory = tmp_path_factory.mktemp("written")
    with writer(directory) as told:
        for turn, (calls, new) in enumerate(turns):
            if turn:
                told.frame(turn, later(turn))
            for call, answer in calls.items():
                told.call(call, answer)
            told.log(new)
    recording = Recording.open(str(directory))
    known: dict[str, dict[str, int]] = {}
    for turn, (calls, new) in enumerate(turns):
        known |= calls
        assert recording.state_at(turn).calls == known
        assert recording.log(turn, since=turn - 1) == tuple(new)


def test_a_frame_that_the_disk_refuses_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = BundleDirectory._write

    def full(store: BundleDirectory, frame: tuple[str, ...], *layer: Any) -> None:
        write(store, frame, *layer)
        if frame:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(BundleDirectory, "_write", full)
    told = writer(tmp_path / "b")
    told.file("/sys/a", "1")
    told.frame(10, later(10))
    told.file("/sys/a", "2")
    with pytest.raises(OSError, match="No space left"):
        told.frame(20, later(20))
    recording = Recording.open(str(tmp_path / "b"))
    assert (recording.end, recording.state_at(60).tree.read("/sys/a")) == (0, "1")


def test_the_manifest_is_written_last(tmp_path: Path) -> None:
    layer = {"bundle.yaml": "x", "bundle.yaml/none": "no file can be here", "sys/a": "1"}
    write = BundleDirectory(str(tmp_path / "b"))._write
    with pytest.raises(FileExistsError):
        write((), layer, {path: text.encode() for path, text in layer.items()})
    assert (tmp_path / "b/sys/a").read_text() == "1"


def test_a_source_that_was_not_read_to_its_end_is_not_recorded(tmp_path: Path) -> None:
    with writer(tmp_path / "b") as told:
        told.omit("nvml")
        told.frame(10, later(10))
        told.omit("kmsg")
    assert Recording.open(str(tmp_path / "b")).manifest.sources == {"nvml": "not-recorded"}
