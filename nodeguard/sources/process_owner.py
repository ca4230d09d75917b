"""Owners of processes: the user and the container or job of each, as opaque keys; no name is kept.

The files that are read do not take the lock of the process's memory, so they do not block on a process that
hangs (Linux fs/proc/array.c, kernel/cgroup/cgroup.c).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodeguard.bundle.process_files import opaque_key, real_user
from nodeguard.model.control_group import job_path
from nodeguard.model.observation import Event
from nodeguard.model.process_owner import ProcessOwner, owner_entry
from nodeguard.sources.machine import Machine
from nodeguard.sources.processes import parse_stat
from nodeguard.sources.readings import read_text

# Processes of one GPU that are listed; a GPU that is shared by time slices has a few.
_MAX_LISTED = 64
# Processes that are read for the Xids of one reading of the log: a storm must not delay the reading.
_MAX_LOGGED = 16
_XID_PROCESS = re.compile(r"pid='?(\d{1,10})\b")
XID_LINE = "gpu.xid.line"

# Clock ticks of /proc in a second: USER_HZ of Linux, 100 on all architectures with an NVIDIA driver.
_TICKS = 100.0
# Seconds by which the clock of the kernel log may be behind that of /proc.
_SLACK = 2.0
# Bit of a kernel thread in the flags of /proc/PID/stat (Linux include/linux/sched.h, PF_KTHREAD). Process 2
# is a kernel thread only in the initial PID namespace, and the kernel log has the numbers of that one.
_KERNEL_THREAD = 0x00200000


def read_owner(machine: Machine, pid: int) -> ProcessOwner | None:
    """Return a running process's owner; None if the process has ended or cannot be read."""
    # The main thread's stat: source `processes` reads that of the process, and records it by other rules.
    files = (f"/proc/{pid}/{name}" for name in ("status", "cgroup", f"task/{pid}/stat"))
    texts = (read_text(machine, file) for file in files)
    status, cgroup, stat = (text if isinstance(text, str) else "" for text in texts)
    user, job = real_user(status), job_path(cgroup)
    try:
        process = parse_stat(stat)
    except ValueError:
        return None
    if not (user and job):
        return None
    salt = machine.now().boot_id.encode()[:64]
    keys = (opaque_key(text, salt) for text in (user, job, f"{process.parent} {job}"))
    return ProcessOwner(process.start / _TICKS, *keys)


class LoggedProcesses:
    """Adds to Xids of the kernel log the owner of the process that each names, while the process still runs.

    Make one for each reading of the log. It reads at most _MAX_LOGGED processes.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._owners: dict[int, ProcessOwner | None] = {}

    def add_owner(self, event: Event) -> Event:
        """Return an event with the fields `pid` and, if it is known, `owner`, as GpuProcesses lists it."""
        match = _XID_PROCESS.match(str(event.fields.get("rest", "")))
        if event.signal != XID_LINE or match is None:
            return event
        pid = int(match[1])
        if pid not in self._owners and len(self._owners) < _MAX_LOGGED:
            # In a container, the numbers of /proc are not those of the log.
            is_host = bool(self._owners) or _has_host_numbers(self._machine)
            self._owners[pid] = read_owner(self._machine, pid) if is_host else None
        owner = self._owners.get(pid)
        # A later start: the number belongs to another process now.
        if owner is None or owner.started > event.at + _SLACK:
            return replace(event, fields={**event.fields, "pid": pid})
        return replace(event, fields={**event.fields, "pid": pid, "owner": owner_entry(pid, owner)})


class GpuProcesses:
    """Lists the processes of GPUs with their owners. A process is read once, when it is first listed."""

    def __init__(self) -> None:
        self._owners: dict[str, dict[int, ProcessOwner | None]] = {}

    def describe(self, machine: Machine, gpu: str, calls: Mapping[str, Any]) -> str | None:
        """Return `PID:STARTED:USER:JOB:PARENT` of each process of a GPU, `PID` for an unknown owner.

        calls: results of NVML of the GPU. None if they list no processes.
        """
        listed = next((calls[call] for call in _CALLS if isinstance(calls.get(call), list)), None)
        if listed is None:
            return None
        before = self._owners.get(gpu, {})
        now: dict[int, ProcessOwner | None] = {}
        for process in listed[:_MAX_LISTED]:
            pid = process.get("pid") if isinstance(process, dict) else None
            if type(pid) is int:
                now[pid] = before.get(pid) or read_owner(machine, pid)
        self._owners[gpu] = now
        return " ".join(owner_entry(pid, owner) for pid, owner in sorted(now.items()))


_CALLS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses")


def _has_host_numbers(machine: Machine) -> bool:
    """Return whether /proc numbers processes as the kernel log does."""
    text = read_text(machine, "/proc/2/stat")
    fields = text.rpartition(")")[2].split() if isinstance(text, str) else []
    return len(fields) > 6 and fields[6].isdigit() and bool(int(fields[6]) & _KERNEL_THREAD)
