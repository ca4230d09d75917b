"""A bundle as a live machine: its clock, and changes of its directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fixtures.bundles import bundle_path
from nodeguard.agent.watched_node import LiveReplayMachine
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.sources.machine import LogCursor, LogRecords
from nodeguard.worker.device_events import DeviceEvent
from tests.bundle.bundles import bundle, lay
from tests.logs import LogLines

BOOT = "5c8f1d2e-0a1b-2c3d-4e5f-60718293a4b5"
ONE, TWO, THREE = "6,1,1000000,-;one", "6,2,2000000,-;two", "6,3,3000000,-;three"
STATE = "/sys/class/net/eth0/operstate"


class Scene:
    """A machine of a bundle of this test, and its clock."""

    def __init__(self, directory: str, logged: LogCursor | None = None) -> None:
        self.clock = 100.0
        self.bundle = WatchedBundle(directory)
        self.machine = LiveReplayMachine(self.bundle, 1.0, lambda: self.clock, logged=logged)

    def round(self, seconds: float = 10.0) -> LiveReplayMachine:
        """Return the machine at the start of a round some seconds later."""
        self.clock += seconds
        self.machine.now()
        return self.machine


@contextmanager
def live(directory: Path, files: dict[str, Any], logged: LogCursor | None = None) -> Iterator[Scene]:
    scene = Scene(bundle(directory, files), logged)
    with scene.bundle:
        yield scene


def test_a_recording_follows_the_clock_at_its_speed() -> None:
    clock = [100.0]
    with WatchedBundle(str(bundle_path("gpu-gone"))) as watched:
        machine = LiveReplayMachine(watched, 60.0, lambda: clock[0])
        began = machine.now()
        gpu = "/sys/bus/pci/devices/0000:61:00.0"
        assert gpu[-12:] in machine.names("/sys/bus/pci/devices")
        clock[0] += 2.5
        assert machine.now().mono - began.mono == 150.0
        assert gpu[-12:] not in machine.names("/sys/bus/pci/devices")


def test_a_change_is_read_in_the_next_round_and_not_before(tmp_path: Path) -> None:
    with live(tmp_path, {STATE[1:]: "up\n"}) as scene:
        machine = scene.round()
        assert machine.read(STATE) == "up\n"
        (tmp_path / STATE[1:]).write_text("down\n")
        assert machine.read(STATE) == "up\n"
        assert scene.round().read(STATE) == "down\n"


def test_files_and_directories_come_and_go(tmp_path: Path, log: LogLines) -> None:
    with live(tmp_path, {STATE[1:]: "up\n", "errors.yaml": "{}\n"}) as scene:
        lay(tmp_path, {"sys/class/net/eth1/queues/rx/limit": "1"})
        machine = scene.round()
        assert machine.names("/sys/class/net") == ("eth0", "eth1")
        (tmp_path / "sys/class/net/eth1/queues/rx/limit").write_text("2")
        assert scene.round().read("/sys/class/net/eth1/queues/rx/limit") == "2"
        (tmp_path / STATE[1:]).unlink()
        (tmp_path / STATE[1:]).parent.rmdir()
        (tmp_path / "errors.yaml").write_text("sys/class/net/eth1: EIO\n")
        assert scene.round().names("/sys/class/net") == ("eth1",)
        with pytest.raises(OSError, match="Input/output"):
            machine.names("/sys/class/net/eth1")
    assert log.lines == []


def test_a_file_removed_during_a_round_is_missing(tmp_path: Path) -> None:
    with live(tmp_path, {STATE[1:]: "up\n"}) as scene:
        (tmp_path / STATE[1:]).unlink()
        with pytest.raises(FileNotFoundError) as missed:
            scene.machine.read(STATE)
        assert missed.value.filename == STATE


def test_past_frames_stay_over_the_base(tmp_path: Path) -> None:
    files = {STATE[1:]: "up\n", "sys/other": "1", f"frames/000010/{STATE[1:]}": "down\n"}
    with live(tmp_path, files) as scene:
        lay(tmp_path, {STATE[1:]: "dormant\n", "sys/other": "2"})
        assert scene.round(5).read(STATE) == "dormant\n"
        assert scene.round(5).read(STATE) == "down\n"
        assert scene.machine.read("/sys/other") == "2"


def test_calls_and_nvml_are_replaced_by_renaming(tmp_path: Path) -> None:
    files = {
        "nvml.json": {"devices": [{"nvmlDeviceGetUUID": "a"}]},
        "calls.json": {"adjtimex": {"status": 1}},
    }
    with live(tmp_path, files) as scene:
        new = {"devices": [{"nvmlDeviceGetUUID": "b"}], "events": [{"device": 0, "type": 8, "data": 79}]}
        (tmp_path / ".new").write_text(json.dumps(new))
        (tmp_path / ".new").rename(tmp_path / "nvml.json")
        (tmp_path / ".new").write_text(json.dumps({"adjtimex": {"status": 2}}))
        (tmp_path / ".new").rename(tmp_path / "calls.json")
        scene.machine.nvml_events()
        machine = scene.round()
        assert machine.call("adjtimex") == {"status": 2}
        assert "b" in [entry.result for entry in machine.nvml().results]
        assert machine.nvml_events() == (DeviceEvent(0, 8, 79),)
        assert scene.round().nvml_events() == ()


def test_an_invalid_file_is_logged_once_and_its_last_content_stays(tmp_path: Path, log: LogLines) -> None:
    whole = json.dumps({"devices": [{"nvmlDeviceGetUUID": "a"}]})
    with live(tmp_path, {STATE[1:]: "up\n", "nvml.json": whole}) as scene:
        for half in (10, 10, 10):
            (tmp_path / "nvml.json").write_text(whole[:half])
            assert "a" in [entry.result for entry in scene.round().nvml().results]
        (tmp_path / STATE[1:]).write_text("down\n")
        assert scene.round().read(STATE) == "down\n"
        (tmp_path / "nvml.json").write_text(whole.replace("UUID", "UUI D"))
        assert "a" in [entry.result for entry in scene.round().nvml().results]
        (tmp_path / "nvml.json").write_text(whole.replace('"a"', '"b"'))
        assert "b" in [entry.result for entry in scene.round().nvml().results]
    file = str(tmp_path / "nvml.json")
    field = "devices[0].nvmlDeviceGetUUI D"
    remedy = "is not the name of a call: write pynvml's name, with only numbers in parentheses"
    assert (log.lines[0]["level"], log.lines[0]["file"], log.lines[0]["field"]) == ("warning", file, "")
    assert log.lines[0]["error"] == f"{file}: is cut short: copy it again"
    assert (log.lines[1]["field"], str(log.lines[1]["error"])[: len(remedy) + len(file + field) + 4]) == (
        field,
        f"{file}: {field}: {remedy}",
    )
    assert [(line["level"], line["file"]) for line in log.lines[2:]] == [("info", file)]


def test_an_invalid_tree_keeps_the_previous_recording(tmp_path: Path, log: LogLines) -> None:
    with live(tmp_path, {STATE[1:]: "up\n"}) as scene:
        assert scene.machine.read(STATE) == "up\n"
        os.symlink("/etc/passwd", tmp_path / "sys/link")
        (tmp_path / STATE[1:]).write_text("down\n")
        assert scene.round().read(STATE) == "up\n"
        (tmp_path / "sys/link").unlink()
        assert scene.round().read(STATE) == "down\n"
    assert [line["level"] for line in log.lines] == ["warning", "info"]
    assert "sys/link: is a link out of the bundle" in str(log.lines[0]["error"])


def test_without_changes_nothing_is_read_again(tmp_path: Path) -> None:
    with live(tmp_path, {STATE[1:]: "up\n", "kmsg": f"{ONE}\n"}) as scene:
        before = scene.bundle.recording
        with (tmp_path / "kmsg").open("a") as file:
            file.write(f"{TWO}\n")
        assert scene.round().log() == LogRecords((ONE, TWO), last=2)
        assert scene.round().state().read(STATE) == "up\n"
        assert scene.bundle.recording is before


def test_the_log_has_the_frames_and_new_lines_of_the_file(tmp_path: Path) -> None:
    with live(tmp_path, {"kmsg": ONE, "frames/000010/kmsg": f"{TWO}\n"}) as scene:
        assert scene.round(0).log() == LogRecords((ONE,), last=1)
        with (tmp_path / "kmsg").open("a") as file:
            file.write(f"{THREE}\n")
        assert scene.round(10).log() == LogRecords((THREE, TWO), last=3)
        assert scene.round(10).log() == LogRecords((), last=3)


def test_after_a_restart_the_log_continues_at_the_cursor(tmp_path: Path) -> None:
    with live(tmp_path, {"kmsg": f"{ONE}\n{TWO}\n"}, logged=LogCursor(BOOT, 1)) as scene:
        assert scene.round().log() == LogRecords((TWO,), last=2)
        with (tmp_path / "kmsg").open("a") as file:
            file.write(f"{ONE}\n")
        assert scene.round().log() == LogRecords((ONE,), last=2)


def test_a_failed_read_of_the_log_loses_no_lines(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    with live(tmp_path, {"errors.yaml": "dev/kmsg: EIO\n"}) as scene:
        with (tmp_path / "kmsg").open("w") as file:
            file.write(f"{ONE}\n")
        with pytest.raises(OSError, match="Input/output"):
            scene.round().log()
        (tmp_path / "errors.yaml").unlink()
        assert scene.round().log() == LogRecords((ONE,), last=1)


def test_invalid_lines_of_the_kernel_log_are_logged_once(tmp_path: Path, log: LogLines) -> None:
    with live(tmp_path, {"kmsg": f"{ONE}\n"}) as scene:
        for line in ("Xid 79", "Xid 79", TWO, "Xid 79"):
            with (tmp_path / "kmsg").open("a") as file:
                file.write(f"{line}\n")
            scene.round().log()
    lines = [(line["level"], line.get("field")) for line in log.lines]
    assert lines == [("warning", "line 2"), ("info", None), ("warning", "line 5")]
