"""The file that holds the agent's memory, kept through a lane: a disk that hangs, hangs the lane alone.

What is wrong with it is told in words, never raised: file, what, remedy. The agent then goes on with what it
has in memory.
"""

from __future__ import annotations

import math

from nodeguard.agent.state import AgentState, UnusableStateError, decode_state, encode_state, resume_state
from nodeguard.model.instant import Instant
from nodeguard.worker.file_request import FileRequest, file_result
from nodeguard.worker.lane import WorkerLane

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

    def __init__(self, directory: str, lane: WorkerLane) -> None:
        self.path = f"{directory.rstrip('/')}/{_NAME}"
        self._lane = lane

    def load(self, now: Instant, within: float = math.inf) -> tuple[AgentState, str]:
        """What is remembered from before, and what is wrong with it; empty where nothing is.

        A file that cannot be understood is set aside, a few at most. within: seconds for each call.
        """
        wanted = FileRequest("read", self.path)
        told = file_result(wanted, self._lane.round(within=within, file=wanted))
        if told.failed == "ENOENT":
            return AgentState(), ""
        if told.failed == "EFBIG":
            return AgentState(), self._set_aside("is longer than any that the agent writes", within)
        if told.failed:
            return AgentState(), self._trouble("cannot be read", told.failed)
        try:
            memory, wrong = resume_state(decode_state(told.result), now)
        except UnusableStateError as unusable:
            return AgentState(), self._set_aside(str(unusable), within)
        return memory, wrong and f"{self.path} {wrong}: it is forgotten, except for the inventory"

    def save(self, memory: AgentState, within: float = math.inf) -> str:
        """Write a memory down. Returns what is wrong, empty where it is on the disk."""
        try:
            wanted = FileRequest("write", self.path, encode_state(memory))
        except UnusableStateError as unusable:
            return f"{self.path}: the memory {unusable}: please report it; {_FORGETS}"
        failed = file_result(wanted, self._lane.round(within=within, file=wanted)).failed
        return self._trouble("cannot be written", failed) if failed else ""

    def stop_worker(self) -> None:
        """Keep no process until the next call."""
        self._lane.stop_worker()

    def close(self) -> None:
        """End what is under way, and wait for none of it; there is no next call."""
        self._lane.close(0.0)

    def _set_aside(self, wrong: str, within: float) -> str:
        wanted = FileRequest("set-aside", self.path)
        told = file_result(wanted, self._lane.round(within=within, file=wanted))
        lost = f"{self.path} {wrong}; what the agent knew of the past is forgotten"
        if told.failed:
            return f"{lost}; it could not be set aside ({told.failed}): remove it"
        return f"{lost}: it was set aside as {told.result}; remove that once nobody needs it"

    def _trouble(self, what: str, failed: str) -> str:
        why, remedy = _REMEDIES.get(failed, (failed, _SILENT))
        return f"{self.path} {what}: {why}: {remedy}; {_FORGETS}"
