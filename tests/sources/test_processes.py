from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.instant import Instant
from nodeguard.model.target import NODE
from nodeguard.sources.processes import ProcessesSource, ProcessStat, parse_stat
from tests.sources.fake_machine import FakeMachine, ThisMachine, by_target


def stat(pid: int, comm: str, state: str = "S", start: int = 100) -> str:
    """/proc/PID/stat of Linux 6.8: start is field 22 of 52."""
    between = "1 1 1 0 -1 4194560 100 0 0 0 5 3 0 0 20 0 1 0"
    return f"{pid} ({comm}) {state} {between} {start} 169803776 3328 18446744073709551615 {'0 ' * 26}0\n"


def _machine(*processes: tuple[int, str, str], **more: Any) -> FakeMachine:
    return FakeMachine(
        {f"/proc/{pid}/stat": stat(pid, comm, state) for pid, comm, state in processes}, **more
    )


CALM = ((1, "systemd", "S"), (2, "kthreadd", "S"), (7, "kworker/0:0-events", "I"), (90, "python3", "R"))


def test_without_blocked_processes_all_values_are_zero() -> None:
    observation = by_target(ProcessesSource(), _machine(*CALM))[NODE]
    assert observation.signals == {
        "process.blocked": 0,
        "process.blocked_oldest": 0.0,
        "process.zombies": 0,
        "process.zombies_oldest": 0.0,
    }


def test_blocked_time_is_measured_for_the_same_process() -> None:
    source = ProcessesSource()
    machine = _machine(*CALM, (500, "nvidia-smi", "D"), (600, "defunct", "Z"))
    first = by_target(source, machine)[NODE].signals
    assert (first["process.blocked"], first["process.blocked_oldest"]) == (1, 0.0)
    machine.later(60)
    machine.files["/proc/501/stat"] = stat(501, "cat", "D")
    second = by_target(source, machine)[NODE].signals
    assert (second["process.blocked"], second["process.blocked_oldest"]) == (2, 60.0)
    assert (second["process.zombies"], second["process.zombies_oldest"]) == (1, 60.0)
    assert second["process.blocked_names"] == "nvidia-smi(500), cat(501)"
    # The same number, but another process.
    machine.later(60)
    machine.files["/proc/500/stat"] = stat(500, "nvidia-smi", "D", start=99_999)
    third = by_target(source, machine)[NODE].signals
    assert third["process.blocked_oldest"] == 60.0
    assert third["process.blocked_names"] == "cat(501), nvidia-smi(500)"


def test_process_that_recovers_starts_from_zero() -> None:
    source, machine = ProcessesSource(), _machine(*CALM, (500, "dd", "D"))
    by_target(source, machine)
    for state, seconds in (("S", 0.0), ("D", 0.0)):
        machine.later(60)
        machine.files["/proc/500/stat"] = stat(500, "dd", state)
        assert by_target(source, machine)[NODE].signals["process.blocked_oldest"] == seconds


def test_blocked_time_restarts_after_a_reboot() -> None:
    source, machine = ProcessesSource(), _machine((500, "dd", "D"))
    by_target(source, machine)
    machine.instant = Instant(machine.instant.wall + 600, 60.0, "boot-2")
    assert by_target(source, machine)[NODE].signals["process.blocked_oldest"] == 0.0


def test_blocked_names_have_the_kernel_function() -> None:
    machine = _machine(*((pid, "nv open) (x", "D") for pid in range(500, 510)))
    machine.files |= {"/proc/500/wchan": "uvm_va_space_mm_shutdown", "/proc/501/wchan": "0"}
    names = by_target(ProcessesSource(), machine)[NODE].signals["process.blocked_names"]
    assert str(names).endswith(", nv open) (x(504) and 5 more")
    assert str(names).startswith("nv open) (x(500) in uvm_va_space_mm_shutdown, nv open) (x(501), nv")
    assert str(names).count("nv open") == 5


def test_wait_channel_is_read_only_for_blocked_processes() -> None:
    machine = _machine(*CALM, (500, "dd", "D"))
    by_target(ProcessesSource(), machine)
    assert [path for path in machine.asked if path.endswith("wchan")] == ["/proc/500/wchan"]
    assert not [path for path in machine.asked if path.endswith(("cmdline", "environ", "maps", "status"))]


def test_process_name_is_reported_without_control_characters() -> None:
    names = by_target(ProcessesSource(), _machine((500, "a\x1b[2Jb\nc", "D")))[NODE].signals[
        "process.blocked_names"
    ]
    assert names == "a?[2Jb?c(500)"


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESRCH])
def test_processes_end_while_they_are_read(code: int) -> None:
    machine = _machine(*CALM, (500, "dd", "D"), errors={"/proc/500/stat": code})
    assert by_target(ProcessesSource(), machine)[NODE].signals["process.blocked"] == 0


def test_hidden_processes_make_the_count_unread() -> None:
    refused = _machine(*CALM, (500, "dd", "D"), errors={"/proc/1/stat": errno.EPERM})
    missing = _machine((90, "python3", "R"), links={"/proc/thread-self": "90/task/90"})
    for machine in (refused, missing):
        observation = by_target(ProcessesSource(), machine)[NODE]
        assert observation.signals == {}
        assert observation.unreadable.keys() == ProcessesSource.signals.keys()
        assert "run as root" in observation.unreadable["process.blocked"]


def test_invalid_process_status_makes_the_count_unread() -> None:
    machine = _machine(*CALM)
    machine.files["/proc/90/stat"] = "90 python3 R\n"
    assert "/proc/90/stat reads" in by_target(ProcessesSource(), machine)[NODE].unreadable["process.blocked"]


@given(st.integers(1, 2**22), st.text(max_size=16), st.sampled_from("RSDZTtXxKWPI"), st.integers(0, 2**63))
def test_any_name_can_be_read(pid: int, comm: str, state: str, start: int) -> None:
    assert parse_stat(stat(pid, comm, state, start)) == ProcessStat(pid, comm, state, start, 1)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        stat = parse_stat(text)
    except ValueError:
        return
    assert f"({stat.comm})" in text


def test_this_machine() -> None:
    assert int(by_target(ProcessesSource(), ThisMachine())[NODE].signals["process.blocked"]) >= 0
