"""One worker process, as its parent holds it."""

from __future__ import annotations

import fcntl
import os
import select
import sys
from signal import SIGKILL
from typing import Any

import msgspec

import nodeguard
from nodeguard.worker.file_request import FileRequest

# Of the environment only this reaches the worker: a Python that a site has built itself, or loads as a
# module, may not start without it.
_KEPT = ("LD_LIBRARY_PATH",)
# The worker is told where this process finds its modules, so that it
# need not work that out again: `site`, with what an editable install adds to it, is most of a Python's start.
_START = "import sys; sys.path += sys.argv[5:]; from nodeguard.worker.child import main; main()"


def above_standard(descriptor: int) -> int:
    """Move a descriptor above those that a worker gets: no dup2 can then overwrite another's source."""
    moved: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 5)
    os.close(descriptor)
    return moved


def _module_path() -> list[str]:
    ours = os.path.dirname(os.path.dirname(os.path.abspath(nodeguard.__file__)))
    return list(dict.fromkeys((ours, *filter(os.path.isabs, sys.path))))


class WorkerProcess:
    """A worker process, started at once. Raises OSError where it cannot be.

    lane: `nvml` or `filesystem`. library: see nvml_library. root: where the machine's root is mounted. debug:
    whether its standard error is ours. events: a descriptor to which it may write what it hears unasked; None
    where nobody listens.
    """

    def __init__(
        self,
        lane: str,
        library: str = "",
        root: str = "",
        *,
        debug: bool = False,
        events: int | None = None,
    ) -> None:
        self._status: int | None = None
        self._read = 0
        self._log = above_standard(os.memfd_create("nodeguard-worker"))
        theirs, self._rounds = map(above_standard, os.pipe())
        self._done, theirs_done = map(above_standard, os.pipe())
        os.set_blocking(self._done, False)
        copies = [(theirs, 0), (theirs_done, 1), (self._log, 3), *([] if events is None else [(events, 4)])]
        actions: list[Any] = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in copies]
        if not debug:
            actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
        told = "" if events is None else "events"
        arguments = [sys.executable, "-I", "-S", "-c", _START, lane, library, root, told, *_module_path()]
        try:
            # A process group of its own: an interrupt typed at a terminal is the parent's to handle.
            kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
            self._pid = os.posix_spawn(
                sys.executable, arguments, kept, file_actions=actions, setpgroup=0, setsigmask=()
            )
            self._life = self._watch()
        except OSError:
            for descriptor in (self._log, self._rounds, self._done):
                os.close(descriptor)
            raise
        finally:
            os.close(theirs)
            os.close(theirs_done)

    def _watch(self) -> int:
        try:
            return os.pidfd_open(self._pid)
        except OSError:
            os.kill(self._pid, SIGKILL)
            os.waitpid(self._pid, 0)
            raise

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What becomes readable when a round is over and when the process has ended.

        Both are needed: a process that dies closes its pipe before its devices, where it can get stuck.
        """
        return (self._done, self._life)

    def request(self, resting: list[int], mounts: tuple[str, ...], file: FileRequest | None = None) -> None:
        """Begin a round. The request goes through memory, so that no stuck reader can block this process."""
        wanted = {"resting": resting, "mounts": mounts, "file": file.call if file else ""}
        data = file.data if file else b""
        os.ftruncate(self._log, 0)
        os.lseek(self._log, 0, os.SEEK_SET)
        self._read = os.write(self._log, msgspec.json.encode(wanted) + b"\n" + data)
        try:
            os.write(self._rounds, b".")
        except BrokenPipeError:
            return  # it died just now, which `status` tells

    def take_round_end(self) -> bool:
        """Whether a round is over; says so once for each."""
        try:
            return os.read(self._done, 1) != b""
        except BlockingIOError:
            return False

    def status(self) -> int | None:
        """None while the process lives, then its exit status, negative for a signal."""
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def read_log(self) -> bytes:
        """What the log of this round has gained since the last look."""
        gained = os.pread(self._log, max(0, os.fstat(self._log).st_size - self._read), self._read)
        self._read += len(gained)
        return gained

    def kill(self) -> None:
        """SIGKILL, which does not end a process that the kernel holds."""
        if self.status() is None:
            os.kill(self._pid, SIGKILL)

    def close(self, grace: float) -> None:
        """Kill it, give it so many seconds to be gone, and let go of it in any case."""
        self.kill()
        gone = select.poll()
        gone.register(self._life, select.POLLIN)
        gone.poll(grace * 1000)
        self.status()
        for descriptor in (self._log, self._rounds, self._done, self._life):
            os.close(descriptor)
