"""The queue between the agent and the senders: reports out, instructions in.

Its spool has the transitions that no aggregator has acknowledged, oldest first and bounded. It is written
together with the pipeline state that produced it, so a kill between the two neither loses nor repeats a
transition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from nodeguard.agent.reporting.schedule import next_sequence
from nodeguard.model.instant import Instant
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.wire.encoding import EncodingError, decode_message, encode
from nodeguard.wire.instruction import Instruction, InstructionInbox, add_instructions, record_result
from nodeguard.wire.report import VERSION, InstructionResult, Report, ReportedFinding

MAX_BYTES = 256 * 1024
MAX_ENTRIES = 64


class SpoolEntry(Struct, frozen=True):
    """One transition. number: rises with each entry and is never used again."""

    number: int
    data: bytes


class Spool(Struct, frozen=True):
    """A queue of transitions. next: number of the next entry. dropped: entries never acknowledged."""

    entries: tuple[SpoolEntry, ...] = ()
    next: int = 1
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.entries)


class _SpooledReport(Struct):
    """A report, and the time of its verdict, from which its age is computed when it is sent."""

    at: Instant
    report: Raw


def append(spool: Spool, data: bytes, thin: Callable[[bytes], bytes] = bytes) -> Spool:
    """Return the spool with one more entry; the oldest are dropped beyond the limits.

    thin: removes from an entry the data that is needed only in the latest entry.
    """
    before = spool.entries
    if before:
        before = (*before[:-1], replace(before[-1], data=thin(before[-1].data)))
    entries = (*before, SpoolEntry(spool.next, data))
    over = max(0, len(entries) - MAX_ENTRIES)
    size = sum(len(entry.data) for entry in entries[over:])
    while size > MAX_BYTES:
        size -= len(entries[over].data)
        over += 1
    return Spool(entries[over:], spool.next + 1, spool.dropped + over)


def remove(spool: Spool, number: int, *, acknowledged: bool = True) -> Spool:
    """Return the spool without an entry, which counts as dropped unless it was acknowledged."""
    entries = tuple(entry for entry in spool.entries if entry.number != number)
    dropped = 0 if acknowledged else len(spool.entries) - len(entries)
    return replace(spool, entries=entries, dropped=spool.dropped + dropped)


def drop_all(spool: Spool) -> Spool:
    """Return the spool of an agent that no longer reports to any aggregator."""
    return Spool((), spool.next, spool.dropped + len(spool))


def encode_entry(report: Report, instant: Instant) -> bytes:
    """Return a report and the time of its verdict as bytes. Raises EncodingError."""
    return msgspec.json.encode(_SpooledReport(instant, Raw(encode(report))))


def without_passing(data: bytes) -> bytes:
    """Return an entry without its passing checks: only the latest report releases a mark."""
    try:
        report, at = decode_entry(data)
    except EncodingError:
        return data
    return encode_entry(replace(report, passing=()), at)


def decode_entry(data: bytes) -> tuple[Report, Instant]:
    """Return the report of an entry that this version or a neighbour wrote. Raises EncodingError."""
    try:
        entry = JsonDecoder(_SpooledReport).decode(data)
    except msgspec.DecodeError:
        raise EncodingError("a spool entry has a format of another version: it is skipped") from None
    message = decode_message(bytes(entry.report))
    if not isinstance(message, Report):
        raise EncodingError("a spool entry holds a heartbeat: it is skipped")
    return replace(message, version=VERSION), entry.at


def set_age(report: Report, at: Instant, now: Instant, speed: float = 1.0) -> Report:
    """Return a report with the seconds since its verdict, by the wall clock across a reboot.

    speed: seconds of the machine in a real second. All ages of the result are in real seconds.
    """
    age = now.mono - at.mono if at.boot_id == now.boot_id else now.wall - at.wall
    age = round(max(0.0, age / speed), 3)
    if speed == 1.0:
        return replace(report, age=age)
    received = {path: round(age / speed, 3) for path, age in report.received.items()}
    findings = tuple(_in_real_time(report.findings, speed))
    return replace(report, age=age, findings=findings, received=received)


def _in_real_time(findings: Iterable[ReportedFinding], speed: float) -> Iterator[ReportedFinding]:
    for finding in findings:
        evidence = tuple(replace(item, age=round(item.age / speed, 3)) for item in finding.evidence)
        yield replace(finding, age=round(finding.age / speed, 3), evidence=evidence)


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
    arrived: set when an instruction has arrived. latest: the latest report and the time of its verdict; None
    before the first. stored: ids of instructions that the state file has as done; only these may be
    acknowledged. speed: seconds of the machine in a real second; other than 1 for a recording only.
    """

    def __init__(
        self, state: DeliveryState | None = None, *, spools: bool = True, speed: float = 1.0
    ) -> None:
        self._spools = spools
        self.speed = speed
        self.state = state or DeliveryState()
        if not spools:
            self.state = replace(self.state, spool=drop_all(self.state.spool))
        self._new = list(self.state.inbox.waiting)
        self.arrived = asyncio.Event()
        if self._new:
            self.arrived.set()
        self.latest: tuple[Report, Instant] | None = None
        self.stored = self.state.inbox.done

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
            self.arrived.set()

    def take_instructions(self) -> list[Instruction]:
        """Return each new instruction once; after a restart, those that were not carried out."""
        new, self._new = self._new, []
        return new

    def record_result(self, result: InstructionResult) -> None:
        """Record that an instruction was carried out or refused; its effect is written with this."""
        self.state = replace(self.state, inbox=record_result(self.state.inbox, result))
