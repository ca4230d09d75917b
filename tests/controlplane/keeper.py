"""Keeps processes for a test, and ends them with it, however it ends. A program of its own; imports nothing of ours.

    keeper.py PREFIX PARENT    PREFIX: of the temporary directory that it makes; PARENT: the process it serves

Says the directory on standard output, then answers lines of JSON, one for one:
    {"start": NAME, "command": [WORD, ...]}    begins a process, which writes to DIRECTORY/NAME.log: its id
    {"ended": NAME}                            its return code, null while it runs
    {"stop": NAME}                             kills it: null
When standard input closes or PARENT is gone, everything started is killed and the directory removed.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


class Keeper:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._kept: dict[str, subprocess.Popen[bytes]] = {}

    def answer(self, asked: dict[str, Any]) -> int | None:
        match asked:
            case {"start": name, "command": command}:
                return self._start(name, command)
            case {"ended": name}:
                return self._kept[name].poll()
            case {"stop": name}:
                self._stop([self._kept[name]])
        return None

    def end(self) -> None:
        self._stop(list(self._kept.values()))

    def _start(self, name: str, command: list[str]) -> int:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._kept[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                start_new_session=True,
                preexec_fn=_bound,  # noqa: PLW1509 - this process has one thread
            )
        return self._kept[name].pid

    @staticmethod
    def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in processes:
            process.wait()


def _bound() -> None:
    """Who keeps may be killed, too: what it started goes then by the kernel's hand."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def serve(keeper: Keeper, parent: int) -> None:
    """Answer until nobody is left who asks."""
    # A child that the parent forked may hold our standard input open after it: watch the parent, too.
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
            os.write(1, json.dumps(keeper.answer(json.loads(line))).encode() + b"\n")


def main(prefix: str, parent: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit())
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    keeper = Keeper(directory)
    try:
        os.write(1, json.dumps(str(directory)).encode() + b"\n")
        serve(keeper, parent)
    except BrokenPipeError:
        pass
    finally:
        keeper.end()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
