"""RunProgress: results of a run and its call in progress, from the log of the worker."""

from __future__ import annotations

from typing import Any

import msgspec

from nodeguard.worker.nvml_calls import group_of
from nodeguard.worker.result import SYSTEM, CallResult

_line = msgspec.json.Decoder(tuple[int, str | list[int] | dict[str, Any]])


# Results that a worker may report as unchanged, by scope and group of calls, see nvml_calls.
GroupResults = dict[tuple[int, int], dict[str, CallResult]]

# The state before the first call: the worker is starting and has not accessed any hardware.
START = CallResult(SYSTEM, "start")


class GarbledLogError(Exception):
    """The log of a worker has an invalid line."""


class RunProgress:
    """One run of a worker, or of a replay.

    results: all results, in order. call: the last call; START before the first call. missing: why there is
    nothing to read. failed: why nothing can be read, though there may be something.

    group_results: results of the same worker's earlier runs; this run adds its own.
    """

    def __init__(self, group_results: GroupResults | None = None) -> None:
        self._group_results: GroupResults = {} if group_results is None else group_results
        self.results: list[CallResult] = []
        self.call = START
        self.missing = ""
        self.failed = ""
        self._lines = 0
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Parse more of the log. Its last line may be incomplete. Raises GarbledLogError."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._lines += 1
            try:
                scope, content = _line.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                text = line[:80].decode(errors="replace")
                raise GarbledLogError(
                    f"worker log, line {self._lines}: '{text}' is not a valid line ({error}): "
                    "something in its process overwrote it; the worker is restarted"
                ) from error
            self.note([scope, content])

    def note(self, line: list[Any]) -> None:
        """Add one line: `[scope, CALL]` before a call, `[scope, {CALL: result, …}]` after it, or
        `[scope, [GROUP, …]]` for unchanged groups.
        """
        scope, content = line
        if isinstance(content, str):
            self.call = CallResult(scope, content)
            return
        if isinstance(content, list):
            for group in content:
                self.results += self._group_results.get((scope, group), {}).values()
            return
        for call, result in content.items():
            if isinstance(result, dict) and "missing" in result:
                self.missing = result["missing"]
            elif isinstance(result, dict) and "failed" in result:
                self.failed = result["failed"]
            elif result is not None:
                entry = CallResult(scope, call, result)
                self.results.append(entry)
                group = group_of(call)
                if group is not None:
                    self._group_results.setdefault((scope, group), {})[call] = entry
