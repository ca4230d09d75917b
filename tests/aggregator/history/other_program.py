"""Another program that has a history open with SQLite, such as a backup tool or a shell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

_PROGRAM = """
import json, sqlite3, sys
connections = {}
for line in sys.stdin:
    name, query = json.loads(line)
    if not query:
        for connection in connections.values():
            connection.close()
        connections.clear()
        print("[]", flush=True)
        continue
    if name not in connections:
        connections[name] = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
    print(json.dumps(connections[name].execute(query).fetchall()), flush=True)
"""


class OtherProgram:
    """A process that runs queries on a file, each on a connection with a name."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def close(self) -> None:
        """Close all connections."""
        self.run("")

    def run(self, query: str, connection: str = "") -> list[Any]:
        """Run a query, and return its rows."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([connection, query]), file=self._process.stdin, flush=True)
        rows: list[Any] = json.loads(self._process.stdout.readline())
        return rows
