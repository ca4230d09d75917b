"""Which messages of a node a receiver accepts, and which instructions an agent carries out. Pure.

A node's messages come from one boot at a time, with rising sequence numbers. A message that does not continue
the accepted boot may be a reboot, a repetition, a second agent on the node, or a forgery by whoever holds the
node's credential. So a boot is replaced only after it has been silent for a while: one message replaces
nothing while the accepted boot reports, and a boot that goes on reporting is accepted again within a minute
of the last message that kept it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.wire.instruction import Instruction
from nodeguard.wire.report import InstructionResult, Message, Report

# Boots of a node that are remembered with their highest sequence; instructions that are remembered as done.
_BOOTS = 8
_DONE = 256

# Answers that are remembered, to the latest instructions.
_ANSWERS = 32

# Seconds for which the accepted boot must have been silent before another one replaces it: a boot that was
# accepted before, and one that is new. An agent sends a message every 10 s: the accepted boot has missed one
# or two.
RETURNS_AFTER = 15.0
REPLACES_AFTER = 30.0

# Seconds between two messages of a boot that goes on reporting, at most.
_GAP = 15.0


class Acceptance(StrEnum):
    """What becomes of a message.

    `accepted`: it is news. `repeated`: it is the latest message again, which was accepted. `other-boot`:
    refused, as another boot of the node is accepted. `used-sequence`: refused, as its boot has used this
    sequence number, or a higher one, before.
    """

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    OTHER_BOOT = "other-boot"
    USED_SEQUENCE = "used-sequence"

    @property
    def is_refusal(self) -> bool:
        """Whether the message is not applied, and never was."""
        return self not in {Acceptance.ACCEPTED, Acceptance.REPEATED}


class Contender(Struct, frozen=True):
    """A boot that goes on with sequence numbers that it has used before. since, last: of its first and latest
    message, as the times of Order.
    """

    boot_id: str
    sequence: int
    since: float
    last: float


class SequenceState(Struct, frozen=True):
    """What a receiver remembers of one node's messages. Times are seconds of the receiver's monotonic clock.

    boot_id: of the accepted boot, empty before the first message. sequence: its highest. alive: when it was
    running for the last time, as far as its messages show. left: whether its agent reported that it ends.
    before: boots that were accepted before, oldest first, each with its highest sequence. contender: since
    the latest accepted message.
    """

    boot_id: str = ""
    sequence: int = -1
    alive_at: float = 0.0
    ended: bool = False
    previous_boots: tuple[tuple[str, int], ...] = ()
    contender: Contender | None = None


def accept_message(order: SequenceState, message: Message, now: float) -> tuple[SequenceState, Acceptance]:
    """Return what is remembered after a message that came at a time, and what becomes of the message.

    A report counts as a sign of life at the time of its verdict: a transition that waited in an agent's spool
    through a reboot does not keep the new boot out.
    """
    if message.boot_id == order.boot_id:
        if message.sequence > order.sequence:
            return _accepted(order, message, now), Acceptance.ACCEPTED
        if message.sequence == order.sequence:
            return order, Acceptance.REPEATED
        return _contended(order, message, now)
    if not order.boot_id:
        return _accepted(order, message, now), Acceptance.ACCEPTED
    used = dict(order.previous_boots).get(message.boot_id)
    if used is not None and message.sequence <= used:
        return _contended(order, message, now)
    patience = REPLACES_AFTER if used is None else RETURNS_AFTER
    if _lived(message, now) - order.alive_at >= (0.0 if order.ended else patience):
        return _accepted(order, message, now), Acceptance.ACCEPTED
    return order, Acceptance.OTHER_BOOT


def _accepted(order: SequenceState, message: Message, now: float) -> SequenceState:
    """Return the order after a message of any boot is accepted."""
    lived, left = _lived(message, now), isinstance(message, Report) and message.leaving
    if message.boot_id == order.boot_id:
        lived, before = max(order.alive_at, lived), order.previous_boots
    else:
        past = {boot: used for boot, used in order.previous_boots if boot != message.boot_id}
        if order.boot_id:
            past[order.boot_id] = order.sequence
        before = tuple(past.items())[-_BOOTS:]
    return SequenceState(message.boot_id, message.sequence, lived, left, before)


def _contended(order: SequenceState, message: Message, now: float) -> tuple[SequenceState, Acceptance]:
    """Return the same for a message whose number its boot has used before.

    It is accepted where its boot goes on with such numbers while the accepted boot is silent: that heals a
    forged number that is far too high.
    """
    contender = order.contender
    if contender is None or now - contender.last > _GAP:
        contender = Contender(message.boot_id, message.sequence, now, now)
    elif contender.boot_id == message.boot_id and contender.sequence < message.sequence:
        if now - contender.since >= REPLACES_AFTER:
            return _accepted(order, message, now), Acceptance.ACCEPTED
        contender = replace(contender, sequence=message.sequence, last=now)
    return replace(order, contender=contender), Acceptance.USED_SEQUENCE


def _lived(message: Message, now: float) -> float:
    """Return when the boot of a message was running, by the receiver's clock."""
    return now - message.age if isinstance(message, Report) else now


class InstructionInbox(Struct, frozen=True):
    """What an agent remembers of instructions: those it took and has not carried out yet, and ids of those it
    has. Kept in one write with what they did, each is carried out once. answers: what became of the latest.
    """

    waiting: tuple[Instruction, ...] = ()
    done: tuple[str, ...] = ()
    results: tuple[InstructionResult, ...] = ()


def add_instructions(
    before: InstructionInbox, instructions: Iterable[Instruction]
) -> tuple[InstructionInbox, tuple[Instruction, ...]]:
    """The inbox after some instructions, and which of them are new."""
    known = {*before.done, *(one.id for one in before.waiting)}
    new = tuple({one.id: one for one in instructions if one.id not in known}.values())
    return InstructionInbox((*before.waiting, *new), before.done, before.results), new


def record_result(before: InstructionInbox, answered: InstructionResult) -> InstructionInbox:
    """Return the inbox after an instruction was carried out, or refused."""
    name = answered.id
    waiting = tuple(one for one in before.waiting if one.id != name)
    done = (*(one for one in before.done if one != name), name)
    answers = (*(one for one in before.results if one.id != name), answered)
    return InstructionInbox(waiting, done[-_DONE:], answers[-_ANSWERS:])
