"""What a log is told of callers: each complaint once in a while, few in all, none lost without a word."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from nodeguard.aggregator.ingest.limits import Bucket, Rate

# Seconds until the same is said of the same again; complaints that are remembered; lines in all.
_AGAIN = 600.0
_MOST = 2048
_LINES = Rate(20.0, 0.2)


class Complaints:
    """tell: is given a sentence."""

    def __init__(self, tell: Callable[[str], None], now: float) -> None:
        self._tell = tell
        self._said: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._lines = Bucket(_LINES, now)
        self._left_out = 0

    def of(self, who: str, what: str, now: float) -> None:
        """Complain of somebody. who: an address, or a node that has shown that it is it."""
        said = self._said.get((who, what))
        if said is not None and now < said + _AGAIN:
            return
        if self._lines.take(_LINES, now):
            self._left_out += 1
            return
        self._said[who, what] = now
        self._said.move_to_end((who, what))
        if len(self._said) > _MOST:
            self._said.popitem(last=False)
        before = (
            f" ({self._left_out} other complaints were left out before this one)" if self._left_out else ""
        )
        self._left_out = 0
        self._tell(f"{who}: {what}{before}")
