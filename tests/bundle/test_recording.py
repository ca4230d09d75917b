from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nodeguard.bundle import recording as recording_module
from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.layer import Link
from nodeguard.bundle.nvml import NvmlEvent
from nodeguard.bundle.recording import Recording
from nodeguard.model.failure import HungError
from nodeguard.model.instant import Instant
from tests.bundle.bundles import MANIFEST, NOON, bundle, lay

BOOT = "5c8f1d2e-0a1b-2c3d-4e5f-60718293a4b5"


def opened(tmp_path: Path, files: dict[str, Any]) -> Recording:
    return Recording.open(bundle(tmp_path, files))


def test_a_bundle_of_one_instant(tmp_path: Path) -> None:
    recording = opened(tmp_path, {"sys/class/net/eth0/mtu": "9000\n"})
    assert (recording.manifest.hostname, recording.end) == ("gpu-17", 0.0)
    state = recording.state_at(0)
    assert state.instant == Instant(NOON, 864000.0, BOOT)
    assert state.read("/sys/class/net/eth0/mtu") == "9000\n"
    assert (state.calls, state.nvml) == ({}, None)
    assert (recording.log(0), recording.nvml_events(0)) == ((), ())


def test_time_continues_from_the_last_frame_that_sets_it(tmp_path: Path) -> None:
    frames = {
        "frames/000030/frame.yaml": "recorded_at: 2026-11-01T13:00:00Z\n",
        "frames/000060/frame.yaml": "uptime_s: 5\nboot_id: two\n",
        "frames/000090/frame.yaml": "{}\n",
    }
    recording = opened(tmp_path, frames)
    assert recording.end == 90.0
    assert recording.state_at(29.5).instant == Instant(NOON + 29.5, 864029.5, BOOT)
    assert recording.state_at(30).instant == Instant(NOON + 3600, 864030.0, BOOT)
    assert recording.state_at(59).instant == Instant(NOON + 3629, 864059.0, BOOT)
    assert recording.state_at(60).instant == Instant(NOON + 3630, 5.0, "two")
    assert recording.state_at(120).instant == Instant(NOON + 3690, 65.0, "two")


def test_frames_change_files_in_order_of_their_number(tmp_path: Path) -> None:
    recording = opened(
        tmp_path,
        {
            "sys/a": "0",
            "sys/dev/x": "0",
            "sys/dev/y": "0",
            "frames/100/sys/a": "100",
            "frames/30/frame.yaml": "removed: [sys/dev]\n",
            "frames/30/sys/a": "30",
            "frames/30/sys/dev/z": "30",
        },
    )
    expected = ["0", "0", "30", "30", "100", "100"]
    assert [recording.state_at(t).read("/sys/a") for t in (0, 29, 30, 99, 100, 1000)] == expected
    assert recording.state_at(0).tree.names("/sys/dev") == ("x", "y")
    assert recording.state_at(100).tree.names("/sys/dev") == ("z",)


def test_links_lead_across_base_and_frames(tmp_path: Path) -> None:
    recording = opened(
        tmp_path,
        {
            "sys/class/net/eth0": Link("../../devices/nic"),
            "sys/devices/nic/state": "up",
            "frames/30/sys/devices/nic/state": "down",
            "frames/60/frame.yaml": "removed: [sys/class/net/eth0]\n",
            "frames/60/sys/class/net/eth0": Link("../../devices/other"),
            "frames/60/sys/devices/other/state": "new",
        },
    )
    expected = ["up", "down", "new"]
    assert [recording.state_at(t).read("/sys/class/net/eth0/state") for t in (0, 30, 60)] == expected


def test_the_fields_win_over_files_that_say_the_same(tmp_path: Path) -> None:
    recording = opened(
        tmp_path,
        {
            "proc/uptime": "1.00 77.00\n",
            "proc/sys/kernel/random/boot_id": "stale\n",
            "frames/30/frame.yaml": "boot_id: two\nuptime_s: 3\n",
        },
    )
    assert recording.state_at(10).read("/proc/uptime") == "864010.00 77.00\n"
    assert recording.state_at(10).read("/proc/sys/kernel/random/boot_id") == f"{BOOT}\n"
    assert recording.state_at(31).read("/proc/uptime") == "4.00 77.00\n"
    assert recording.state_at(31).read("/proc/sys/kernel/random/boot_id") == "two\n"
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "other", {}).state_at(0).read("/proc/uptime")


def test_errors_and_calls_are_merged_by_key_and_null_removes(tmp_path: Path) -> None:
    recording = opened(
        tmp_path,
        {
            "sys/a": "a",
            "sys/b": "b",
            "errors.yaml": "sys/a: EIO\n",
            "calls.json": {"adjtimex": {"status": 64}, "statvfs(/)": {"f_frsize": 4096}},
            "frames/30/errors.yaml": "sys/a: null\nsys/b: hang\n",
            "frames/30/calls.json": {"statvfs(/)": None, "adjtimex": {"error": "EPERM"}},
        },
    )
    with pytest.raises(OSError, match="Input/output"):
        recording.state_at(0).read("/sys/a")
    assert recording.state_at(0).read("/sys/b") == "b"
    assert recording.state_at(30).read("/sys/a") == "a"
    with pytest.raises(HungError):
        recording.state_at(30).read("/sys/b")
    assert recording.state_at(0).calls["adjtimex"] == {"status": 64}
    assert recording.state_at(30).calls == {"adjtimex": {"error": "EPERM"}}


def test_nvml_is_merged_and_its_events_happen_once(tmp_path: Path) -> None:
    event = {"device": 0, "type": 8, "data": 79}
    recording = opened(
        tmp_path,
        {
            "nvml.json": {"devices": [{"nvmlDeviceGetUUID": "a"}], "events": [event]},
            "frames/30/nvml.json": {
                "devices": {"0": {"nvmlDeviceGetUUID": "b"}},
                "events": [{**event, "data": 48}],
            },
            "frames/60/frame.yaml": "{}",
        },
    )
    assert [(recording.state_at(t).nvml or {})["devices"][0]["nvmlDeviceGetUUID"] for t in (0, 30, 60)] == [
        "a",
        "b",
        "b",
    ]
    assert recording.nvml_events(0) == (NvmlEvent(0, 8, 79),)
    assert recording.nvml_events(60, since=0) == (NvmlEvent(0, 8, 48),)
    assert recording.nvml_events(60, since=30) == ()
    assert recording.nvml_events(30) == (NvmlEvent(0, 8, 79), NvmlEvent(0, 8, 48))


def test_nvml_may_come_with_a_frame(tmp_path: Path) -> None:
    recording = opened(tmp_path, {"frames/30/nvml.json": {"devices": {"0": {"nvmlDeviceGetUUID": "a"}}}})
    assert recording.state_at(0).nvml is None
    assert recording.state_at(30).nvml == {"system": {}, "devices": [{"nvmlDeviceGetUUID": "a"}]}


def test_kernel_log_is_appended_and_restarts_at_a_boot(tmp_path: Path) -> None:
    recording = opened(
        tmp_path,
        {
            "kmsg": "6,1,1,-;base\n SUBSYSTEM=pci\n",
            "frames/30/kmsg": "6,2,2,-;thirty\n",
            "frames/60/frame.yaml": "boot_id: two\nuptime_s: 1\n",
            "frames/60/kmsg": "6,0,0,-;boot\n",
            "frames/90/frame.yaml": "boot_id: two\n",
            "frames/90/kmsg": "6,1,1,-;ninety\n",
        },
    )
    base = "6,1,1,-;base\n SUBSYSTEM=pci"
    assert recording.log(0) == (base,)
    assert recording.log(59) == (base, "6,2,2,-;thirty")
    assert recording.log(59, since=0) == ("6,2,2,-;thirty",)
    assert recording.log(59, since=30) == ()
    assert recording.log(60) == ("6,0,0,-;boot",)
    assert recording.log(120, since=0) == ("6,0,0,-;boot", "6,1,1,-;ninety")
    assert recording.log(120, since=60) == ("6,1,1,-;ninety",)


def test_states_between_frames_are_shared(tmp_path: Path) -> None:
    recording = opened(
        tmp_path, {"sys/a": "a", "calls.json": {}, "nvml.json": {}, "frames/30/frame.yaml": "{}"}
    )
    first, later = recording.state_at(1), recording.state_at(50)
    assert first.tree is later.tree
    assert first.calls is later.calls
    assert first.nvml is later.nvml


def test_a_source_is_recorded_if_the_manifest_lists_it(tmp_path: Path) -> None:
    manifest = MANIFEST + "sources: {nvml: recorded, pci: not-recorded}\n"
    recording = opened(tmp_path, {"bundle.yaml": manifest, "sys/bus/pci/x": ""})
    assert recording.is_recorded("nvml", ["nvml.json"])
    assert not recording.is_recorded("pci", ["/sys/bus/pci"])


def test_source_without_a_manifest_entry_is_recorded_if_the_bundle_has_its_data(tmp_path: Path) -> None:
    recording = opened(
        tmp_path,
        {
            "sys/class/infiniband": None,
            "calls.json": {"statvfs(/var)": {"f_frsize": 4096}},
            "errors.yaml": "proc/self/mounts: stall\n",
            "frames/30/kmsg": "",
            "frames/60/proc/uptime": "1",
            "frames/60/calls.json": {"adjtimex": {"error": "EPERM"}},
        },
    )
    for paths in (
        ["/sys/class/infiniband"],
        ["kmsg"],
        ["/nowhere", "/proc/uptime"],
        ["call:statvfs"],
        ["call:adjtimex"],
        ["/proc/self"],
    ):
        assert recording.is_recorded("x", paths), paths
    for paths in (["/sys/class/infini"], ["nvml.json"], ["call:stat"], ["/proc/driver"], []):
        assert not recording.is_recorded("x", paths), paths


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"bundle.yaml": "format: 1\n"}, "bundle.yaml: line 1: hostname: is missing: add it"),
        ({"frames/30/kmsg": "x"}, "frames/30/kmsg: line 1: is not a record of /dev/kmsg"),
        (
            {"frames/30/frame.yaml": "uptime: 5"},
            "frames/30/frame.yaml: line 1: uptime: is not known here: use one of removed",
        ),
        (
            {"frames/30/nvml.json": {"devices": {"1": {}}}},
            "frames/30/nvml.json: devices.1: there are 0 devices",
        ),
        ({"frames/30/errors.yaml": "sys/a: E"}, "frames/30/errors.yaml: sys/a: 'E' is not a known failure"),
        ({"calls.json": {"adjtimex": None}}, "calls.json: adjtimex: is not an object"),
        ({"frames/30/sys/l": Link("../../../bundle.yaml")}, "frames/30/sys/l: is a link out of the bundle"),
        ({"frames/x/a": ""}, "frames/x: is not a number of seconds"),
        ({"frames/30/bundle.yaml": ""}, "frames/30/bundle.yaml: is not allowed in a frame: remove it"),
        ({"frames/30/frames/60/a": ""}, "frames/30/frames: is not allowed in a frame: remove it"),
    ],
)
def test_a_bundle_that_breaks_the_format_is_refused(
    tmp_path: Path, files: dict[str, Any], message: str
) -> None:
    directory = bundle(tmp_path, files)
    with pytest.raises(BundleError) as refused:
        Recording.open(directory)
    assert str(refused.value).startswith(f"{directory}/{message}")


def test_a_frame_needs_its_frame_yaml(tmp_path: Path) -> None:
    directory = lay(tmp_path, {"bundle.yaml": MANIFEST, "frames/30/kmsg": ""})
    with pytest.raises(
        BundleError, match=r"frames/30/frame\.yaml: is missing: write \{\} if the frame has no"
    ):
        Recording.open(directory)


def test_a_directory_without_bundle_yaml_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(
        BundleError, match=r"/bundle\.yaml: is missing: name the directory of a recording, or write"
    ):
        Recording.open(str(tmp_path))
    # Nor is anything else in it looked at: a person would be asked to remove it.
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BundleError, match=r"/bundle\.yaml: is missing"):
        Recording.open(str(tmp_path))
    with pytest.raises(BundleError, match="cannot be read"):
        Recording.open(str(tmp_path / "nowhere"))


@pytest.mark.root
def test_a_directory_that_may_not_be_read_is_not_called_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # the directories above it are private, too
    os.seteuid(65534)
    try:
        with pytest.raises(BundleError, match=r"cannot be read \(Permission denied\): make it readable"):
            Recording.open("private")
    finally:
        os.seteuid(0)


def test_the_limit_on_files_is_one_for_base_and_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeguard.bundle.recording.MAX_FILES", 6)
    directory = bundle(tmp_path, {"sys/a": "", "frames/1/a": "", "frames/2/a": "", "frames/2/b": ""})
    with pytest.raises(BundleError, match="frames/2: more than 200000 files"):
        Recording.open(directory)


def test_link_loop_raises_eloop_and_does_not_hang(tmp_path: Path) -> None:
    recording = opened(tmp_path, {"sys/a": Link("b"), "sys/b": Link("a"), "frames/30/sys/a/x": "1"})
    with pytest.raises(OSError, match="Too many levels"):
        recording.state_at(0).read("/sys/a/x")
    assert recording.state_at(30).read("/sys/a/x") == "1"


def test_deep_json_is_refused(tmp_path: Path) -> None:
    directory = bundle(tmp_path, {"nvml.json": json.dumps({"system": {}}).replace("{}", '{"a":' * 100_000)})
    with pytest.raises(BundleError, match=r"nvml\.json: "):
        Recording.open(directory)


def test_total_size_of_frames_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "BUNDLE_LIMIT", 4096)
    files = {f"frames/{number:06}/errors.yaml": f"sys/{'x' * 1000}: EIO\n" for number in range(1, 6)}
    with pytest.raises(
        BundleError, match=r"frames/00000[45]: with the frames before it, the bundle is larger than"
    ):
        Recording.open(bundle(tmp_path, files))


def test_a_frame_years_away_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="2592001: is more than 30 days after the beginning: record"):
        Recording.open(bundle(tmp_path, {"frames/2592001/frame.yaml": "{}\n"}))
