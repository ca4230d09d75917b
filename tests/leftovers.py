"""What tests may leave behind on the machine: files, processes and mounts outside the directories of pytest."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from tests.paths import ROOT

# Directories of the system in which nodeguard has directories of its own, by default.
SYSTEM = (Path("/etc"), Path("/run"), Path("/var/lib"))

# Set for a run of pytest, for the processes that its tests start: the directory of its temporary files.
MARK = "NODEGUARD_TEST_RUN"

# Caches of tools in the checkout.
_CACHES = frozenset(
    {"build", ".hypothesis", ".import_linter_cache", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)

_CLONE_NEWNS, _MS_REC, _MS_SLAVE = 0x00020000, 0x4000, 0x80000


def keep_mounts() -> None:
    """Let mounts of this process end with it, however it ends. Without the right to mount there is nothing to do.

    A file system of a run that was killed would be a dead mount of the machine, and a finding for other runs.
    """
    libc = ctypes.CDLL(None)
    if libc.unshare(_CLONE_NEWNS) == 0:
        libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None)


def system_files(parents: Iterable[Path] = SYSTEM) -> frozenset[str]:
    """Return nodeguard's files and directories of the system.

    It is called before and after each test: a directory is listed again only if its entries have changed.
    """
    tops = [path for parent in parents for path in _own_entries(parent, parent.stat().st_mtime_ns)]
    return frozenset(str(path) for top in tops for path in (top, *top.glob("*")))


@lru_cache(maxsize=len(SYSTEM))
def _own_entries(parent: Path, _changed_at: int) -> list[Path]:
    return list(parent.glob("nodeguard*"))


def checkout_entries(root: Path = ROOT) -> frozenset[str]:
    """Return the names in the checkout's own directory, without the caches that Git ignores there."""
    return frozenset(path.name for path in root.iterdir()) - _CACHES


def processes(run: str) -> list[str]:
    """Return the command lines of processes that a run of pytest has started, zombies left out.

    A worker of nodeguard has no such environment: one without a parent counts, too.
    """
    marked = f"{MARK}={run}".encode()
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended, or belongs to another user
            continue
        orphan = parent == 1 and command.startswith(sys.executable) and "nodeguard.worker" in command
        started = marked in environment or parent == os.getpid() or orphan
        if started and command and int(process.name) != os.getpid():
            commands.append(f"{process.name}: {command}")
    return commands


def mounts(below: Iterable[Path], table: str = "/proc/self/mountinfo") -> list[str]:
    """Return the mount points below some directories. table: as proc_pid_mountinfo(5) describes it."""
    directories = [os.path.realpath(directory) for directory in below]
    return [
        point
        for point in _mount_points(table)
        if any(Path(point).is_relative_to(directory) for directory in directories)
    ]


def _mount_points(table: str) -> Iterator[str]:
    for line in Path(table).read_text().splitlines():
        yield line.split()[4].replace(r"\040", " ")
