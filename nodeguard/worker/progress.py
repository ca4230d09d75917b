"""How far a worker came in a round, from what it wrote down."""

from __future__ import annotations

from typing import Any

import msgspec

from nodeguard.worker.nvml_calls import group_of
from nodeguard.worker.result import SYSTEM, CallResult

_line = msgspec.json.Decoder(tuple[int, str | list[int] | dict[str, Any]])


# Results that a worker may say to be as before, by scope and group of calls, see nvml_calls.
GroupResults = dict[tuple[int, int], dict[str, CallResult]]

# What a worker is at before its first call: it is starting, and has not touched what it is to ask.
START = CallResult(SYSTEM, "start")


class GarbledLogError(Exception):
    """A worker's log holds a line that no worker writes."""


class RunProgress:
    """One run of a worker, or of its rehearsal.

    entries: what was read, in order. call: what was asked last; before the first call, START. missing: why
    there is nothing to read. failed: why nothing can be read, though there may be something.

    told: what the same worker has told in earlier runs; this one's is added.
    """

    def __init__(self, told: GroupResults | None = None) -> None:
        self._told: GroupResults = {} if told is None else told
        self.results: list[CallResult] = []
        self.call = START
        self.missing = ""
        self.failed = ""
        self._lines = 0
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take more of the log. Its last line may be cut anywhere. Raises GarbledLogError."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._lines += 1
            try:
                scope, what = _line.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as garbled:
                text = line[:80].decode(errors="replace")
                raise GarbledLogError(
                    f"worker log, line {self._lines}: '{text}' is not what a worker writes ({garbled}): "
                    "something in its process wrote over it; the worker is started anew"
                ) from garbled
            self.note([scope, what])

    def note(self, line: list[Any]) -> None:
        """Take one line: `[scope, CALL]`, asked, `[scope, {CALL: result, …}]`, answered, or
        `[scope, [GROUP, …]]`, as before.
        """
        scope, what = line
        if isinstance(what, str):
            self.call = CallResult(scope, what)
            return
        if isinstance(what, list):
            for group in what:
                self.results += self._told.get((scope, group), {}).values()
            return
        for call, result in what.items():
            if isinstance(result, dict) and "missing" in result:
                self.missing = result["missing"]
            elif isinstance(result, dict) and "failed" in result:
                self.failed = result["failed"]
            elif result is not None:
                entry = CallResult(scope, call, result)
                self.results.append(entry)
                group = group_of(call)
                if group is not None:
                    self._told.setdefault((scope, group), {})[call] = entry
