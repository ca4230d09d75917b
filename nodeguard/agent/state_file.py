"""The file that holds the agent's memory, kept through a lane: a disk that hangs, hangs the lane alone.

What is wrong with it is told in words, never raised: file, what, remedy. The agent then goes on with what it
has in memory.
"""

from __future__ import annotations

import math

from nodeguard.agent.memory import Memory, UnusableMemoryError, decoded, encoded, resumed
from nodeguard.model.instant import Instant
from nodeguard.worker.file import FileCall, outcome
from nodeguard.worker.lane import Lane

_NAME = "memory"

_FORGETS = "until then a restart of the agent forgets what came after the last write"
_REMEDIES = {
    "ENOSPC": ("the disk is full", "free space or inodes on it"),
    "EDQUOT": ("the disk quota is used up", "free space or raise the quota"),
    "EROFS": ("the file system is read-only", "make it writable, or name another directory with --state"),
    "EACCES": ("permission denied", "let the agent's user write there, or name another with --state"),
    "EPERM": ("not permitted", "let the agent's user write there, or name another with --state"),
    "ENOENT": ("the directory above it does not exist", "make it, or name another with --state"),
    "ENOTDIR": ("part of its path is no directory", "name another with --state"),
    "EEXIST": ("something stands in its place that is no file", "remove it"),
    "ELOOP": ("its path goes round in circles of links", "name another directory with --state"),
    "EINVAL": ("it is no plain file", "remove it"),
    "EISDIR": ("it is a directory", "remove it, or name another with --state"),
    "EIO": ("input/output error", "see the kernel log for its disk, and replace that"),
    "EFBIG": ("no file may be as long there", "raise the limit on the length of files"),
}
_SILENT = "see the kernel log for its disk or file server; restart the agent once it answers"


class StateFile:
    """The memory's file in a directory.

    directory: absolute; made where only it is missing. lane: of file systems, with no other use.
    """

    def __init__(self, directory: str, lane: Lane) -> None:
        self.path = f"{directory.rstrip('/')}/{_NAME}"
        self._lane = lane

    def load(self, now: Instant, within: float = math.inf) -> tuple[Memory, str]:
        """What is remembered from before, and what is wrong with it; empty where nothing is.

        A file that cannot be understood is set aside, a few at most. within: seconds for each call.
        """
        wanted = FileCall("read", self.path)
        told = outcome(wanted, self._lane.round(within=within, file=wanted))
        if told.failed == "ENOENT":
            return Memory(), ""
        if told.failed == "EFBIG":
            return Memory(), self._set_aside("is longer than any that the agent writes", within)
        if told.failed:
            return Memory(), self._trouble("cannot be read", told.failed)
        try:
            memory, wrong = resumed(decoded(told.result), now)
        except UnusableMemoryError as unusable:
            return Memory(), self._set_aside(str(unusable), within)
        return memory, wrong and f"{self.path} {wrong}: it is forgotten, except for the inventory"

    def save(self, memory: Memory, within: float = math.inf) -> str:
        """Write a memory down. Returns what is wrong, empty where it is on the disk."""
        try:
            wanted = FileCall("write", self.path, encoded(memory))
        except UnusableMemoryError as unusable:
            return f"{self.path}: the memory {unusable}: please report it; {_FORGETS}"
        failed = outcome(wanted, self._lane.round(within=within, file=wanted)).failed
        return self._trouble("cannot be written", failed) if failed else ""

    def let_go(self) -> None:
        """Keep no process until the next call."""
        self._lane.let_go()

    def close(self) -> None:
        """End what is under way, and wait for none of it; there is no next call."""
        self._lane.close(0.0)

    def _set_aside(self, wrong: str, within: float) -> str:
        wanted = FileCall("set-aside", self.path)
        told = outcome(wanted, self._lane.round(within=within, file=wanted))
        lost = f"{self.path} {wrong}; what the agent knew of the past is forgotten"
        if told.failed:
            return f"{lost}; it could not be set aside ({told.failed}): remove it"
        return f"{lost}: it was set aside as {told.result}; remove that once nobody needs it"

    def _trouble(self, what: str, failed: str) -> str:
        why, remedy = _REMEDIES.get(failed, (failed, _SILENT))
        return f"{self.path} {what}: {why}: {remedy}; {_FORGETS}"
