"""Instructions from the aggregator to an agent, and the reply that carries them.

Every instruction has an id. The aggregator repeats an instruction on every reply until the agent acknowledges
its id; the agent carries it out once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from nodeguard.wire.report import Count, InstructionResult, Name, Seconds

# The characters of an id need no escaping in a log line.
Id = Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z0-9._:/-]+\Z")]

# Seconds for which GPUs are detached at most: a forgotten instruction must not end the monitoring.
MAX_DETACH_SECONDS = 86_400

# How many ids of completed instructions, and how many results, an agent stores.
_MAX_DONE = 256
_MAX_RESULTS = 32


class ClearFinding(Struct, frozen=True, tag_field="kind", tag="clear-finding"):
    """Clear a check's finding on a target.

    by: the operator. component: clear only while this component is in the target; empty for any component.
    """

    id: Id
    check: Name
    target: Name
    component: Name = ""
    by: Name = ""


class DetachGpus(Struct, frozen=True, tag_field="kind", tag="detach-gpus"):
    """Close the GPU devices for a number of seconds, 0 to open them again. Empty targets: all GPUs."""

    id: Id
    seconds: Seconds
    targets: tuple[Name, ...] = ()


Instruction = ClearFinding | DetachGpus


class Reply(Struct, frozen=True, omit_defaults=True):
    """The aggregator's answer to one message.

    acked_sequence: the sequence of the message that it answers; None if the aggregator does not send it.
    resend: the aggregator does not have the report with the heartbeat's digest, so the agent sends it in
    full. injectable: patterns of the checks that operators may inject; none by default. A message
    that is not applied gets an HTTP error instead of a reply: see wire.sequence.
    """

    version: int
    acked_sequence: Count | None = None
    resend: bool = False
    instructions: tuple[Instruction, ...] = ()
    injectable: tuple[Name, ...] = ()


class InstructionInbox(Struct, frozen=True):
    """An agent's instructions: those not carried out yet, and the ids of those that are done.

    It is written together with the effect of the instructions, so each is carried out once. results: the
    latest outcomes, oldest first.
    """

    waiting: tuple[Instruction, ...] = ()
    done: tuple[str, ...] = ()
    results: tuple[InstructionResult, ...] = ()


def add_instructions(
    inbox: InstructionInbox, instructions: Iterable[Instruction]
) -> tuple[InstructionInbox, tuple[Instruction, ...]]:
    """Return the inbox with the instructions of one reply, and those of them that are new."""
    ids = {*inbox.done, *(instruction.id for instruction in inbox.waiting)}
    new = {instruction.id: instruction for instruction in instructions if instruction.id not in ids}
    added = tuple(new.values())
    return InstructionInbox((*inbox.waiting, *added), inbox.done, inbox.results), added


def record_result(inbox: InstructionInbox, result: InstructionResult) -> InstructionInbox:
    """Return the inbox after an instruction was carried out or refused."""
    waiting = tuple(instruction for instruction in inbox.waiting if instruction.id != result.id)
    done = (*(identity for identity in inbox.done if identity != result.id), result.id)
    results = (*(earlier for earlier in inbox.results if earlier.id != result.id), result)
    return InstructionInbox(waiting, done[-_MAX_DONE:], results[-_MAX_RESULTS:])
