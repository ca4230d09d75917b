"""The owner of a process, and the entry that names it in signals and fields of events. Pure."""

from __future__ import annotations

from math import inf

from msgspec import Struct


class ProcessOwner(Struct, frozen=True, array_like=True):
    """The owner of a process. Keys are opaque: equal for equal owners in one boot, and empty if not known."""

    started: float = inf
    """Seconds from the boot to the start of the process; infinity if not known."""

    user: str = ""
    job: str = ""

    parent: str = ""
    """The process of the job that started it. Processes with one parent can be the workers of a program."""


def owner_entry(pid: int, owner: ProcessOwner | None) -> str:
    """Return `PID:STARTED:USER:JOB:PARENT`, or `PID` for an unknown owner."""
    if owner is None:
        return str(pid)
    return f"{pid}:{owner.started:.2f}:{owner.user}:{owner.job}:{owner.parent}"


def parse_owner_entry(entry: str) -> tuple[int, ProcessOwner] | None:
    """Return the process and the owner of an entry; None if it has no owner."""
    pid, *owner = entry.split(":")
    if len(owner) != 4:
        return None
    started, user, job, parent = owner
    return int(pid), ProcessOwner(float(started), user, job, parent)
