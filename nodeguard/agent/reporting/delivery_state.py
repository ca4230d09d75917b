"""Between the loop that judges and the threads that send: reports out, instructions in. Never waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.agent.reporting.schedule import sequence
from nodeguard.agent.reporting.spool import Entry, Spool, emptied, keep, put, thinned, without
from nodeguard.model.instant import Instant
from nodeguard.wire.instruction import Instruction
from nodeguard.wire.report import InstructionResult, Report
from nodeguard.wire.sequence import InstructionInbox, add_instructions, record_result


class DeliveryState(Struct, frozen=True):
    """What an agent remembers of its exchange with its receivers, in one write with its judgement.

    digest: of the latest report that was offered. sequence: of the latest message.
    """

    inbox: InstructionInbox = InstructionInbox()
    spool: Spool = Spool()
    digest: str = ""
    sequence: int = -1


class DeliveryQueue:
    """What is on its way.

    post: what was remembered from before. spools: whether changes wait here for somebody who is to hear them;
    else those that do are let go. wake: is called where there is something to send at once. latest: the
    latest report and when its verdict was reached; None before the first. written: ids of instructions that
    are remembered as carried out on the disk, which alone may be acknowledged. arrived: is called, in a
    sender's thread, when an instruction has come.
    """

    def __init__(self, post: DeliveryState | None = None, *, spools: bool = True) -> None:
        self._lock = threading.Lock()
        self._spools = spools
        self._post = post or DeliveryState()
        if not spools:
            self._post = replace(self._post, spool=emptied(self._post.spool))
        self._new = list(self._post.inbox.waiting)
        self.latest: tuple[Report, Instant] | None = None
        self.written = self._post.inbox.done
        self.wake: Callable[[], object] = lambda: None
        self.arrived: Callable[[], object] = lambda: None

    @property
    def state(self) -> DeliveryState:
        """What to remember."""
        with self._lock:
            return self._post

    def offer(self, report: Report, instant: Instant) -> bool:
        """The report of the latest verdict, and when that was reached. Every change is kept, in its order.

        Returns whether it was a change.
        """
        with self._lock:
            self.latest = (report, instant)
            if report.digest == self._post.digest:
                return False
            if not self._spools:
                self._post = replace(self._post, digest=report.digest)
                return True
            number = sequence(self._post.sequence, instant.mono)
            spool = put(self._post.spool, keep(replace(report, sequence=number), instant), thinned)
            self._post = replace(self._post, spool=spool, digest=report.digest, sequence=number)
        self.wake()
        return True

    def current(self, mono: float) -> tuple[Report, Instant] | None:
        """The latest report, numbered as the next message, and when its verdict was reached.

        None before the first, and where a transition waits: what is numbered here is newer than all that
        anybody was given before, and all that waits later is newer than this.
        """
        with self._lock:
            if self._post.spool or self.latest is None:
                return None
            report, instant = self.latest
            number = sequence(self._post.sequence, mono)
            self._post = replace(self._post, sequence=number)
            return replace(report, sequence=number), instant

    def first(self) -> Entry | None:
        """The oldest transition that nobody has heard."""
        entries = self.state.spool.entries
        return entries[0] if entries else None

    def done(self, entry: Entry, *, heard: bool = True) -> bool:
        """Forget a transition. heard: see spool.without. Returns whether it still waited."""
        with self._lock:
            before = self._post.spool
            self._post = replace(self._post, spool=without(before, entry.number, heard=heard))
            return len(self._post.spool) < len(before)

    def receive(self, instructions: Iterable[Instruction]) -> None:
        """Instructions of one reply; those that came before are left out."""
        with self._lock:
            inbox, new = add_instructions(self._post.inbox, instructions)
            self._post = replace(self._post, inbox=inbox)
            self._new.extend(new)
        if new:
            self.arrived()

    def take(self) -> list[Instruction]:
        """Instructions that were not given out yet, each once; after a restart, those not carried out."""
        with self._lock:
            new, self._new = self._new, []
        return new

    def carried_out(self, answered: InstructionResult) -> None:
        """An instruction was carried out or refused; what it did and this are to be written together."""
        with self._lock:
            self._post = replace(self._post, inbox=record_result(self._post.inbox, answered))
