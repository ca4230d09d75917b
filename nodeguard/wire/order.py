"""Each once: which messages a receiver applies, and which instructions an agent carries out. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from nodeguard.wire.instruction import Instruction
from nodeguard.wire.report import Answered, Report

# Boots of a node that are remembered as over; instructions that are remembered as done.
_BOOTS = 8
_DONE = 256

# Answers that are remembered, to the latest instructions.
_ANSWERS = 32


class Heard(Struct, frozen=True):
    """What a receiver remembers of one node: the boot it last heard of, the last sequence, boots before."""

    boot_id: str = ""
    sequence: int = -1
    over: tuple[str, ...] = ()


def heard(before: Heard, report: Report) -> tuple[Heard, bool]:
    """What is remembered after a report, and whether the report is news.

    It is none where it came before, came late, or tells of a boot that is over.
    """
    if report.boot_id == before.boot_id:
        if report.sequence <= before.sequence:
            return before, False
        return Heard(before.boot_id, report.sequence, before.over), True
    if report.boot_id in before.over:
        return before, False
    over = (*before.over, before.boot_id)[-_BOOTS:] if before.boot_id else before.over
    return Heard(report.boot_id, report.sequence, over), True


class Inbox(Struct, frozen=True):
    """What an agent remembers of instructions: those it took and has not carried out yet, and ids of those it
    has. Kept in one write with what they did, each is carried out once. answers: what became of the latest.
    """

    waiting: tuple[Instruction, ...] = ()
    done: tuple[str, ...] = ()
    answers: tuple[Answered, ...] = ()


def received(before: Inbox, instructions: Iterable[Instruction]) -> tuple[Inbox, tuple[Instruction, ...]]:
    """The inbox after some instructions, and which of them are new."""
    known = {*before.done, *(one.id for one in before.waiting)}
    new = tuple({one.id: one for one in instructions if one.id not in known}.values())
    return Inbox((*before.waiting, *new), before.done, before.answers), new


def carried_out(before: Inbox, answered: Answered) -> Inbox:
    """Return the inbox after an instruction was carried out, or refused."""
    name = answered.id
    waiting = tuple(one for one in before.waiting if one.id != name)
    done = (*(one for one in before.done if one != name), name)
    answers = (*(one for one in before.answers if one.id != name), answered)
    return Inbox(waiting, done[-_DONE:], answers[-_ANSWERS:])
