"""The state file, and when the agent writes it. A worker process reads and writes it.

A disk that hangs blocks only the worker. The methods of StateFile return an error as text (file, reason,
remedy) and never raise one: the agent continues without the file.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress

from nodeguard.agent.state import AgentState, UnusableStateError, decode_state, encode_state, resume_state
from nodeguard.model.instant import Instant
from nodeguard.worker.lane import WorkerLane
from nodeguard.worker.result import FileRequest, file_result

_NAME = "state"

_LOSS = "until then a restart of the agent loses what came after the last write"
_REMEDIES = {
    "ENOSPC": ("the disk is full", "free space or inodes on it"),
    "EDQUOT": ("the disk quota is used up", "free space or raise the quota"),
    "EROFS": ("the file system is read-only", "make it writable, or name another directory with --state"),
    "EACCES": ("permission denied", "let the agent's user write there, or name another with --state"),
    "EPERM": ("not permitted", "let the agent's user write there, or name another with --state"),
    "ENOENT": ("the directory above it does not exist", "make it, or name another with --state"),
    "ENOTDIR": ("part of its path is no directory", "name another with --state"),
    "EEXIST": ("its path exists and is not a regular file", "remove it"),
    "ELOOP": ("its path has a loop of symbolic links", "name another directory with --state"),
    "EINVAL": ("it is not a regular file", "remove it"),
    "EISDIR": ("it is a directory", "remove it, or name another with --state"),
    "EIO": ("input/output error", "see the kernel log for its disk, and replace that"),
    "EFBIG": ("it exceeds the limit on file sizes", "raise that limit"),
}
_NO_ANSWER = "see the kernel log for its disk or file server; restart the agent once it answers"

# Seconds. Important changes are written at once, those within _GAP of each other together. What only
# progresses, such as counters, is written after _INTERVAL: each write starts a process that ends with it.
_GAP = 1.0
_INTERVAL = 300.0
# Seconds for the last write, at the end of the agent.
_LAST = 1.0


class StateFile:
    """The state file in a directory.

    directory: absolute; it is created if only its last part is missing. lane: the file system worker, which
    nothing else uses.
    """

    def __init__(self, directory: str, lane: WorkerLane) -> None:
        self.path = f"{directory.rstrip('/')}/{_NAME}"
        self.lane = lane

    def load(self, now: Instant, within: float = math.inf) -> tuple[AgentState, str]:
        """Return the stored state and the error; the state is empty if there is none.

        A file that cannot be decoded is renamed, a few at most. within: seconds for each call.
        """
        call = FileRequest("read", self.path)
        result = file_result(call, self.lane.round(within=within, file=call))
        if result.failed == "ENOENT":
            return AgentState(), ""
        if result.failed == "EFBIG":
            return AgentState(), self._set_aside("is longer than any that the agent writes", within)
        if result.failed:
            return AgentState(), self._error("cannot be read", result.failed)
        try:
            state, error = resume_state(decode_state(result.result), now)
        except UnusableStateError as unusable:
            return AgentState(), self._set_aside(str(unusable), within)
        return state, error and f"{self.path} {error}: it is ignored, except for the inventory"

    def save(self, state: AgentState, within: float = math.inf) -> str:
        """Write a state. Return the error, empty once the state is on the disk."""
        try:
            call = FileRequest("write", self.path, encode_state(state))
        except UnusableStateError as unusable:
            return f"{self.path}: the state {unusable}: please report it; {_LOSS}"
        failed = file_result(call, self.lane.round(within=within, file=call)).failed
        return self._error("cannot be written", failed) if failed else ""

    def _set_aside(self, error: str, within: float) -> str:
        call = FileRequest("set-aside", self.path)
        result = file_result(call, self.lane.round(within=within, file=call))
        lost = f"{self.path} {error}; the earlier state of the agent is lost"
        if result.failed:
            return f"{lost}; the file could not be renamed ({result.failed}): remove it"
        return f"{lost}: the file was renamed to {result.result}; remove it if it is not needed"

    def _error(self, problem: str, failed: str) -> str:
        reason, remedy = _REMEDIES.get(failed, (failed, _NO_ANSWER))
        return f"{self.path} {problem}: {reason}: {remedy}; {_LOSS}"


class StateKeeper:
    """Writes the agent state to its file.

    capture: returns the present state, None if there is none yet. on_stored: called after each write with the
    state, and the error, empty once the state is on the disk.
    """

    def __init__(
        self,
        file: StateFile,
        capture: Callable[[], AgentState | None],
        on_stored: Callable[[AgentState, str], None],
    ) -> None:
        self._file = file
        self._capture = capture
        self._on_stored = on_stored
        self._changed = asyncio.Event()
        self._waiting: list[asyncio.Future[str]] = []

    def mark_changed(self) -> None:
        """Have the state written soon: it has a change that must survive a restart."""
        self._changed.set()

    async def save_now(self) -> str:
        """Write the present state. Return the error, empty once the state is on the disk."""
        written: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(written)
        self._changed.set()
        return await written

    async def run(self) -> None:
        """Write whenever that is due, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL):
                    await self._changed.wait()
            self._changed.clear()
            await self._write()
            await asyncio.sleep(_GAP)
            if not self._changed.is_set():
                await asyncio.to_thread(self._file.lane.stop_worker)

    async def end(self) -> None:
        """Write a last time, and close the file."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST):
                await self._write(_LAST)
        self._file.lane.close(0.0)  # without waiting for its call

    async def _write(self, within: float = float("inf")) -> None:
        waiting, self._waiting = self._waiting, []
        state, error = self._capture(), "there is no verdict yet"
        try:
            if state is not None:
                error = await asyncio.to_thread(self._file.save, state, within)
        except Exception as unexpected:  # noqa: BLE001 - the next write may succeed
            reason = f"{type(unexpected).__name__}: {unexpected}"
            error = f"{self._file.path}: please report it: {reason}"
        if state is not None:
            self._on_stored(state, error)
        for written in waiting:
            written.set_result(error)
