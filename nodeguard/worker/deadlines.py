"""How long a worker may take, and what its silence means."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

# The first touch of a driver or device: without persistence mode a GPU is woken by it, which takes seconds;
# as fsync does on a disk that has much to write for others.
_SLOW = frozenset({"start", "nvmlInit", "nvmlDeviceGetHandleByIndex", "write"})

RunStatus = Literal["waiting", "over", "died", "overdue", "stalled", "hung"]


class RunPace(Struct, frozen=True):
    """What is known of a running round; times are seconds of one clock that never jumps.

    call: name of the call under way. moved: when progress was last seen. killed: when it was given SIGKILL.
    over: whether the worker said that the round is over. status: its exit status, None while it lives.
    """

    call: str
    last_progress: float
    killed: float | None = None
    over: bool = False
    status: int | None = None


class Deadlines(Struct, frozen=True):
    """Seconds that one call may take, that a first touch or a write may take, and that SIGKILL may take to
    work.
    """

    call: float = 5.0
    first: float = 30.0
    grace: float = 5.0

    def status(self, pace: RunPace, now: float) -> RunStatus:
        """What has become of a round: it is waited for, is over, or ended in one of the ways it can fail.

        `overdue` asks for SIGKILL. After that a worker that ends was `stalled`, and one that does not is
        `hung`. A worker that leaves by itself with status 0 has finished its round.
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
        """When to look again at the latest.

        Progress is only noticed by looking, so calls are looked at five times within their deadline: none
        overstays it by more than a fifth.
        """
        if pace.killed is not None:
            return pace.killed + self.grace
        return min(pace.last_progress + self._allowed(pace.call), now + self.call / 5)

    def is_slow(self, pace: RunPace, now: float) -> bool:
        """Whether the call under way has taken so long that it will hardly come back: a fifth of its
        deadline, while those that do come back take a thousandth.
        """
        return now >= pace.last_progress + self._allowed(pace.call) / 5

    def _allowed(self, call: str) -> float:
        return self.first if call.partition("(")[0] in _SLOW else self.call
