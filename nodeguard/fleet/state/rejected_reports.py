"""Rejected messages of agents: the latest of each node. No input, output or clock."""

from __future__ import annotations

from collections import Counter, OrderedDict

from msgspec import Struct
from msgspec.structs import replace

# Seconds for which a rejection is shown; maximum number of nodes.
SHOWN_FOR = 600.0
_NODES = 4096


class RejectedReport(Struct, frozen=True):
    """The rejection of a node's messages.

    node: its name. reason: one of few values, for metrics. message: the answer to the agent, with the remedy.
    first, last: when the first and the latest of these messages came, in seconds of the receiver's monotonic
    clock; count: how many came. They start again after SHOWN_FOR without one.
    """

    node: str
    reason: str
    message: str
    first: float
    last: float
    count: int = 1


class RejectedReports:
    """The latest rejection of each node. counts: of all rejected messages by reason, since the start."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._latest: OrderedDict[str, RejectedReport] = OrderedDict()

    def add(self, node: str, reason: str, message: str, now: float) -> None:
        """Record that a message was rejected at a time."""
        self.counts[reason] += 1
        before = self._latest.pop(node, None)
        if before is None or now - before.last > SHOWN_FOR:
            self._latest[node] = RejectedReport(node, reason, message, now, now)
        else:
            self._latest[node] = replace(
                before, reason=reason, message=message, last=now, count=before.count + 1
            )
        if len(self._latest) > _NODES:
            self._latest.popitem(last=False)

    def recent(self, now: float) -> tuple[RejectedReport, ...]:
        """Return the rejections of the past SHOWN_FOR seconds, the latest first."""
        latest = reversed(self._latest.values())
        return tuple(rejected for rejected in latest if now - rejected.last <= SHOWN_FOR)
