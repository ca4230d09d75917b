"""The queue between the agent and the senders: reports out, instructions in."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.agent.reporting.schedule import next_sequence
from nodeguard.agent.reporting.spool import (
    Spool,
    SpoolEntry,
    append,
    drop_all,
    encode_entry,
    remove,
    without_passing,
)
from nodeguard.model.instant import Instant
from nodeguard.wire.instruction import Instruction, InstructionInbox, add_instructions, record_result
from nodeguard.wire.report import InstructionResult, Report


class DeliveryState(Struct, frozen=True):
    """The part of the agent state that belongs to the exchange with aggregators.

    digest: of the latest report that was offered. sequence: of the latest message.
    """

    inbox: InstructionInbox = InstructionInbox()
    spool: Spool = Spool()
    digest: str = ""
    sequence: int = -1


class DeliveryQueue:
    """Reports and instructions on their way.

    state: of before a restart. spools: whether changes wait for an aggregator; else they are dropped.
    on_report: called when there is something to send at once. on_instruction: called when an instruction has
    arrived. latest: the latest report and the time of its verdict; None before the first. stored: ids of
    instructions that the state file has as done; only these may be acknowledged.
    """

    def __init__(self, state: DeliveryState | None = None, *, spools: bool = True) -> None:
        self._spools = spools
        self.state = state or DeliveryState()
        if not spools:
            self.state = replace(self.state, spool=drop_all(self.state.spool))
        self._new = list(self.state.inbox.waiting)
        self.latest: tuple[Report, Instant] | None = None
        self.stored = self.state.inbox.done
        self.on_report: Callable[[], object] = lambda: None
        self.on_instruction: Callable[[], object] = lambda: None

    def offer(self, report: Report, instant: Instant) -> bool:
        """Take the report of the latest verdict, and the time of that. Return whether it is a change.

        Every change waits in the spool, in its order.
        """
        self.latest = (report, instant)
        if report.digest == self.state.digest:
            return False
        if not self._spools:
            self.state = replace(self.state, digest=report.digest)
            return True
        number = next_sequence(self.state.sequence, instant.mono)
        entry = encode_entry(replace(report, sequence=number), instant)
        spool = append(self.state.spool, entry, without_passing)
        self.state = replace(self.state, spool=spool, digest=report.digest, sequence=number)
        self.on_report()
        return True

    def number_latest(self, mono: float) -> tuple[Report, Instant] | None:
        """Return the latest report with the sequence of the next message, and the time of its verdict.

        None before the first report, and while a transition waits: so sequences rise in the order in which
        messages are sent.
        """
        if self.state.spool or self.latest is None:
            return None
        report, instant = self.latest
        number = next_sequence(self.state.sequence, mono)
        self.state = replace(self.state, sequence=number)
        return replace(report, sequence=number), instant

    def oldest(self) -> SpoolEntry | None:
        """Return the oldest transition that no aggregator has acknowledged."""
        entries = self.state.spool.entries
        return entries[0] if entries else None

    def remove(self, entry: SpoolEntry, *, acknowledged: bool = True) -> bool:
        """Remove a transition from the spool. Return whether it still waited."""
        before = self.state.spool
        self.state = replace(self.state, spool=remove(before, entry.number, acknowledged=acknowledged))
        return len(self.state.spool) < len(before)

    def receive(self, instructions: Iterable[Instruction]) -> None:
        """Take the instructions of one reply; it ignores those that came before."""
        inbox, new = add_instructions(self.state.inbox, instructions)
        self.state = replace(self.state, inbox=inbox)
        self._new.extend(new)
        if new:
            self.on_instruction()

    def take_instructions(self) -> list[Instruction]:
        """Return each new instruction once; after a restart, those that were not carried out."""
        new, self._new = self._new, []
        return new

    def record_result(self, result: InstructionResult) -> None:
        """Record that an instruction was carried out or refused; its effect is written with this."""
        self.state = replace(self.state, inbox=record_result(self.state.inbox, result))
