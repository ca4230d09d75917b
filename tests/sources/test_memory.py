from __future__ import annotations

import errno

import pytest

from nodeguard.model.target import NODE
from nodeguard.sources.memory import MemorySource
from tests.sources.fake_machine import FakeMachine, ThisMachine, by_target

MEMINFO = """MemTotal:       2113456784 kB
MemFree:         103456784 kB
MemAvailable:   1056728392 kB
Buffers:              1234 kB
HardwareCorrupted:       8 kB
HugePages_Total:       0
"""
PRESSURE = """some avg10=0.00 avg60=1.50 avg300=0.40 total=12345
full avg10=0.00 avg60=0.25 avg300=0.10 total=2345
"""
FILES = {"/proc/meminfo": MEMINFO, "/proc/pressure/memory": PRESSURE}
MC = "/sys/devices/system/edac/mc"


def _dimm(path: str, corrected: int, uncorrected: int, label: str = "") -> dict[str, str]:
    return {
        f"{MC}/{path}/dimm_ce_count": f"{corrected}\n",
        f"{MC}/{path}/dimm_ue_count": f"{uncorrected}\n",
        f"{MC}/{path}/dimm_label": f"{label}\n",
        f"{MC}/{path}/dimm_location": "channel 0 slot 0\n",
    }


def test_node_has_its_memory_signals() -> None:
    observation = by_target(MemorySource(), FakeMachine(FILES))[NODE]
    assert observation.signals == {
        "memory.total": 2113456784 * 1024,
        "memory.available_ratio": 0.5,
        "memory.hardware_corrupted": 8192,
        "memory.pressure.some": pytest.approx(0.015),
        "memory.pressure.full": pytest.approx(0.0025),
    }
    assert observation.unreadable == {}


def test_old_kernel_without_some_files_omits_their_signals() -> None:
    observation = by_target(
        MemorySource(), FakeMachine({"/proc/meminfo": "MemTotal: 1024 kB\nMemFree: 512 kB\n"})
    )
    assert observation[NODE].signals == {"memory.total": 1048576}
    assert observation[NODE].unreadable == {}


def test_disabled_pressure_accounting_is_not_applicable() -> None:
    errors = {"/proc/pressure/memory": errno.EOPNOTSUPP}
    observation = by_target(MemorySource(), FakeMachine({"/proc/meminfo": MEMINFO}, errors=errors))[NODE]
    assert not [
        name for name in observation.signals.keys() | observation.unreadable.keys() if "pressure" in name
    ]


def test_refused_pressure_file_is_unread() -> None:
    errors = {"/proc/pressure/memory": errno.EACCES}
    observation = by_target(MemorySource(), FakeMachine({"/proc/meminfo": MEMINFO}, errors=errors))[NODE]
    assert observation.unreadable.keys() == {"memory.pressure.some", "memory.pressure.full"}


def test_invalid_value_affects_only_its_own_signal() -> None:
    files = {
        "/proc/meminfo": MEMINFO.replace("2113456784 kB", "much"),
        "/proc/pressure/memory": "some avg10=0.00\nfull avg60=0.5\n",
    }
    observation = by_target(MemorySource(), FakeMachine(files))[NODE]
    assert observation.signals == {"memory.hardware_corrupted": 8192, "memory.pressure.full": 0.005}
    assert observation.unreadable == {
        "memory.total": "/proc/meminfo reads 'much'",
        "memory.available_ratio": "the total is unknown",
        "memory.pressure.some": "/proc/pressure/memory reads 'some avg10=0.00'",
    }


def test_invalid_meminfo_is_unread() -> None:
    assert "memory.total" in by_target(MemorySource(), FakeMachine({"/proc/meminfo": "xyz"}))[NODE].unreadable


def test_errors_are_counted_for_each_dimm() -> None:
    edac = {
        **_dimm("mc0/dimm0", 3, 0, "CPU_SrcID#0_MC#0_Chan#0_DIMM#0"),
        **_dimm("mc0/rank12", 0, 1),
        f"{MC}/mc0/ce_count": "3\n",
        f"{MC}/mc0/ue_count": "1\n",
        f"{MC}/mc0/csrow0/ce_count": "3\n",
        f"{MC}/power/control": "auto\n",
    }
    observations = by_target(MemorySource(), FakeMachine({**FILES, **edac}))
    assert observations.keys() == {NODE, "dimm/mc0/dimm0", "dimm/mc0/rank12"}
    first = observations["dimm/mc0/dimm0"]
    assert first.signals == {"dimm.corrected": 3, "dimm.uncorrected": 0}
    assert first.component is not None
    assert first.component.id == "CPU_SrcID#0_MC#0_Chan#0_DIMM#0"
    assert observations["dimm/mc0/rank12"].component is None


def test_errors_of_an_unknown_dimm_belong_to_the_controller() -> None:
    edac = {
        **_dimm("mc0/dimm0", 0, 0),
        f"{MC}/mc0/ce_count": "41\n",
        f"{MC}/mc0/ce_noinfo_count": "41\n",
        f"{MC}/mc0/ue_noinfo_count": "2\n",
    }
    observations = by_target(MemorySource(), FakeMachine({**FILES, **edac}))
    assert observations["dimm/mc0"].signals == {"dimm.corrected": 41, "dimm.uncorrected": 2}
    assert observations["dimm/mc0/dimm0"].signals == {"dimm.corrected": 0, "dimm.uncorrected": 0}


def test_controller_without_counts_by_dimm() -> None:
    edac = {f"{MC}/mc1/ce_count": "7\n", f"{MC}/mc1/ue_count": "0\n", f"{MC}/mc1/dimm0/dimm_label": "A1\n"}
    observations = by_target(MemorySource(), FakeMachine({**FILES, **edac}))
    assert observations.keys() == {NODE, "dimm/mc1"}
    assert observations["dimm/mc1"].signals == {"dimm.corrected": 7, "dimm.uncorrected": 0}


def test_refused_error_count_is_unread_only_for_its_dimm() -> None:
    machine = FakeMachine(
        {**FILES, **_dimm("mc0/dimm0", 3, 0)}, errors={f"{MC}/mc0/dimm0/dimm_ue_count": errno.EIO}
    )
    observation = by_target(MemorySource(), machine)["dimm/mc0/dimm0"]
    assert observation.signals == {"dimm.corrected": 3}
    assert observation.unreadable == {"dimm.uncorrected": "Input/output error (EIO)"}


def test_this_machine() -> None:
    observation = by_target(MemorySource(), ThisMachine())[NODE]
    assert 0 < float(observation.signals["memory.available_ratio"]) < 1
