"""A watched bundle. Its use as a machine is tested in tests/agent/test_live_replay.py."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from nodeguard.agent.state_file import StateFile
from nodeguard.agent.watched_node import watch_recording
from nodeguard.bundle import watched
from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.derive.derive import PlatformHints
from nodeguard.worker.lane import filesystem_lane
from tests.bundle.bundles import MANIFEST, bundle, lay
from tests.logs import LogLines
from tests.waiting import PATIENCE

ONE = "6,1,1000000,-;one"


def test_a_bundle_that_breaks_the_format_at_the_start_is_refused(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(BundleError, match=r"nvml\.json: is cut short"):
        WatchedBundle(bundle(tmp_path, {"nvml.json": "{"}))
    assert os.listdir("/proc/self/fd") == before


def test_an_error_before_the_agent_runs_ends_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "refused")

    monkeypatch.setattr(StateFile, "load", fail)
    file = StateFile(str(tmp_path / "state"), filesystem_lane())
    watch = WatchedBundle(bundle(tmp_path, {"sys/a": "1"}))
    with pytest.raises(OSError, match="refused"):
        watch_recording(watch, 1.0, (), PlatformHints(), file)
    with pytest.raises(ValueError, match="closed epoll"):
        watch.kmsg.fileno()


def test_reload_reads_the_bundle_once_after_a_noted_change(tmp_path: Path) -> None:
    with WatchedBundle(bundle(tmp_path, {"sys/a": "1"})) as live:
        first = live.recording
        lay(tmp_path, {"sys/a": "2"})
        assert live.reload() is first
        live.note_changes()
        second = live.reload()
        assert second is not first
        assert second.state_at(0).read("/sys/a") == "2"
        live.note_changes()
        assert live.reload() is second


def test_concurrent_callers_wait_for_the_running_reload(tmp_path: Path) -> None:
    with WatchedBundle(bundle(tmp_path, {"sys/a": "1"})) as live:
        for value in range(20):
            lay(tmp_path, {"sys/a": str(value)})
            live.note_changes()
            contents: list[str] = []
            askers = [
                threading.Thread(target=lambda: contents.append(live.reload().state_at(0).read("/sys/a")))  # noqa: B023
                for _ in range(4)
            ]
            for asker in askers:
                asker.start()
            for asker in askers:
                asker.join(PATIENCE)
            assert contents == [str(value)] * 4


@pytest.mark.parametrize("presence", ["recorded", "not-recorded", ""])
def test_kernel_log_can_appear_unless_it_is_not_recorded(tmp_path: Path, presence: str) -> None:
    files: dict[str, Any] = {
        "bundle.yaml": MANIFEST + (f"sources: {{kmsg: {presence}}}\n" if presence else "")
    }
    with WatchedBundle(bundle(tmp_path, files)) as live:
        assert live.is_recorded("kmsg", ("kmsg",)) == (presence != "not-recorded")
        assert not live.is_recorded("nvml", ("nvml.json",))


def test_a_frame_that_does_not_fit_any_more_keeps_the_previous_recording(
    tmp_path: Path, log: LogLines
) -> None:
    files = {
        "nvml.json": {"devices": [{}, {}]},
        "frames/000010/nvml.json": {"devices": {"2": {"nvmlDeviceGetUUID": "c"}}},
    }
    with WatchedBundle(bundle(tmp_path, files)) as live:
        lay(tmp_path, {"nvml.json": {"devices": [{}]}})
        live.note_changes()
        assert len((live.reload().state_at(0).nvml or {})["devices"]) == 2
        lay(tmp_path, {"nvml.json": {"devices": [{}, {}, {}]}})
        live.note_changes()
        assert len((live.reload().state_at(0).nvml or {})["devices"]) == 3
    file = f"{tmp_path}/frames/000010/nvml.json"
    assert [(line["level"], line["file"]) for line in log.lines] == [
        ("warning", file),
        ("info", str(tmp_path)),
    ]
    assert log.lines[0]["field"] == "devices.2"


def test_without_inotify_it_logs_a_warning_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: LogLines
) -> None:
    def refused() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(watched, "Inotify", refused)
    with WatchedBundle(bundle(tmp_path, {"kmsg": ""})) as live:
        live.note_changes()
        (tmp_path / "kmsg").write_text(f"{ONE}\n")
        assert live.read_log(1.0).appended.records == (ONE,)
    assert log.messages() == ["changes of the bundle are noticed late or not at all"]
    assert "inotify: Too many open files: raise fs.inotify.max_user_watches" in str(log.lines[0]["error"])
