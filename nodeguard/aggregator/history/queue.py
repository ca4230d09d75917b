"""The queue of transitions between the history recorder and its writer, with a limit of their memory."""

from __future__ import annotations

from collections import deque

from nodeguard.fleet.state.history_events import (
    FleetListed,
    HistoryNote,
    NoteKind,
    RecordedEvent,
    ReportReceived,
)

# Estimated bytes that may wait. The start of 7,500 nodes takes 9 MiB if none of it is written meanwhile.
MAX_BYTES = 16 << 20

# Estimated bytes of a transition, of a report, of each of its findings, and of the name of a node.
_TRANSITION, _REPORT, _FINDING, _NAME = 250, 900, 1500, 100


class TransitionQueue:
    """Transitions that wait, oldest first. If they are too large, the oldest are lost. The caller locks it.

    lost: number of transitions that were lost. has_dropped: whether any were since the caller last reset
    this.
    """

    def __init__(self) -> None:
        self.lost = 0
        self.has_dropped = False
        self._steps: deque[RecordedEvent] = deque()
        self._bytes = 0
        # Time of the first transition that was lost and is in no gap yet, in seconds since the epoch.
        self._lost_since: float | None = None

    def __len__(self) -> int:
        return len(self._steps)

    def has_room(self) -> bool:
        """Return whether less than half of the bytes wait: the rest is for later transitions."""
        return self._bytes < MAX_BYTES // 2

    def put(self, step: RecordedEvent) -> None:
        """Add the latest transition."""
        self._steps.append(step)
        self._bytes += _size(step)
        self._drop_oldest()

    def take(self, most: int) -> list[RecordedEvent]:
        """Remove and return the oldest transitions; first the gap of those that were lost before them."""
        steps = [self._steps.popleft() for _ in range(min(most, len(self._steps)))]
        self._bytes -= sum(map(_size, steps))
        if steps and self._lost_since is not None:
            steps.insert(0, HistoryNote(steps[0].at, NoteKind.GAP, "", "", repr(self._lost_since)))
            self._lost_since = None
        return steps

    def put_back(self, steps: list[RecordedEvent]) -> None:
        """Return transitions that were taken and not written."""
        first = steps[0]
        if isinstance(first, HistoryNote) and first.kind is NoteKind.GAP:
            self._lost_since = float(first.text)
            steps = steps[1:]
        self._steps.extendleft(reversed(steps))
        self._bytes += sum(map(_size, steps))
        self._drop_oldest()

    def drop(self, step: RecordedEvent) -> None:
        """Lose a transition that is no longer in the queue; the next ones follow a gap."""
        self.lost += 1
        self.has_dropped = True
        if self._lost_since is None:
            self._lost_since = step.at

    def clear(self) -> None:
        """Lose all transitions."""
        self.lost += len(self._steps)
        self._steps.clear()
        self._bytes = 0

    def _drop_oldest(self) -> None:
        while self._bytes > MAX_BYTES:
            step = self._steps.popleft()
            self._bytes -= _size(step)
            self.drop(step)


def _size(step: RecordedEvent) -> int:
    """Return the estimated bytes of a transition, without what the planner stores anyway."""
    match step:
        case ReportReceived(_, _, report):
            return _REPORT + _FINDING * len(report.findings)
        case FleetListed(_, nodes, _):
            return _TRANSITION + _NAME * len(nodes)
        case HistoryNote():
            return _TRANSITION + len(step.text)
    return _TRANSITION
