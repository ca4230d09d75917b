"""Supervisor of the processes of a test: a program that kills them when the test ends in any way. It imports no
module of nodeguard.

    supervisor.py PREFIX PARENT    PREFIX: of the temporary directory that it creates; PARENT: process id of the test

It prints the directory on standard output, then answers each line of JSON with a line:
    {"start": NAME, "command": [ARGUMENT, ...]}    starts a process, which writes to DIRECTORY/NAME.log: its id
    {"ended": NAME}                                its return code, null while it runs
    {"stop": NAME}                                 kills it: null
When standard input closes or PARENT has ended, it kills all processes, and removes the directory and cgroups that have
its name and a hyphen as a prefix.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1

_CGROUPS = Path("/sys/fs/cgroup")

# Seconds in which killed processes leave their cgroups.
_ENDING = 30.0

_libc = ctypes.CDLL(None)


class Supervisor:
    """Starts, polls and kills processes by name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def answer(self, request: dict[str, Any]) -> int | None:
        match request:
            case {"start": name, "command": command}:
                return self._start(name, command)
            case {"ended": name}:
                return self._processes[name].poll()
            case {"stop": name}:
                self._stop([self._processes[name]])
        return None

    def end(self) -> None:
        self._stop(list(self._processes.values()))

    def _start(self, name: str, command: list[str]) -> int:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                start_new_session=True,
                preexec_fn=_bound,  # noqa: PLW1509 - this process has one thread
            )
        return self._processes[name].pid

    @staticmethod
    def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in processes:
            process.wait()


def _bound() -> None:
    """Let the kernel kill the process if the supervisor is killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def remove_cgroups(prefix: str) -> None:
    """Remove cgroups at the top of each hierarchy, with those below, after their processes have ended."""
    tops = [path for pattern in (f"{prefix}*", f"*/{prefix}*") for path in _CGROUPS.glob(pattern)]
    end = time.monotonic() + _ENDING
    for top in tops:
        while top.exists() and time.monotonic() < end:
            for directory, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):  # a process is still ending
                    os.rmdir(directory)
            time.sleep(0.01)


def serve(supervisor: Supervisor, parent: int) -> None:
    """Answer requests until the parent has ended."""
    # A child of the parent may hold this standard input open: watch the parent, too.
    try:
        watched = [os.pidfd_open(parent)]
    except ProcessLookupError:
        return
    except OSError:  # old containers forbid it
        watched = []
    pending = b""
    while True:
        ready, _, _ = select.select([0, *watched], [], [])
        if 0 not in ready or not (read := os.read(0, 1 << 16)):
            return
        *lines, pending = (pending + read).split(b"\n")
        for line in lines:
            os.write(1, json.dumps(supervisor.answer(json.loads(line))).encode() + b"\n")


def main(prefix: str, parent: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit())
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    supervisor = Supervisor(directory)
    try:
        os.write(1, json.dumps(str(directory)).encode() + b"\n")
        serve(supervisor, parent)
    except BrokenPipeError:
        pass
    finally:
        supervisor.end()
        remove_cgroups(f"{directory.name}-")
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
