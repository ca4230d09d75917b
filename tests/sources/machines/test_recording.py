from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodeguard.bundle.manifest import Manifest
from nodeguard.bundle.recording import Recording
from nodeguard.bundle.writer import BundleWriter
from nodeguard.model.failure import HungError, StalledError, UnansweredError
from nodeguard.sources.filesystem import FilesystemSource
from nodeguard.sources.machine import LogRecords, Machine, MetadataRequest
from nodeguard.sources.machines.kernel_log import sequence_number
from nodeguard.sources.machines.recording import RecordingMachine
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.nvml import NvmlSource
from nodeguard.sources.processes import ProcessesSource
from nodeguard.sources.registry import all_sources
from nodeguard.sources.services import ServicesSource
from nodeguard.worker.device_events import DeviceEvent
from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.replay import replay_nvml, replay_statvfs
from nodeguard.worker.result import CallResult, LaneResult
from tests.sources.fake_machine import FakeMachine
from tests.sources.test_kmsg import PATTERNS, line
from tests.sources.test_processes import stat
from tests.sources.test_source import whole_machine
from tests.worker import recordings
from tests.worker.recordings import hopper

Ask = Callable[[Machine], Any]

# An Xid that names no process: a recording masks its name.
NO_NAME = "NVRM: Xid (PCI:0000:3b:00): 14, Channel 00000001"


class Node(FakeMachine):
    """A fake machine with lanes and a kernel log. nvml: as a bundle has it, None where no library is."""

    def __init__(
        self, *args: Any, nvml: dict[str, Any] | None = None, records: tuple[str, ...] = (), **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.document, self.records = nvml, records
        self.events: tuple[DeviceEvent, ...] = ()
        self.lanes = LaneState(), LaneState()

    def link(self, path: str) -> str:
        try:
            return super().link(path)
        except FileNotFoundError:
            # Something else is there than a link.
            if path in self.directories or any(
                f"{existing}/".startswith(f"{path}/") for existing in self.files
            ):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path) from None
            raise

    def log(self, within: float = math.inf) -> LogRecords:
        self._ask("/dev/kmsg")
        records, self.records = self.records, ()
        return LogRecords(records, last=max(map(sequence_number, records), default=-1))

    def statvfs(self, mounts: tuple[str, ...], within: float = math.inf) -> LaneResult:
        return replay_statvfs(self.lanes[0], self.calls, mounts)

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        return replay_nvml(self.lanes[1], self.document)

    def nvml_events(self) -> tuple[DeviceEvent, ...]:
        events, self.events = self.events, ()
        return events


def outcome(ask: Ask, machine: Machine) -> Any:
    """Return the result of a read, or its error."""
    try:
        return ask(machine)
    except OSError as error:
        return type(error), error.errno, error.filename
    except UnansweredError as error:
        return type(error), error.detail


def record_and_replay(directory: Path, machine: FakeMachine, *asks: Ask) -> tuple[list[Any], list[Any]]:
    """Return the results of reads during a recording, and the results of the same reads in its replay."""
    now = machine.now()
    manifest = Manifest("node-1", now.boot_id, now.wall, now.mono)
    with BundleWriter(str(directory / "bundle"), manifest, machine.link) as writer:
        recorded_machine = RecordingMachine(machine, lambda add: add(writer))
        recorded = [outcome(ask, recorded_machine) for ask in asks]
    assert writer.notes == []
    replayed = ReplayMachine(Recording.open(str(directory / "bundle")))
    return recorded, [outcome(ask, replayed) for ask in asks]


def names(directory: Path, path: str) -> list[str]:
    return sorted(entry.name for entry in (directory / "bundle" / path).iterdir())


ANSWERED = MetadataRequest("/a?b=c", {"X-Mine": "yes"}, session=True)
FILES = {"/sys/a/one": "1\n", "/sys/a/two": "2\n", "/etc/odd name": "grüß\n"}


@pytest.mark.parametrize(
    "ask",
    [
        lambda machine: machine.now(),
        lambda machine: machine.read("/sys/a/one"),
        lambda machine: machine.read("/etc/odd name"),
        lambda machine: machine.names("/sys/a"),
        lambda machine: machine.names("/sys/empty"),
        lambda machine: machine.link("/sys/link"),
        lambda machine: machine.read("/sys/nowhere"),
        lambda machine: machine.names("/sys/nowhere"),
        lambda machine: machine.link("/sys/nowhere"),
        lambda machine: machine.read("/sys/refused"),
        lambda machine: machine.names("/sys/refused"),
        lambda machine: machine.read("/sys/slow"),
        lambda machine: machine.read("/sys/stuck"),
        lambda machine: machine.call("adjtimex"),
        lambda machine: machine.http(ANSWERED, 1.0),
        lambda machine: machine.http(MetadataRequest("/refused"), 1.0),
        lambda machine: machine.http(MetadataRequest("/slow"), 1.0),
        lambda machine: machine.log(),
    ],
)  # fmt: skip
def test_recording_replays_the_same_results(ask: Ask, tmp_path: Path) -> None:
    machine = Node(
        FILES,
        links={"/sys/link": "a/one"},
        directories=["/sys/empty"],
        errors={
            "/sys/refused": errno.EACCES,
            "/sys/slow": StalledError("/sys/slow"),
            "/sys/stuck": HungError("/sys/stuck"),
        },
        calls={
            "adjtimex": {"status": 64, "offset_us": -3},
            ANSWERED.call: {"status": 200, "body": "grüß"},
            "http(GET http://169.254.169.254/refused)": {"error": "ECONNREFUSED"},
            "http(GET http://169.254.169.254/slow)": {"error": "stall"},
        },
        records=("6,1,1000000,-,caller=T1;one", "6,2,2000000,-;two\n SUBSYSTEM=pci"),
    )
    recorded, replayed = record_and_replay(tmp_path, machine, ask)
    assert replayed == recorded


@pytest.mark.parametrize(
    "failure", [errno.EPERM, errno.EOPNOTSUPP, StalledError("adjtimex"), HungError("adjtimex")]
)
def test_failed_call_is_recorded(failure: int | Exception, tmp_path: Path) -> None:
    machine = Node(errors={"call:adjtimex": failure})
    [recorded], [replayed] = record_and_replay(tmp_path, machine, lambda machine: machine.call("adjtimex"))
    assert replayed[0] == recorded[0]


@pytest.mark.parametrize("failure", [errno.EPERM, errno.ENOENT, StalledError("/dev/kmsg")])
def test_failed_kernel_log_read_is_replayed(failure: int | Exception, tmp_path: Path) -> None:
    recorded, replayed = record_and_replay(
        tmp_path, Node(errors={"/dev/kmsg": failure}), lambda machine: machine.log()
    )
    assert replayed == recorded
    assert recorded[0][0] in {PermissionError, FileNotFoundError, StalledError}


def test_a_kernel_log_that_can_be_read_again_has_no_failure(tmp_path: Path) -> None:
    machine = Node(errors={"/dev/kmsg": errno.EPERM}, records=("6,1,1000000,-;one",))

    def again(recorded_machine: Machine) -> Any:
        first = outcome(lambda machine: machine.log(), recorded_machine)
        machine.errors.clear()
        return first, recorded_machine.log()

    [recorded], [replayed] = record_and_replay(tmp_path, machine, again)
    assert recorded[0][0] is PermissionError
    assert replayed[0] == recorded[1] == LogRecords(("6,1,1000000,-;one",), last=1)


@pytest.mark.parametrize(
    "answer",
    [
        LaneResult(failed="no process"),
        LaneResult((CallResult(0, "nvmlDeviceGetName", "a"),), interrupted=CallResult(1, "nvmlInit")),
    ],
)
def test_gpus_that_were_not_all_read_are_not_recorded(
    answer: LaneResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Node()
    monkeypatch.setattr(machine, "nvml", lambda *_: answer)
    record_and_replay(tmp_path, machine, lambda machine: machine.nvml())
    recording = Recording.open(str(tmp_path / "bundle"))
    assert not recording.is_recorded("nvml", ("nvml.json",))
    assert recording.state_at(0).nvml is None


def test_changed_file_is_recorded_again(tmp_path: Path) -> None:
    machine = Node({"/sys/a": "1\n"})

    def change(recorded_machine: Machine) -> str:
        first = recorded_machine.read("/sys/a")
        machine.files["/sys/a"] = "2\n"
        return first

    recorded, replayed = record_and_replay(
        tmp_path, machine, change, lambda recorded_machine: recorded_machine.read("/sys/a")
    )
    assert recorded == ["1\n", "2\n"]
    assert replayed == ["2\n", "2\n"]


# Lanes.


@pytest.mark.parametrize(
    "document",
    [
        None,
        {"error": "NVML_ERROR_DRIVER_NOT_LOADED"},
        {"system": recordings.SYSTEM, "devices": [hopper(links=2), hopper(1, links=2)]},
        {"system": recordings.SYSTEM, "devices": [hopper(links=0), {"error": "NVML_ERROR_GPU_IS_LOST"}]},
        {"devices": [{**hopper(links=2), "nvmlDeviceGetEccMode": {"error": "stall"}}, hopper(1, links=0)]},
        {"devices": [{"error": "stall"}, hopper(1, links=0)]},
        {"devices": [hopper(links=0), {**hopper(1), "nvmlDeviceGetEccMode": {"error": "hang"}}, hopper(2)]},
        {"devices": [{**hopper(links=0), "nvmlDeviceGetFieldValues": {"error": "stall"}}]},
        {"system": {"nvmlSystemGetDriverVersion": {"error": "stall"}}, "devices": [hopper(links=0)]},
    ],
)
def test_gpus_replay_with_the_same_observations(document: dict[str, Any] | None, tmp_path: Path) -> None:
    recorded, replayed = record_and_replay(
        tmp_path, Node(nvml=document), lambda machine: list(NvmlSource().read(machine))
    )
    assert replayed == recorded


def test_skipped_gpu_replays_as_a_stalled_gpu(tmp_path: Path) -> None:
    machine = Node(nvml={"devices": [{**hopper(links=0), "nvmlDeviceGetEccMode": {"error": "stall"}}]})
    machine.nvml()
    [recorded], [replayed] = record_and_replay(tmp_path, machine, lambda machine: machine.nvml())
    assert replayed.stalled == recorded.skipped != ()


def test_nvml_events_replay_once(tmp_path: Path) -> None:
    machine = Node(nvml={"devices": [hopper(links=0)]})
    machine.events = (DeviceEvent(0, 8, 79),)
    once: Ask = lambda machine: (machine.nvml(), machine.nvml_events())[1]  # noqa: E731
    recorded, replayed = record_and_replay(tmp_path, machine, once, once)
    assert recorded == replayed == [(DeviceEvent(0, 8, 79),), ()]


@pytest.mark.parametrize("failure", ["EIO", "stall", "hang"])
def test_mounts_replay_with_the_same_observations(failure: str, tmp_path: Path) -> None:
    mounts = "".join(f"/dev/{name} /{name} ext4 rw 0 0\n" for name in ("a", "b", "c"))
    sizes = dict.fromkeys(("f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_flag"), 7)
    calls = {"statvfs(/a)": sizes, "statvfs(/b)": {"error": failure}, "statvfs(/c)": sizes}
    machine = Node(
        {"/proc/9/mounts": mounts, "/proc/self/mounts": mounts}, links={"/proc/self": "9"}, calls=calls
    )
    recorded, replayed = record_and_replay(
        tmp_path, machine, lambda machine: list(FilesystemSource().read(machine))
    )
    assert replayed == recorded
    assert len(recorded) == 1


# Whole sources.


def whole() -> Node:
    simple = whole_machine()
    links = {**simple.links, "/proc/self": "800"}
    files = {**simple.files, "/proc/800/mounts": simple.files["/proc/self/mounts"]}
    document = {"system": recordings.SYSTEM, "devices": [hopper(links=2), hopper(1, links=2)]}
    machine = Node(files, links=links, calls=simple.calls, nvml=document, records=(line(NO_NAME),))
    machine.later(float(files["/proc/uptime"].split()[0]) - machine.now().mono)
    return machine


@pytest.mark.parametrize("name", [source.name for source in all_sources(PATTERNS)])
def test_every_source_replays_with_the_same_observations(name: str, tmp_path: Path) -> None:
    live, replay = ({source.name: source for source in all_sources(PATTERNS)}[name] for _ in range(2))
    machine = whole()
    now = machine.now()
    manifest = Manifest("node-1", now.boot_id, now.wall, now.mono)
    with BundleWriter(str(tmp_path / "bundle"), manifest, machine.link) as writer:
        recorded = list(live.read(RecordingMachine(machine, lambda add: add(writer))))
    replayed = list(replay.read(ReplayMachine(Recording.open(str(tmp_path / "bundle")))))
    assert recorded
    assert replayed == recorded


def test_of_a_mapped_device_only_the_kind_of_its_uuid_is_recorded(tmp_path: Path) -> None:
    path = "/sys/block/dm-0/dm/uuid"
    machine = Node({path: "CRYPT-LUKS2-8a3c-alice-home\n"})
    _, replayed = record_and_replay(tmp_path, machine, lambda machine: machine.read(path))
    assert replayed == ["CRYPT-\n"]


def test_of_vpd_only_the_role_of_the_function_is_recorded(tmp_path: Path) -> None:
    path = "/sys/bus/pci/devices/0000:05:00.0/vpd"
    machine = Node({path: "SN\x0dMT2515X01234V2\x0bSMDL=SW_MNG\x78"})
    _, replayed = record_and_replay(tmp_path, machine, lambda machine: machine.read(path))
    assert replayed == ["SMDL=SW_MNG\n"]


# Command lines are private.


def processes(**more: Any) -> Node:
    files = {
        "/proc/1/stat": stat(1, "systemd"),
        "/proc/500/stat": stat(500, "dd", "D"),
        "/proc/500/wchan": "io_schedule",
        "/proc/600/stat": stat(600, "secret-project"),
        "/proc/600/comm": "secret-project\n",
        "/proc/700/stat": stat(700, "gone", "Z"),
        "/proc/800/stat": stat(800, "kubelet"),
        "/proc/800/comm": "kubelet\n",
        "/proc/meminfo": "MemTotal: 1 kB\n",
    }
    return Node(files, **more)


def test_units_with_custom_names_are_not_recorded(tmp_path: Path) -> None:
    system, group = "/etc/systemd/system", "/sys/fs/cgroup"
    machine = Node(
        {
            f"{group}/system.slice/kubelet.service/cgroup.events": "populated 1\n",
            f"{group}/system.slice/home-alice.mount/cgroup.events": "populated 1\n",
            f"{group}/cgroup.procs": "1\n",
            "/run/systemd/system/train-alice.service": "",
        },
        links={
            f"{system}/multi-user.target.wants/kubelet.service": "x",
            f"{system}/multi-user.target.wants/train@alice.service": "x",
            f"{system}/acme-badges.service": "x",
        },
    )
    recorded, replayed = record_and_replay(
        tmp_path, machine, lambda machine: list(ServicesSource().read(machine))
    )
    assert replayed == recorded
    assert names(tmp_path, "sys/fs/cgroup/system.slice") == ["kubelet.service"]
    assert names(tmp_path, "etc/systemd/system") == ["multi-user.target.wants"]
    assert names(tmp_path, "etc/systemd/system/multi-user.target.wants") == ["kubelet.service"]


def test_recording_has_only_blocked_processes(tmp_path: Path) -> None:
    machine = processes()
    recorded, replayed = record_and_replay(
        tmp_path,
        machine,
        lambda machine: list(ProcessesSource().read(machine)),
        lambda machine: machine.read("/proc/800/comm"),
        lambda machine: machine.read("/proc/meminfo"),
    )
    assert replayed == recorded
    assert names(tmp_path, "proc") == ["1", "500", "700", "800", "meminfo"]


def test_name_of_an_unblocked_process_is_not_recorded(tmp_path: Path) -> None:
    recorded, replayed = record_and_replay(
        tmp_path, processes(), lambda machine: machine.read("/proc/600/comm")
    )
    assert recorded == ["secret-project\n"]
    assert replayed == [(FileNotFoundError, errno.ENOENT, "/proc/600/comm")]


def test_processes_that_are_hidden_replay_as_hidden(tmp_path: Path) -> None:
    machine = Node({"/proc/600/stat": stat(600, "mine")}, directories=["/proc/thread-self"])
    recorded, replayed = record_and_replay(
        tmp_path, machine, lambda machine: list(ProcessesSource().read(machine))
    )
    assert replayed == recorded
    assert "hidepid" in recorded[0][0].unreadable["process.blocked"]


@pytest.mark.parametrize("failure", [errno.EACCES, StalledError("/proc/600/comm")])
def test_unreadable_process_replays_as_unreadable(failure: int | Exception, tmp_path: Path) -> None:
    machine = processes(errors={"/proc/600/comm": failure})
    recorded, replayed = record_and_replay(tmp_path, machine, lambda machine: machine.read("/proc/600/comm"))
    assert replayed == recorded
    assert recorded[0][0] in {PermissionError, StalledError}


def test_process_that_ended_during_the_recording_is_omitted(tmp_path: Path) -> None:
    machine = processes(errors={"/proc/600/stat": errno.ESRCH})
    recorded, replayed = record_and_replay(
        tmp_path, machine, lambda machine: list(ProcessesSource().read(machine))
    )
    assert replayed == recorded
    assert "600" not in names(tmp_path, "proc")
