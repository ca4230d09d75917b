"""Between the loop that judges and the thread that sends: reports out, instructions in. Never waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from nodeguard.agent.spool import MOST_ENTRIES
from nodeguard.model.instant import Instant
from nodeguard.wire.instruction import Instruction
from nodeguard.wire.order import Inbox, carried_out, received
from nodeguard.wire.report import Report


class Mailbox:
    """What is on its way.

    inbox: what the agent remembers of instructions from before. wake: set where the sender has something to
    do at once. lost: changes that were let go because the sender did not come for them.
    """

    def __init__(self, inbox: Inbox | None = None) -> None:
        self._lock = threading.Lock()
        self._offered: deque[tuple[Report, Instant]] = deque()
        self._inbox = inbox or Inbox()
        self._new = list(self._inbox.waiting)
        self._digest = ""
        self.wake = threading.Event()
        self.lost = 0

    def offer(self, report: Report, instant: Instant) -> None:
        """The report of the latest verdict, and when that was reached. Every change is kept, in its order."""
        with self._lock:
            if self._offered and self._digest == report.digest:
                self._offered[-1] = (report, instant)
                return
            self._offered.append((report, instant))
            if len(self._offered) > MOST_ENTRIES:
                self._offered.popleft()
                self.lost += 1
            changed, self._digest = self._digest != report.digest, report.digest
        if changed:
            self.wake.set()

    def collect(self) -> list[tuple[Report, Instant]]:
        """What was offered since the last call, oldest first."""
        with self._lock:
            offered = list(self._offered)
            self._offered.clear()
        return offered

    def receive(self, instructions: Iterable[Instruction]) -> None:
        """Instructions of one reply; those that came before are left out."""
        with self._lock:
            self._inbox, new = received(self._inbox, instructions)
            self._new.extend(new)

    def take(self) -> list[Instruction]:
        """Instructions that were not given out yet, each once; after a restart, those not carried out."""
        with self._lock:
            new, self._new = self._new, []
        return new

    def carried_out(self, identity: str) -> None:
        """An instruction was carried out, and what it did will outlive this process."""
        with self._lock:
            self._inbox = carried_out(self._inbox, identity)

    @property
    def inbox(self) -> Inbox:
        """What to remember of instructions, in one write with what they did."""
        with self._lock:
            return self._inbox
