from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from nodeguard.bundle.recording import Recording
from nodeguard.model.failure import HungError, StalledError
from nodeguard.sources.machine import LogCursor, LogRecords
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.worker.device_events import DeviceEvent
from nodeguard.worker.result import SYSTEM, CallResult, LaneResult
from tests.bundle.bundles import NOON, bundle

ONE, TWO, THREE = "6,1,1000000,-;one", "6,2,2000000,-;two", "6,3,3000000,-;three"
ROOM = {"f_frsize": 4096, "f_blocks": 10, "f_bfree": 5, "f_bavail": 4}


def replay(directory: Path, files: dict[str, Any]) -> ReplayMachine:
    return ReplayMachine(Recording.open(bundle(directory, files)))


def test_time_comes_from_the_recording(tmp_path: Path) -> None:
    machine = replay(
        tmp_path,
        {
            "proc/uptime": "864000.00 1.00\n",
            "frames/000060/frame.yaml": "boot_id: another\nuptime_s: 5\nrecorded_at: 2026-11-01T12:10:00Z\n",
        },
    )
    assert (machine.now().wall, machine.now().mono) == (NOON, 864_000.0)
    machine.seek(45.5)
    assert (machine.now().wall, machine.now().mono) == (NOON + 45.5, 864_045.5)
    assert machine.read("/proc/uptime").startswith("864045.50 ")
    machine.seek(70.0)
    now = machine.now()
    assert (now.wall, now.mono, now.boot_id) == (NOON + 610.0, 15.0, "another")


def test_files_have_the_content_of_the_replayed_time(tmp_path: Path) -> None:
    machine = replay(
        tmp_path,
        {
            "sys/class/net/eth0/operstate": "up\n",
            "frames/000010/sys/class/net/eth0/operstate": "down\n",
            "frames/000020/frame.yaml": "removed: [sys/class/net/eth0]\n",
            "frames/000020/errors.yaml": "sys/class/net: EIO\nsys/slow: stall\nsys/stuck: hang\n",
        },
    )
    state = "/sys/class/net/eth0/operstate"
    assert machine.read(state) == "up\n"
    machine.seek(10)
    assert machine.read(state) == "down\n"
    assert machine.names("/sys/class/net") == ("eth0",)
    machine.seek(20)
    with pytest.raises(FileNotFoundError):
        machine.read(state)
    with pytest.raises(OSError, match="/sys/class/net") as refused:
        machine.names("/sys/class/net")
    assert refused.value.errno == errno.EIO
    with pytest.raises(StalledError):
        machine.read("/sys/slow")
    with pytest.raises(HungError):
        machine.link("/sys/stuck")


def test_log_records_are_returned_once(tmp_path: Path) -> None:
    machine = replay(
        tmp_path, {"kmsg": f"{ONE}\n", "frames/000010/kmsg": f"{TWO}\n", "frames/000020/kmsg": f"{THREE}\n"}
    )
    assert [machine.log(), machine.log()] == [LogRecords((ONE,), last=1), LogRecords((), last=1)]
    machine.seek(9)
    assert machine.log() == LogRecords((), last=1)
    machine.seek(30)
    assert [machine.log(), machine.log()] == [LogRecords((TWO, THREE), last=3), LogRecords((), last=3)]


def test_log_records_from_before_a_restart_are_not_returned_again(tmp_path: Path) -> None:
    files = {"kmsg": f"{ONE}\n{TWO}\n", "frames/000010/kmsg": f"{THREE}\n"}
    boot_id = replay(tmp_path, files).now().boot_id
    machine = ReplayMachine(Recording.open(str(tmp_path)), cursor=LogCursor(boot_id, 2))
    assert machine.log() == LogRecords((), last=2)
    machine.seek(10)
    assert machine.log() == LogRecords((THREE,), last=3)
    other = ReplayMachine(Recording.open(str(tmp_path)), cursor=LogCursor("another boot", 2))
    assert other.log() == LogRecords((ONE, TWO), last=2)


def test_boot_restarts_the_log(tmp_path: Path) -> None:
    machine = replay(
        tmp_path,
        {
            "kmsg": f"{ONE}\n",
            "frames/000010/kmsg": f"{TWO}\n",
            "frames/000020/kmsg": f"{THREE}\n",
            "frames/000020/frame.yaml": "boot_id: another\nuptime_s: 3\n",
        },
    )
    machine.log()
    machine.seek(20)
    assert machine.log() == LogRecords((THREE,), last=3)


def test_nvml_events_are_returned_once(tmp_path: Path) -> None:
    event = {"device": 0, "type": 8, "data": 79}
    machine = replay(
        tmp_path,
        {
            "nvml.json": {"devices": [{}], "events": [{**event, "data": 13}]},
            "frames/000010/nvml.json": {"events": [event]},
        },
    )
    assert [machine.nvml_events(), machine.nvml_events()] == [(DeviceEvent(0, 8, 13),), ()]
    machine.seek(10)
    assert machine.nvml_events() == (DeviceEvent(0, 8, 79),)
    machine.seek(20)
    assert machine.nvml_events() == ()


def test_detached_gpus_are_called_again_after_a_stall(tmp_path: Path) -> None:
    machine = replay(tmp_path, {"nvml.json": {"devices": [{"nvmlDeviceGetEccMode": {"error": "stall"}}]}})
    assert [bool(machine.nvml().stalled) for _ in range(2)] == [True, False]
    machine.detach_gpus(ends_stalls=False)
    assert not machine.nvml().stalled
    machine.detach_gpus(ends_stalls=True)
    assert machine.nvml().stalled


def test_without_nvml_json_there_is_no_library(tmp_path: Path) -> None:
    machine = replay(tmp_path, {})
    assert "libnvidia-ml.so.1" in machine.nvml().missing
    assert machine.nvml_events() == ()


def test_reboot_clears_the_state_of_the_lanes(tmp_path: Path) -> None:
    healed = {"devices": {"0": {"nvmlDeviceGetEccMode": [1, 1]}}}
    machine = replay(
        tmp_path,
        {
            "nvml.json": {"devices": [{"nvmlDeviceGetEccMode": {"error": "stall"}}]},
            "calls.json": {"statvfs(/raid)": {"error": "hang"}},
            "frames/000010/nvml.json": healed,
            "frames/000010/calls.json": {"statvfs(/raid)": ROOM},
            "frames/000020/frame.yaml": "boot_id: another\nuptime_s: 3\n",
        },
    )
    at_rest, hangs = CallResult(0, "nvmlDeviceGetEccMode"), CallResult(0, "statvfs(/raid)")
    assert machine.nvml().stalled == (at_rest,)
    assert machine.statvfs(("/raid",)).hung == hangs
    machine.seek(10)
    assert machine.nvml().skipped == (at_rest,)
    assert machine.statvfs(("/raid",)).hung == hangs
    machine.seek(20)
    answer = machine.nvml()
    assert (answer.stalled, answer.skipped) == ((), ())
    assert CallResult(0, "nvmlDeviceGetEccMode", [1, 1]) in answer.results
    assert machine.statvfs(("/raid",)).results == (CallResult(0, "statvfs(/raid)", ROOM),)


def test_a_driver_that_hangs(tmp_path: Path) -> None:
    system = {"nvmlSystemGetDriverVersion": {"error": "hang"}}
    machine = replay(tmp_path, {"nvml.json": {"system": system, "devices": [{}]}})
    for _ in range(2):
        assert machine.nvml().hung == CallResult(SYSTEM, "nvmlSystemGetDriverVersion")


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ({"error": "EPERM"}, PermissionError),
        ({"error": "stall"}, StalledError),
        ({"error": "hang"}, HungError),
    ],
)
def test_recorded_call_raises_its_error(
    tmp_path: Path, answer: dict[str, str], failure: type[Exception]
) -> None:
    machine = replay(tmp_path, {"calls.json": {"adjtimex": answer}})
    with pytest.raises(failure, match="adjtimex"):
        machine.call("adjtimex")


def test_recorded_call_returns_its_result(tmp_path: Path) -> None:
    machine = replay(tmp_path, {"calls.json": {"adjtimex": {"status": 64}}})
    assert machine.call("adjtimex") == {"status": 64}


def test_unrecorded_call_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="adjtimex") as absent:
        replay(tmp_path, {}).call("adjtimex")
    assert absent.value.errno == errno.ENOSYS
    assert replay(tmp_path / "other", {}).statvfs(("/",)) == LaneResult()
