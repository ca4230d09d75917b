"""The processes of a cluster and their directory, in the hands of a keeper that ends with this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_KEEPER = Path(__file__).with_name("keeper.py")

# Characters of a log that tell what went wrong.
_TAIL = 6000


class Kept:
    """Starts and stops processes by name. All end, and `directory` goes, with the block or with this process."""

    directory: Path

    def __init__(self, prefix: str) -> None:
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_KEEPER), prefix, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # an interrupt at the terminal must not end it before its time
        )
        self.directory = Path(self._answer())
        self._processes: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.wait()
        self._keeper.stdout.close()

    def start(self, name: str, *command: str) -> int:
        """Begin a process, which writes to `log(name)`. Gives its id."""
        process: int = self._ask({"start": name, "command": command})
        self._processes[name] = process
        return process

    def processes(self) -> list[int]:
        """Ids of what was started, and of the keeper."""
        return [self._keeper.pid, *self._processes.values()]

    def ended(self, name: str) -> int | None:
        """A process's return code; None while it runs."""
        code: int | None = self._ask({"ended": name})
        return code

    def stop(self, name: str) -> None:
        """Kill a process, and wait until it is gone."""
        self._ask({"stop": name})

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def tail(self, name: str, since: int = 0) -> str:
        """The end of a log, of what came after its first `since` bytes."""
        return self.log(name).read_bytes()[since:][-_TAIL:].decode(errors="replace")

    def _ask(self, what: dict[str, Any]) -> Any:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(json.dumps(what).encode() + b"\n")
        self._keeper.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._keeper.stdout is not None
        said = self._keeper.stdout.readline()
        if not said:
            raise RuntimeError(f"the keeper of the cluster's processes ended with code {self._keeper.wait()}")
        return json.loads(said)
