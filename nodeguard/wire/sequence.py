"""The order of a node's messages: which of them a receiver accepts. Pure.

A node's messages come from one boot at a time, with rising sequence numbers. A message that does not continue
the accepted boot may be a reboot, a repetition, a second agent on the node, or a forgery by the owner of the
node's credential. So another boot replaces the accepted one only after a time without messages from it: one
message replaces nothing while the accepted boot reports, and a boot that keeps reporting is accepted again
within a minute of the last message that prevented it.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.wire.report import Message, Report

# Earlier boots of a node that are stored with their highest sequence.
_BOOTS = 8

# Seconds without a message of the accepted boot before another one replaces it: a boot that was accepted
# before, and a new one. An agent sends a message every 10 s: the accepted boot has missed one or two.
RETURNS_AFTER = 15.0
REPLACES_AFTER = 30.0

# Seconds between two messages of a boot that keeps reporting, at most.
_GAP = 15.0


class Acceptance(StrEnum):
    """The treatment of a message.

    `accepted`: it is new. `repeated`: it is the latest message again, which was accepted. `other-boot`:
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
    """A boot that continues with sequence numbers that it has used before.

    since, last: of its first and latest message, as the times of SequenceState.
    """

    boot_id: str
    sequence: int
    since: float
    last: float


class SequenceState(Struct, frozen=True):
    """The state of one node's message sequence at a receiver. Times are seconds of its monotonic clock.

    boot_id: of the accepted boot, empty before the first message. sequence: its highest. alive_at: when it
    last ran, as far as its messages show. ended: whether its agent reported that it ends. previous_boots:
    those accepted before, oldest first, each with its highest sequence. contender: since the latest accepted
    message.
    """

    boot_id: str = ""
    sequence: int = -1
    alive_at: float = 0.0
    ended: bool = False
    previous_boots: tuple[tuple[str, int], ...] = ()
    contender: Contender | None = None


def accept_message(state: SequenceState, message: Message, now: float) -> tuple[SequenceState, Acceptance]:
    """Return the state after a message that was received at a time, and the treatment of the message.

    A report counts as a sign of life at the time of its verdict: a transition that waited in an agent's spool
    through a reboot does not keep the new boot out.
    """
    if message.boot_id == state.boot_id:
        if message.sequence > state.sequence:
            return _accepted(state, message, now), Acceptance.ACCEPTED
        if message.sequence == state.sequence:
            return state, Acceptance.REPEATED
        return _contended(state, message, now)
    if not state.boot_id:
        return _accepted(state, message, now), Acceptance.ACCEPTED
    used = dict(state.previous_boots).get(message.boot_id)
    if used is not None and message.sequence <= used:
        return _contended(state, message, now)
    patience = REPLACES_AFTER if used is None else RETURNS_AFTER
    if _lived(message, now) - state.alive_at >= (0.0 if state.ended else patience):
        return _accepted(state, message, now), Acceptance.ACCEPTED
    return state, Acceptance.OTHER_BOOT


def _accepted(state: SequenceState, message: Message, now: float) -> SequenceState:
    """Return the state after a message of any boot is accepted."""
    lived, left = _lived(message, now), isinstance(message, Report) and message.leaving
    if message.boot_id == state.boot_id:
        lived, before = max(state.alive_at, lived), state.previous_boots
    else:
        past = {boot: used for boot, used in state.previous_boots if boot != message.boot_id}
        if state.boot_id:
            past[state.boot_id] = state.sequence
        before = tuple(past.items())[-_BOOTS:]
    return SequenceState(message.boot_id, message.sequence, lived, left, before)


def _contended(state: SequenceState, message: Message, now: float) -> tuple[SequenceState, Acceptance]:
    """Return the same for a message with a number that its boot has used before.

    It is accepted if its boot continues with such numbers while the accepted boot sends nothing: that fixes a
    forged number that is far too high.
    """
    contender = state.contender
    if contender is None or now - contender.last > _GAP:
        contender = Contender(message.boot_id, message.sequence, now, now)
    elif contender.boot_id == message.boot_id and contender.sequence < message.sequence:
        if now - contender.since >= REPLACES_AFTER:
            return _accepted(state, message, now), Acceptance.ACCEPTED
        contender = replace(contender, sequence=message.sequence, last=now)
    return replace(state, contender=contender), Acceptance.USED_SEQUENCE


def _lived(message: Message, now: float) -> float:
    """Return when the boot of a message was running, by the receiver's clock."""
    return now - message.age if isinstance(message, Report) else now
