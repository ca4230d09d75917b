"""Properties of every simple source: any file may have any content, or be refused, at any time."""

from __future__ import annotations

import errno
import subprocess
import sys

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nodeguard.model.failure import HungError, StalledError
from nodeguard.model.observation import Observation
from nodeguard.sources.clock import ClockSource
from nodeguard.sources.disks import DisksSource
from nodeguard.sources.filesystem import FilesystemSource
from nodeguard.sources.host import HostSource
from nodeguard.sources.infiniband import InfinibandSource
from nodeguard.sources.memory import MemorySource
from nodeguard.sources.observations import ObservationsSource
from nodeguard.sources.pci import PciSource
from nodeguard.sources.processes import ProcessesSource
from nodeguard.sources.registry import SOURCES, all_sources
from nodeguard.sources.services import ServicesSource
from nodeguard.sources.source import Source
from tests.sources import (
    test_clock,
    test_disks,
    test_filesystem,
    test_host,
    test_infiniband,
    test_memory,
    test_observations,
    test_pci,
    test_processes,
    test_services,
)
from tests.sources.clouds import test_azure
from tests.sources.fake_machine import FakeMachine, by_target

FILE_SOURCES: tuple[type[Source], ...] = (
    HostSource,
    PciSource,
    InfinibandSource,
    MemorySource,
    FilesystemSource,
    ClockSource,
    ServicesSource,
    ProcessesSource,
    ObservationsSource,
    DisksSource,
)


def whole_machine() -> FakeMachine:
    """A node that has something for each source."""
    pci, rdma = test_pci.machine(), test_infiniband.device("mlx5_0", test_infiniband.INFINIBAND)
    files = {
        **test_host.FILES,
        **pci.files,
        **rdma,
        **test_infiniband.efa(),
        **test_memory.FILES,
        f"{test_memory.MC}/mc0/dimm0/dimm_ce_count": "0\n",
        f"{test_memory.MC}/mc1/ce_count": "0\n",
        **test_azure.FILES,
        "/proc/self/mounts": test_filesystem.MOUNTS,
        "/etc/fstab": test_filesystem.FSTAB,
        **test_clock.SOURCE,
        **test_services.unit("kubelet", 800),
        "/sys/module/nvidia_peermem/initstate": "live\n",
        "/proc/1/stat": test_processes.stat(1, "systemd"),
        "/proc/500/stat": test_processes.stat(500, "dd", "D"),
        "/proc/500/wchan": "io_schedule",
        "/proc/800/stat": test_processes.stat(800, "kubelet"),
        **test_observations.FILES,
        **test_disks.FILES,
    }
    links = {**pci.links, **test_disks.LINKS, **test_services.enabled("kubelet", "docker")}
    calls = {"adjtimex": test_clock.KEPT, **test_filesystem.CALLS, **test_azure.CALLS}
    return FakeMachine(files, links=links, calls=calls, directories=[test_services.BOOTED])


PATHS = sorted({*whole_machine().files, *whole_machine().links})
# Without these there is no round at all.
VITAL = ("/proc/self/mounts", "/proc")
PLACES = sorted({*PATHS, *(path.rpartition("/")[0] for path in PATHS)})
CODES = (
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.EINVAL,
    errno.ENOENT,
    errno.ENODEV,
    errno.ESRCH,
    errno.ETIMEDOUT,
)
# Files that list targets, or that belong to several.
SHARED_FILES = ("mounts", "fstab", "/class", "/vendor", "/device", "/stat")
GARBAGE = st.one_of(
    st.text(),
    st.sampled_from(
        ["", "-1", "nan", "1e999", "9" * 5000, "0x" + "f" * 40, "\x00\ufffd", "populated 2", "63", "255"]
    ),
)


def _rounds(machine: FakeMachine) -> dict[str, dict[str, Observation]]:
    return {source.name: by_target(source, machine) for source in (kind() for kind in FILE_SOURCES)}


@pytest.mark.parametrize("kind", FILE_SOURCES)
def test_all_sources_read_a_complete_machine(kind: type[Source]) -> None:
    observations = by_target(kind(), whole_machine())
    assert observations
    assert not [observation.unreadable for observation in observations.values() if observation.unreadable]


@pytest.mark.parametrize("kind", FILE_SOURCES)
def test_a_round_is_repeatable(kind: type[Source]) -> None:
    source, machine = kind(), whole_machine()
    assert by_target(source, machine) == by_target(source, machine)


@pytest.mark.parametrize("kind", FILE_SOURCES)
def test_no_file_is_read_twice_in_a_round(kind: type[Source]) -> None:
    machine = whole_machine()
    by_target(kind(), machine)
    assert len(machine.asked) == len(set(machine.asked))


def test_names_and_signals_of_sources_are_unique() -> None:
    signals = [name for kind in FILE_SOURCES for name in kind.signals]
    assert len(signals) == len(set(signals))
    assert len({kind.name for kind in FILE_SOURCES}) == len(FILE_SOURCES)
    paths = [path for kind in FILE_SOURCES for path in kind.paths]
    assert not [(a, b) for a in paths for b in paths if a != b and b.startswith(f"{a}/")]


def test_intervals_and_deadlines() -> None:
    assert {kind.name: (kind.interval, kind.deadline) for kind in FILE_SOURCES} == {
        "host": (60, 5),
        "pci": (10, 5),
        "infiniband": (10, 5),
        "memory": (30, 5),
        "filesystem": (30, 20),
        "clock": (60, 5),
        "services": (30, 5),
        "processes": (60, 5),
        "observations": (30, 5),
        "disks": (30, 5),
    }


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(PATHS), GARBAGE, min_size=1, max_size=4))
def test_invalid_files_never_fail_a_round(garbage: dict[str, str]) -> None:
    machine = whole_machine()
    machine.files |= garbage
    assert msgspec.msgpack.encode(_rounds(machine))


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(PLACES), st.sampled_from(CODES), min_size=1, max_size=4))
def test_refused_reads_never_fail_a_round(errors: dict[str, int]) -> None:
    machine = whole_machine()
    machine.errors |= {path: code for path, code in errors.items() if path not in VITAL}
    observations = [
        observation for of_source in _rounds(machine).values() for observation in of_source.values()
    ]
    assert all(reason for observation in observations for reason in observation.unreadable.values())
    assert all(observation.detail for observation in observations if observation.status == "failed")


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PATHS), GARBAGE)
def test_invalid_file_affects_only_its_own_target(path: str, garbage: str) -> None:
    assume(not path.endswith(SHARED_FILES))
    machine = whole_machine()
    machine.files[path] = garbage
    healthy, damaged = _rounds(whole_machine()), _rounds(machine)
    changed = [
        target
        for name in healthy
        for target in healthy[name]
        if healthy[name][target] != damaged[name].get(target)
    ]
    assert len(changed) <= 1, changed


@pytest.mark.parametrize("failure", [StalledError, HungError])
def test_stalled_read_ends_the_round_after_the_earlier_observations(failure: type[Exception]) -> None:
    machine = whole_machine()
    path = f"{test_infiniband.CLASS}/rdmap16s0/fw_ver"
    machine.errors[path] = failure(path)
    round_ = InfinibandSource().read(machine)
    assert next(round_).target == "port/mlx5_0/1"
    with pytest.raises(failure):
        next(round_)


NAMES = [source.name for source in SOURCES]


def test_source_has_the_name_of_its_module() -> None:
    assert [source.__module__.rpartition(".")[2] for source in SOURCES] == NAMES
    assert sorted(NAMES) == NAMES
    assert {"host", "maintenance", "nvml", "observations"} <= set(NAMES)


def test_sources_with_log_patterns_come_last_and_each_call_returns_new_instances() -> None:
    first, second = all_sources(()), all_sources(())
    assert [source.name for source in first] == [*NAMES, "kmsg"]
    assert not {id(source) for source in first} & {id(source) for source in second}


def test_the_order_of_imports_does_not_change_the_sources() -> None:
    program = (
        "import nodeguard.sources.services, nodeguard.sources.kmsg, nodeguard.sources.clock\n"
        "from nodeguard.sources.registry import all_sources\n"
        "print(*(source.name for source in all_sources(())))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == [*NAMES, "kmsg"]
