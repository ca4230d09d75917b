from __future__ import annotations

import errno
import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodeguard.bundle.anonymise import Anonymiser
from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.kernel_words import known_words
from nodeguard.bundle.layer import FILE_LIMIT
from nodeguard.bundle.layer_files import BundleDirectory
from nodeguard.bundle.nvml import NvmlEvent
from nodeguard.bundle.recording import Recording
from nodeguard.bundle.writer import BundleWriter
from nodeguard.model.instant import Instant
from tests.bundle.writing import MANIFEST, later, open_writer, outcome, result_or_error


def test_recording_without_readings_is_a_bundle(tmp_path: Path) -> None:
    with open_writer(tmp_path / "b"):
        pass
    recording = Recording.open(str(tmp_path / "b"))
    assert (recording.manifest, recording.end) == (MANIFEST, 0.0)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o700


def test_directory_that_is_not_empty_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("")
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="full: is not empty: name an empty or a new directory"):
        open_writer(tmp_path / "full")
    with pytest.raises(BundleError, match="file: is not a directory: name an empty or a new directory"):
        open_writer(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    open_writer(tmp_path / "empty").close()


def test_frame_contains_only_changes(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    for path in ("/sys/a", "/sys/b", "/sys/c/d"):
        writer.file(path, "1")
    writer.call("adjtimex", {"status": 64})
    writer.nvml([(0, "nvmlDeviceGetUUID", "a"), (0, "nvmlDeviceGetPerformanceState", 0)])
    writer.log(["6,1,1,-;one\n"])
    writer.frame(30, later(30.4))
    writer.file("/sys/a", "1")
    writer.file("/sys/b", "2")
    writer.names("/sys", ["a", "b"])
    writer.call("adjtimex", {"status": 64})
    writer.call("statvfs(/)", {"error": "stall"})
    writer.nvml([(0, "nvmlDeviceGetUUID", "a"), (0, "nvmlDeviceGetPerformanceState", 8)])
    writer.event(0, 8, 79)
    writer.log(["6,2,2,-;two\n"])
    writer.frame(60, later(60))
    writer.close()
    frame = tmp_path / "frames/000030"
    expected = ["b", "calls.json", "frame.yaml", "kmsg", "nvml.json", "sys"]
    assert sorted(path.name for path in frame.rglob("*")) == expected
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


def test_frame_records_clock_jump_suspend_and_boot(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    frames = [
        (30, later(30.9)),
        (60, Instant(MANIFEST.recorded_at + 3660, MANIFEST.uptime_s + 60, MANIFEST.boot_id)),
        (90, Instant(MANIFEST.recorded_at + 3690, MANIFEST.uptime_s + 60.5, MANIFEST.boot_id)),
        (120, Instant(MANIFEST.recorded_at + 3720, 12.0, "two")),
    ]
    for seconds, instant in frames:
        writer.frame(seconds, instant)
    writer.close()
    recording = Recording.open(str(tmp_path))
    assert recording.state_at(30).instant == later(30)
    assert [recording.state_at(seconds).instant for seconds, _ in frames[1:]] == [
        instant for _, instant in frames[1:]
    ]


def test_frames_must_be_in_order(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.frame(30, later(30))
    with pytest.raises(ValueError, match="frame 30 does not come after 30"):
        writer.frame(30, later(30))
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="is closed"):
        writer.frame(60, later(60))


def test_bundle_without_nvml_readings_has_no_nvml_json(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        writer.log([])
    assert not (tmp_path / "nvml.json").exists()
    assert (tmp_path / "kmsg").read_text() == ""


def test_nvml_readings_can_begin_in_a_later_frame(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        writer.frame(30, later(30))
        writer.nvml([(-1, "nvmlInit", {"error": "NVML_ERROR_DRIVER_NOT_LOADED"})])
        writer.frame(60, later(60))
        writer.nvml([(-1, "nvmlDeviceGetCount", 1), (0, "nvmlDeviceGetUUID", "a")])
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


def test_long_file_is_cut_with_a_note(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.file("/proc/long", "é" * FILE_LIMIT)
    writer.file("/proc/short", "x" * (FILE_LIMIT - 1))
    writer.close()
    assert writer.notes == ["/proc/long: recorded up to 1 MiB, what follows is left out"]
    assert (tmp_path / "proc/long").stat().st_size == FILE_LIMIT
    assert (tmp_path / "proc/short").stat().st_size == FILE_LIMIT - 1


def test_bundle_over_the_size_limit_ends_before_the_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeguard.bundle.layer_files.BUNDLE_LIMIT", 1 << 20)
    writer = open_writer(tmp_path)
    writer.file("/sys/a", "1")
    writer.frame(30, later(30))
    writer.file("/sys/a", "2" * FILE_LIMIT)
    problem = (
        "stops before second 30: over 1 MiB or 100000 files: record for a shorter time, or fewer sources"
    )
    with pytest.raises(BundleError, match=problem):
        writer.frame(60, later(60))
    writer.close()
    assert Recording.open(str(tmp_path)).end == 0.0


def test_private_files_and_reserved_names_are_not_recorded(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.file("/proc/1/cmdline", "secret")
    writer.file("/proc/cmdline", "secret")
    writer.file("/proc/1/comm", "init")
    writer.file("/kmsg", "x")
    writer.close()
    assert writer.notes == ["/kmsg: not recorded, the bundle format uses this name"]
    assert Recording.open(str(tmp_path)).state_at(0).tree.names("/proc") == ("1",)
    assert Recording.open(str(tmp_path)).state_at(0).tree.names("/proc/1") == ("comm",)


def test_mount_table_is_recorded_without_options(tmp_path: Path) -> None:
    with open_writer(tmp_path / "b") as writer:
        writer.file("/etc/fstab", "//files/x /x cifs username=alice,password=hunter2 0 0\n")
        writer.file("/proc/self/mounts", OSError(13, "EACCES"))
    assert Recording.open(str(tmp_path / "b")).state_at(0).read("/etc/fstab") == "//files/x /x cifs rw 0 0\n"


def test_log_records_are_masked_and_invalid_records_skipped(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.log(
        ["14,1,1,-;user\n", "6;broken\n", "3,3,3,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=9, name=a.out, Ch 1\n"]
    )
    writer.close()
    assert writer.notes == ["kernel log: a record without the form of /dev/kmsg is left out"]
    assert Recording.open(str(tmp_path)).log(0) == (
        "3,3,3,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=9, name=<masked>, Ch 1",
    )


def test_anonymised_recording_is_consistent(tmp_path: Path) -> None:
    anonymiser = Anonymiser(MANIFEST.hostname, vocabulary=known_words(["NVRM: GPU Board Serial Number: 1"]))
    with open_writer(tmp_path / "b", anonymiser=anonymiser) as writer:
        writer.file("/proc/sys/kernel/hostname", "gpu-17\n")
        writer.file("/sys/class/infiniband/mlx5_0/node_desc", "gpu-17 mlx5_0\n")
        writer.file("/proc/self/mounts", "10.0.0.5:/data /mnt/gpu-17 nfs4 rw,addr=10.0.0.5 0 0\n")
        writer.call("statvfs(/mnt/gpu-17)", {"f_frsize": 4096})
        writer.link("/run/here", "gpu-17/x")
        writer.file("/run/gpu-17/x", "serial is 1650522000123\n")
        writer.file("/mnt/gpu-17/broken", OSError(5, "EIO"))
        writer.nvml(
            [(0, "nvmlDeviceGetSerial", "1650522000123"), (0, "nvmlDeviceGetUUID", f"GPU-{MANIFEST.boot_id}")]
        )
        writer.log(["6,1,1,-;gpu-17 NVRM: GPU Board Serial Number: 1650522000123"])
        writer.frame(30, Instant(MANIFEST.recorded_at + 30, 3.0, "plain-boot"))
        writer.names("/run/gpu-17", [])
        writer.nvml([(0, "nvmlDeviceGetSerial", "1650522000999")])
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
    state = recording.state_at(0)
    serial = (state.nvml or {})["devices"][0]["nvmlDeviceGetSerial"]
    assert state.read("/proc/sys/kernel/hostname") == f"{name}\n"
    assert state.read("/sys/class/infiniband/mlx5_0/node_desc").startswith(f"{name} ")
    assert state.read("/run/here") == f"serial is {serial}\n"
    assert state.calls == {f"statvfs(/mnt/{name})": {"f_frsize": 4096}}
    [(broken, failure)] = state.tree.errors.items()
    assert (broken.rpartition("/")[0], failure) == (f"/mnt/{name}", "EIO")
    assert f" /mnt/{name} nfs4 " in state.read("/proc/self/mounts")
    assert (state.nvml or {})["devices"][0]["nvmlDeviceGetUUID"] == f"GPU-{boot_id}"
    assert recording.log(0) == (f"6,1,1,-;{name} NVRM: GPU Board Serial Number: {serial}",)
    assert recording.state_at(30).tree.names(f"/run/{name}") == ()


def test_recording_of_this_machine_reads_the_same(tmp_path: Path) -> None:
    files = [
        "/proc/sys/kernel/ostype",
        "/proc/sys/kernel/osrelease",
        "/sys/class/net/lo/mtu",
        "/sys/class/net/lo/nothing",
    ]
    listings = ["/sys/class/net", "/sys/class/net/lo/statistics", "/proc/nowhere"]
    with BundleWriter(str(tmp_path), MANIFEST, os.readlink) as writer:
        for path in files:
            writer.file(path, result_or_error(Path(path).read_text))
        for path in listings:
            writer.names(path, result_or_error(partial(os.listdir, path)))
    tree = Recording.open(str(tmp_path)).state_at(0).tree
    assert [outcome(partial(tree.read, path)) for path in files] == [
        outcome(Path(path).read_text) for path in files
    ]
    for path in listings:
        listed = outcome(partial(os.listdir, path))
        assert outcome(partial(tree.names, path)) == (
            tuple(sorted(listed)) if isinstance(listed, list) else listed
        )


def test_frame_that_cannot_be_written_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = BundleDirectory._write

    def full(store: BundleDirectory, frame: tuple[str, ...], *layer: Any) -> None:
        write(store, frame, *layer)
        if frame:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(BundleDirectory, "_write", full)
    writer = open_writer(tmp_path / "b")
    writer.file("/sys/a", "1")
    writer.frame(10, later(10))
    writer.file("/sys/a", "2")
    with pytest.raises(OSError, match="No space left"):
        writer.frame(20, later(20))
    recording = Recording.open(str(tmp_path / "b"))
    assert (recording.end, recording.state_at(60).tree.read("/sys/a")) == (0, "1")


def test_manifest_is_written_last(tmp_path: Path) -> None:
    layer = {"bundle.yaml": "x", "bundle.yaml/none": "no file can be here", "sys/a": "1"}
    write = BundleDirectory(str(tmp_path / "b"))._write
    with pytest.raises(FileExistsError):
        write((), layer, {path: text.encode() for path, text in layer.items()})
    assert (tmp_path / "b/sys/a").read_text() == "1"


def test_incomplete_source_is_marked_as_not_recorded(tmp_path: Path) -> None:
    with open_writer(tmp_path / "b") as writer:
        writer.omit("nvml")
        writer.frame(10, later(10))
        writer.omit("kmsg")
    assert Recording.open(str(tmp_path / "b")).manifest.sources == {"nvml": "not-recorded"}
