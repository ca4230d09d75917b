"""The processes of a cluster and their directory, under a supervisor that ends with this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_SUPERVISOR = Path(__file__).with_name("supervisor.py")

# The collector of Go starts at five times the live memory in place of twice: an API server in use takes a fifth less
# CPU time, and about 100 MB more memory.
_GO = {"GOGC": "400"}

# Characters of a log in an error message.
_TAIL = 6000


class SupervisedProcesses:
    """Starts and stops processes by name. At the end of the block or of this process all are killed, and
    `directory` is removed.
    """

    directory: Path

    def __init__(self, prefix: str) -> None:
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SUPERVISOR), prefix, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_GO},
            start_new_session=True,  # an interrupt at the terminal must not end it
        )
        self.directory = Path(self._answer())
        self._processes: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._supervisor.stdin.close()
        self._supervisor.wait()
        self._supervisor.stdout.close()

    def start(self, name: str, *command: str) -> int:
        """Start a process, which writes to `log(name)`. Return its id."""
        process: int = self._request({"start": name, "command": command})
        self._processes[name] = process
        return process

    def pid(self, name: str) -> int:
        """Return the id of a process that was started."""
        return self._processes[name]

    def ids(self) -> list[int]:
        """Return the process ids: of the supervisor, then of the started processes."""
        return [self._supervisor.pid, *self._processes.values()]

    def ended(self, name: str) -> int | None:
        """Return the return code of a process; None while it runs."""
        code: int | None = self._request({"ended": name})
        return code

    def stop(self, name: str) -> None:
        """Kill a process, and wait for its end."""
        self._request({"stop": name})

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def tail(self, name: str, since: int = 0) -> str:
        """Return the end of a log, without its first `since` bytes."""
        return self.log(name).read_bytes()[since:][-_TAIL:].decode(errors="replace")

    def _request(self, request: dict[str, Any]) -> Any:
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.write(json.dumps(request).encode() + b"\n")
        self._supervisor.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._supervisor.stdout is not None
        line = self._supervisor.stdout.readline()
        if not line:
            code = self._supervisor.wait()
            raise RuntimeError(f"the supervisor of the cluster's processes ended with code {code}")
        return json.loads(line)
