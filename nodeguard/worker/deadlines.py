"""Deadlines of a worker's calls, and the status of a run of calls that follows from its progress."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

# Slow calls: the first access to a driver or device, which may wake up a GPU without persistence mode, and
# fsync on a busy disk. Both can take seconds.
_SLOW = frozenset({"start", "nvmlInit", "nvmlDeviceGetHandleByIndex", "write"})

RunStatus = Literal["waiting", "over", "died", "overdue", "stalled", "hung"]


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
