"""What rides back to an agent on the reply. Every instruction has an id, and is carried out once.

An instruction is repeated on every reply until the agent has acknowledged its id.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from nodeguard.wire.report import Count, Name, Seconds, Text

# Nothing in it that would need care in a log line.
Id = Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z0-9._:/-]+\Z")]


class ClearFinding(Struct, frozen=True, tag_field="do", tag="clear-check"):
    """A person says that a check's finding on a slot is over; by: who. part: only while this part sits there,
    any where empty.
    """

    id: Id
    check: Name
    target: Name
    component: Name = ""
    by: Name = ""


class DetachGpus(Struct, frozen=True, tag_field="do", tag="release-gpus"):
    """Let go of the GPUs for so many seconds from now on; of all where slots is empty."""

    id: Id
    seconds: Seconds
    targets: tuple[Name, ...] = ()


class Maintenance(Struct, frozen=True, tag_field="do", tag="maintenance"):
    """The node is under maintenance for so many seconds from now on; 0 ends it."""

    id: Id
    seconds: Seconds
    why: Text = ""


class RunTest(Struct, frozen=True, tag_field="do", tag="run-test"):
    """Run a test on some slots, on all that it fits where slots is empty."""

    id: Id
    test: Name
    slots: tuple[Name, ...] = ()


Instruction = ClearFinding | DetachGpus | Maintenance | RunTest


class Reply(Struct, frozen=True, omit_defaults=True):
    """The receiver's answer to one message.

    heard: the sequence of the message that it answers; None from a receiver that does not say. resend: the
    report with the heartbeat's digest is not known here: send it in full. A message that is not applied has
    no reply, but an error of HTTP: see wire.order.
    """

    version: int
    acked_sequence: Count | None = None
    resend: bool = False
    instructions: tuple[Instruction, ...] = ()
