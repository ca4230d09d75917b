"""The progress of a run of calls: its results and present call, from the worker's log, and its deadlines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from sys import intern
from typing import Any, Literal

import msgspec
from msgspec import Struct

from nodeguard.worker.nvml_calls import group_of
from nodeguard.worker.result import SYSTEM, CallResult

_line = msgspec.json.Decoder(tuple[int, str | list[int] | dict[str, Any] | None])


# Results that a worker may report as unchanged, by scope and group of calls, see nvml_calls.
GroupResults = dict[tuple[int, int | str | None], dict[str, CallResult]]

# The state before the first call: the worker is starting and has not accessed any hardware.
START = CallResult(SYSTEM, "start")

# Slow calls: the first access to a driver or device, which may wake up a GPU without persistence mode, and
# fsync on a busy disk. Both can take seconds.
_SLOW = frozenset({"start", "nvmlInit", "nvmlDeviceGetHandleByIndex", "write", "set-aside"})

RunStatus = Literal["waiting", "over", "died", "overdue", "stalled", "hung"]


class GarbledLogError(Exception):
    """The log of a worker has an invalid line."""


class RunProgress:
    """One run of a worker, or of a replay.

    results: all results, in order. call: the last call; START before the first call. missing: why
    no hardware to read exists. failed: why reading is impossible, though the hardware may exist.

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
                self.note(_line.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
                text = line[:80].decode(errors="replace")
                raise GarbledLogError(
                    f"worker log, line {self._lines}: '{text}' is not a valid line ({error}): "
                    "something in its process overwrote it; the worker is restarted"
                ) from error

    def note(self, line: Sequence[Any]) -> None:
        """Add one line: `[scope, CALL]` before a call, `[scope, {CALL: result, …}]` after it, or
        `[scope, null]` for its last result, or `[scope, [GROUP, …]]` for unchanged groups.
        """
        scope, content = line
        if isinstance(content, str):
            self.call = CallResult(scope, content)
            return
        if content is None:
            call = self.call.call
            self.results.append(self._group_results[scope, group_of(call)][call])
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
                entry = CallResult(scope, intern(call), _shared(result))
                self.results.append(entry)
                group = group_of(call)
                if group is not None:
                    self._group_results.setdefault((scope, group), {})[call] = entry


def _shared(result: Any) -> Any:
    """Return the one object of a failure: most results are the same few, on each link of each device."""
    error = result.get("error") if isinstance(result, dict) and len(result) == 1 else None
    return _failure(error) if isinstance(error, str) else result


@lru_cache(maxsize=64)
def _failure(error: str) -> dict[str, str]:
    return {"error": error}


class RunPace(Struct, frozen=True):
    """The progress of a run; times are seconds of one monotonic clock.

    call: name of the call in progress. last_progress: time of the last progress. killed: time of SIGKILL,
    None if it was not sent. over: whether the worker reported the end of the round. status: the worker's exit
    status, None while it runs.
    """

    call: str
    last_progress: float
    killed: float | None = None
    over: bool = False
    status: int | None = None


class Deadlines(Struct, frozen=True):
    """Seconds that one call may take, a first access to a device or a write, and the end by SIGKILL."""

    call: float = 5.0
    first: float = 30.0
    grace: float = 5.0

    def status(self, pace: RunPace, now: float) -> RunStatus:
        """Return the status of a run: waiting, over, or one of the failures.

        `overdue` means that the worker needs SIGKILL. After SIGKILL, a worker that ended was `stalled`, and
        one that did not is `hung`. A worker that exits by itself with status 0 has finished its round.
        """
        if pace.killed is not None:
            if pace.status is not None:
                return "stalled"
            return "hung" if now >= pace.killed + self.grace else "waiting"
        if pace.over or pace.status == 0:
            return "over"
        if pace.status is not None:
            return "died"
        return "overdue" if now >= pace.last_progress + self._allowed(pace.call) else "waiting"

    def next_check(self, pace: RunPace, now: float) -> float:
        """Return when to check the run again at the latest.

        Only a check notices progress. Calls are checked five times within their deadline, so that none
        exceeds it by more than a fifth.
        """
        if pace.killed is not None:
            return pace.killed + self.grace
        return min(pace.last_progress + self._allowed(pace.call), now + self.call / 5)

    def is_slow(self, pace: RunPace, now: float) -> bool:
        """Return whether the call in progress has taken a fifth of its deadline, so that it hardly returns.

        Calls that return take about a thousandth of it.
        """
        return now >= pace.last_progress + self._allowed(pace.call) / 5

    def _allowed(self, call: str) -> float:
        return self.first if call.partition("(")[0] in _SLOW else self.call
