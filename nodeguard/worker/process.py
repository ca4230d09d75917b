"""WorkerProcess: the parent's side of one worker process: start, requests, log and end."""

from __future__ import annotations

import fcntl
import os
import select
import sys
from signal import SIGKILL
from typing import Any

import msgspec

import nodeguard
from nodeguard.worker.result import FileRequest

# The only environment variable for the worker: a Python that a site built itself, or loads as a module, may
# not start without it.
_ENVIRONMENT = ("LD_LIBRARY_PATH",)
# The worker gets the module path of this process as arguments: `site`, with the additions of an editable
# install, takes most of the start time of Python.
_START = "import sys; sys.path += sys.argv[5:]; from nodeguard.worker.child import main; main()"


def above_standard(descriptor: int) -> int:
    """Move a descriptor above those of a worker, so that no dup2 overwrites the source of another."""
    moved: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 5)
    os.close(descriptor)
    return moved


def _module_path() -> list[str]:
    ours = os.path.dirname(os.path.dirname(os.path.abspath(nodeguard.__file__)))
    return list(dict.fromkeys((ours, *filter(os.path.isabs, sys.path))))


class WorkerProcess:
    """A worker process, started at once. Raises OSError if it cannot be started.

    lane: `nvml` or `filesystem`. library: see nvml_library. root: where the machine's root is mounted.
    events: a descriptor for NVML events; None for none.
    """

    def __init__(self, lane: str, library: str = "", root: str = "", *, events: int | None = None) -> None:
        self._status: int | None = None
        self._read = 0
        self._log = above_standard(os.memfd_create("nodeguard-worker"))
        worker_rounds, self._rounds = map(above_standard, os.pipe())
        self._done, worker_done = map(above_standard, os.pipe())
        os.set_blocking(self._done, False)
        copies = [
            (worker_rounds, 0),
            (worker_done, 1),
            (self._log, 3),
            *([] if events is None else [(events, 4)]),
        ]
        actions: list[Any] = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in copies]
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
        has_events = "" if events is None else "events"
        arguments = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            _START,
            lane,
            library,
            root,
            has_events,
            *_module_path(),
        ]
        try:
            # A process group of its own: only the parent handles an interrupt from a terminal.
            environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            self._pid = os.posix_spawn(
                sys.executable, arguments, environment, file_actions=actions, setpgroup=0, setsigmask=()
            )
            self._pidfd = self._watch()
        except OSError:
            for descriptor in (self._log, self._rounds, self._done):
                os.close(descriptor)
            raise
        finally:
            os.close(worker_rounds)
            os.close(worker_done)

    def _watch(self) -> int:
        try:
            return os.pidfd_open(self._pid)
        except OSError:
            os.kill(self._pid, SIGKILL)
            os.waitpid(self._pid, 0)
            raise

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that become readable when a round has ended and when the process has ended.

        Both are needed: a dying process closes its pipe before its devices, and can block while it closes
        those.
        """
        return (self._done, self._pidfd)

    def request(self, skip: list[int], mounts: tuple[str, ...], file: FileRequest | None = None) -> None:
        """Begin a round. The request goes through memory: a blocked worker cannot block this process."""
        request = {"skip": skip, "mounts": mounts, "file": file.call if file else ""}
        data = file.data if file else b""
        os.ftruncate(self._log, 0)
        os.lseek(self._log, 0, os.SEEK_SET)
        self._read = os.write(self._log, msgspec.json.encode(request) + b"\n" + data)
        try:
            os.write(self._rounds, b".")
        except BrokenPipeError:
            return  # it has just died, and `status` will report it

    def take_round_end(self) -> bool:
        """Return whether a round has ended; true once for each round."""
        try:
            return os.read(self._done, 1) != b""
        except BlockingIOError:
            return False

    def status(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def read_log(self) -> bytes:
        """Return what was added to the log of this round since the last call."""
        data = os.pread(self._log, max(0, os.fstat(self._log).st_size - self._read), self._read)
        self._read += len(data)
        return data

    def kill(self) -> None:
        """Send SIGKILL, which does not end a process that is blocked in the kernel."""
        if self.status() is None:
            os.kill(self._pid, SIGKILL)

    def close(self, grace: float) -> None:
        """Kill the process, wait up to `grace` seconds for its end, and close all descriptors in any case."""
        self.kill()
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        ended.poll(grace * 1000)
        self.status()
        for descriptor in (self._log, self._rounds, self._done, self._pidfd):
            os.close(descriptor)
