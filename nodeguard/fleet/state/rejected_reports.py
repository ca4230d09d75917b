"""Messages of nodes that an aggregator refused: the latest of each node. No input, output or clock."""

from __future__ import annotations

from collections import Counter, OrderedDict

from msgspec import Struct
from msgspec.structs import replace

# Seconds for which a refusal is shown, and nodes whose latest one is kept.
SHOWN_FOR = 600.0
_NODES = 4096


class RejectedReport(Struct, frozen=True):
    """Why messages of a node were refused.

    node: its name. reason: a word out of few, for metrics. message: the answer to the agent, which names the
    remedy. since, last: when the first and the latest of these messages came, in seconds of the receiver's
    monotonic clock; count: how many did. They are counted anew after SHOWN_FOR without one.
    """

    node: str
    reason: str
    message: str
    since: float
    last: float
    count: int = 1


class RejectedReports:
    """The latest refusal of each node. counts: of all refused messages by reason, since the start."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._latest: OrderedDict[str, RejectedReport] = OrderedDict()

    def add(self, node: str, reason: str, message: str, now: float) -> None:
        """Note that a message was refused at a time."""
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

    def latest(self, node: str, now: float) -> RejectedReport | None:
        """Return the refusal of a node; None where there was none for SHOWN_FOR seconds."""
        refusal = self._latest.get(node)
        return refusal if refusal is not None and now - refusal.last <= SHOWN_FOR else None

    def recent(self, now: float) -> tuple[RejectedReport, ...]:
        """Return the refusals of the past SHOWN_FOR seconds, the latest first."""
        latest = reversed(self._latest.values())
        return tuple(refusal for refusal in latest if now - refusal.last <= SHOWN_FOR)
