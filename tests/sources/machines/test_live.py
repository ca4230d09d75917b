from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest

from nodeguard.model.failure import UserError
from nodeguard.sources.machine import READ_LIMIT, LaneHangs
from nodeguard.sources.machines import live
from nodeguard.sources.machines.live import LiveMachine
from nodeguard.worker.device_events import DeviceEventQueue
from nodeguard.worker.lane_state import Hang
from nodeguard.worker.result import LaneResult

BOOT_ID = "proc/sys/kernel/random/boot_id"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root directory of a machine that has nothing but a boot id."""
    (tmp_path / BOOT_ID).parent.mkdir(parents=True)
    (tmp_path / BOOT_ID).write_text("5c8f1d2e\n")
    return tmp_path


@pytest.fixture
def machine(root: Path) -> Iterator[LiveMachine]:
    with LiveMachine(str(root)) as machine:
        yield machine


def children() -> list[str]:
    """Processes that this one has started and that are not gone."""
    files = glob("/proc/self/task/*/children")
    if not files:
        pytest.skip("this kernel does not list children (CONFIG_PROC_CHILDREN)")
    return sorted(pid for file in files for pid in Path(file).read_text().split())


# Files.


def test_a_file_is_read_whole_below_the_root(machine: LiveMachine, root: Path) -> None:
    (root / "sys").mkdir()
    (root / "sys" / "a").write_bytes("grüß\n".encode() + b"\xff")
    assert machine.read("/sys/a") == "grüß\n\ufffd"


def test_a_file_without_a_size_is_read_to_its_end() -> None:
    with LiveMachine() as this:
        assert this.read("/proc/meminfo").count("\n") > 10
        assert this.read("/proc/self/comm").strip()


def test_mounts_below_the_root_are_read_from_its_process_1(machine: LiveMachine, root: Path) -> None:
    for name, mounts in (("self", "/dev/sda1 /host ext4 ro 0 0\n"), ("1", "/dev/sda1 / ext4 rw 0 0\n")):
        (root / "proc" / name).mkdir()
        (root / "proc" / name / "mounts").write_text(mounts)
    assert machine.read("/proc/self/mounts") == "/dev/sda1 / ext4 rw 0 0\n"
    with LiveMachine() as here:
        assert here.read("/proc/self/comm") == Path("/proc/self/comm").read_text()


def test_a_file_is_cut_at_the_limit(machine: LiveMachine, root: Path) -> None:
    (root / "long").write_bytes(b"x" * (READ_LIMIT + 100_000))
    (root / "just").write_bytes(b"x" * READ_LIMIT)
    assert len(machine.read("/long")) == len(machine.read("/just")) == READ_LIMIT


def test_a_pipe_without_a_writer_does_not_block(machine: LiveMachine, root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert machine.read("/pipe") == ""


def test_names_are_sorted_and_links_are_read(machine: LiveMachine, root: Path) -> None:
    (root / "d").mkdir()
    for name in ("b", "a10", "a2"):
        (root / "d" / name).touch()
    (root / "l").symlink_to("../x/y")
    assert machine.names("/d") == ("a10", "a2", "b")
    assert machine.link("/l") == "../x/y"


@pytest.mark.parametrize(
    ("ask", "path", "code"),
    [
        ("read", "/nowhere", errno.ENOENT),
        ("read", "/proc", errno.EISDIR),
        ("names", "/nowhere", errno.ENOENT),
        ("names", f"/{BOOT_ID}", errno.ENOTDIR),
        ("link", "/nowhere", errno.ENOENT),
        ("link", f"/{BOOT_ID}", errno.EINVAL),
    ],
)
def test_failed_read_raises_oserror(machine: LiveMachine, ask: str, path: str, code: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the errno is what is looked at
        getattr(machine, ask)(path)
    assert refused.value.errno == code
    assert len(os.listdir("/proc/self/fd")) == before


# The clock and system calls.


def test_now_returns_an_instant() -> None:
    with LiveMachine() as this:
        before, now, after = time.monotonic(), this.now(), time.monotonic()
    assert before <= now.mono <= after
    assert abs(now.wall - time.time()) < 60
    assert now.boot_id == Path(f"/{BOOT_ID}").read_text().strip()


def test_boot_id_is_read_below_the_root(machine: LiveMachine) -> None:
    assert machine.now().boot_id == "5c8f1d2e"


def test_a_root_without_proc_is_reported_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{tmp_path}/{BOOT_ID}: No such file or directory: --root names"):
        LiveMachine(str(tmp_path))


def test_adjtimex_is_the_only_call(machine: LiveMachine) -> None:
    with pytest.raises(OSError, match="settimeofday") as refused:
        machine.call("settimeofday")
    assert refused.value.errno == errno.ENOSYS
    try:
        assert "status" in machine.call("adjtimex")
    except PermissionError:
        pytest.skip("adjtimex is refused here")


def test_a_kernel_log_that_is_not_there_is_an_error_each_time(machine: LiveMachine) -> None:
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            machine.log()


# Lanes.


def test_statvfs_runs_in_a_process_that_ends_with_the_machine() -> None:
    before = children()
    with LiveMachine() as this:
        first, second = this.statvfs(("/", "/nowhere")), this.statvfs(("/",))
        assert len(children()) == len(before) + 1
    assert children() == before
    [root, nowhere] = first.results
    assert (root.scope, root.call, root.result["f_blocks"]) == (0, "statvfs(/)", os.statvfs("/").f_blocks)
    assert (nowhere.scope, nowhere.result) == (1, {"error": "ENOENT"})
    assert [entry.call for entry in second.results] == ["statvfs(/)"]


def test_statvfs_runs_below_the_root(machine: LiveMachine, root: Path) -> None:
    (root / "data").mkdir()
    data, tmp = machine.statvfs(("/data", str(root))).results
    assert (data.call, data.result["f_blocks"]) == ("statvfs(/data)", os.statvfs(root).f_blocks)
    assert tmp.result == {"error": "ENOENT"}


def test_without_a_driver_no_process_is_started(machine: LiveMachine) -> None:
    before = children()
    answer = machine.nvml()
    assert answer == LaneResult(missing="no NVIDIA driver and no libnvidia-ml.so.1 on this machine")
    assert children() == before
    assert machine.nvml_events() == ()


@pytest.mark.parametrize(
    ("trace", "content"),
    [
        ("dev/nvidiactl", b""),
        ("proc/driver/nvidia/version", b""),
        ("sys/module/nvidia/initstate", b""),
        ("run/nvidia/driver/usr", b""),
        ("dev/dxg", b""),
        ("etc/ld.so.cache", b"\0libnvidia-ml.so.1\0/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1\0"),
    ],
)
def test_any_file_of_a_driver_starts_the_nvml_process(
    trace: str, content: bytes, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / trace).parent.mkdir(parents=True, exist_ok=True)
    (root / trace).write_bytes(content)
    asked: list[str | float] = []
    descriptors: list[int] = []

    class Lane:
        hang = Hang(0, "nvmlDeviceGetName")

        def __init__(self, root: str, hang: Hang | None, events: DeviceEventQueue) -> None:
            asked.append(root)
            descriptors.append(events.fileno())
            assert hang == Hang(1, "nvmlDeviceGetUUID")

        def round(self, within: float, leave: frozenset[int]) -> LaneResult:
            asked.extend([within, *leave])
            return LaneResult()

        def stop_worker(self, *, ends_stalls: bool) -> None:
            asked.append(f"stop worker, ends_stalls={ends_stalls}")

        def close(self) -> None:
            asked.append("closed")

    monkeypatch.setattr(live, "nvml_lane", Lane)
    before = LaneHangs(nvml=Hang(1, "nvmlDeviceGetUUID"), filesystem=Hang("/data", "statvfs(/data)"))
    with LiveMachine(f"{root}/", hangs=before) as machine:
        assert machine.hangs() == before
        assert [machine.nvml(), machine.nvml(7.0, frozenset({3}))] == [LaneResult(), LaneResult()]
        machine.detach_gpus(ends_stalls=True)
        assert machine.hangs() == LaneHangs(nvml=Lane.hang, filesystem=before.filesystem)
        assert descriptors == [machine.events_descriptor()]
    assert asked == [str(root), math.inf, 7.0, 3, "stop worker, ends_stalls=True", "closed"]


def test_other_library_does_not_count_as_a_driver(machine: LiveMachine, root: Path) -> None:
    (root / "etc").mkdir()
    (root / "etc" / "ld.so.cache").write_bytes(b"\0libc.so.6\0")
    assert machine.nvml().missing
