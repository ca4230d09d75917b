"""Tells every receiver of one node what it has not heard; what nobody has heard waits in the spool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.agent.kept import aged, keep, restored
from nodeguard.agent.mailbox import Mailbox
from nodeguard.agent.replies import ReplyError, read
from nodeguard.agent.sending import Have, Line, What, beaten, due, failed, sequence, told, when
from nodeguard.agent.spool import Spool
from nodeguard.agent.transport import DEADLINE, Answer, Transport, TransportError
from nodeguard.model.instant import Instant
from nodeguard.wire.digest import wording
from nodeguard.wire.encoding import EncodingError, encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Heartbeat, Message, Report

# Acknowledgements in one message; the rest ride on the next one.
_ACKNOWLEDGED = 24

# Seconds until a sender without a receiver looks again.
_IDLE = 60.0


class _Receiver(Struct):
    """One receiver. asked: ids of the instructions on its last reply. said: what was last told of it."""

    transport: Transport
    line: Line = Line()
    asked: tuple[str, ...] = ()
    said: str = ""


class Sender:
    """Belongs to a thread of its own, because a receiver or a disk may keep it waiting.

    transports: one to each receiver; each must hear. mailbox: what it shares with the loop. jitter: gives a
    number from 0 to 1. tell: is given what went wrong, a sentence each, once until it is over.
    """

    def __init__(
        self,
        transports: Sequence[Transport],
        mailbox: Mailbox,
        spool: Spool,
        jitter: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self._receivers = [_Receiver(transport) for transport in transports]
        self._mailbox = mailbox
        self._spool = spool
        self._jitter = jitter
        self._tell = tell
        self._latest: tuple[Report, Instant] | None = None
        self._wording = ""
        self._sequence = -1

    def turn(self, now: Instant, within: float = DEADLINE) -> float:
        """One exchange with each receiver that is due. Returns seconds until the next is due.

        within: seconds for each exchange. Receivers that hear go first: one that is gone delays none.
        """
        self._gather()
        for one in sorted(self._receivers, key=lambda one: one.line.failures):
            what = due(one.line, self._have(), now.mono)
            if what != "nothing":
                self._exchange(one, what, now, within)
        for note in self._spool.take_notes():
            self._tell(note)
        return min((when(one.line, self._have(), now.mono) for one in self._receivers), default=_IDLE)

    def close(self) -> None:
        """Close every connection."""
        for one in self._receivers:
            one.transport.close()

    def _gather(self) -> None:
        """Put what changed into the spool before any of it is sent: a kill from there on loses nothing."""
        for report, instant in self._mailbox.collect():
            before, self._latest = self._latest, (report, instant)
            self._wording = wording(report)
            if before is None or before[0].digest != report.digest:
                self._sequence = sequence(self._sequence, instant.mono)
                self._spool.put(keep(replace(report, sequence=self._sequence), instant))
        self._spool.settle()

    def _have(self) -> Have:
        digest = self._latest[0].digest if self._latest else ""
        return Have(digest, self._wording, len(self._spool) > 0)

    def _exchange(self, one: _Receiver, what: What, now: Instant, within: float) -> None:
        number, message = self._spooled(now) if what == "spooled" else (None, self._current(what, now))
        if message is None:
            return
        done = self._mailbox.inbox.done
        acknowledged = tuple(name for name in one.asked if name in done)[:_ACKNOWLEDGED]
        message = replace(
            message, acknowledged=acknowledged, dropped=self._spool.dropped + self._mailbox.lost
        )
        put_off = 0.0
        try:
            answer = one.transport.post(encode(message), within)
            put_off = answer.put_off
            reply = self._heard(one, answer, message, refusable=number is not None)
        except (EncodingError, ReplyError, TransportError) as error:
            name = "" if isinstance(error, TransportError) else f"{one.transport.name}: "
            self._say(one, f"{name}{error}")
            one.line = failed(one.line, now.mono, self._jitter(), put_off)
            return
        if number is not None:
            if reply.refused:
                self._spool.refuse(number, f"the log of {one.transport.name} says why")
                return
            self._spool.done(number)
        one.said = ""
        if isinstance(message, Report):
            one.line = told(one.line, message.digest, wording(message), now.mono, self._jitter())
        else:
            one.line = beaten(one.line, now.mono, self._jitter(), resend=reply.resend)

    def _spooled(self, now: Instant) -> tuple[int | None, Report | None]:
        """The oldest transition with its number in the spool; one that cannot be read is left out."""
        while (first := self._spool.first()) is not None:
            number, data = first
            try:
                return number, aged(*restored(data), now)
            except EncodingError as error:
                self._spool.refuse(number, str(error))
        return None, None

    def _current(self, what: What, now: Instant) -> Message | None:
        if self._latest is None:
            return None
        report, at = self._latest
        self._sequence = sequence(self._sequence, now.mono)
        if what == "report":
            return aged(replace(report, sequence=self._sequence), at, now)
        return Heartbeat(
            version=VERSION,
            node=report.node,
            boot_id=report.boot_id,
            sequence=self._sequence,
            digest=report.digest,
        )

    def _heard(self, one: _Receiver, answer: Answer, message: Message, *, refusable: bool) -> Reply:
        """The reply to a message, its instructions in the mailbox. Raises ReplyError."""
        try:
            reply, wrong = read(answer, message, refusable=refusable)
        except ReplyError as error:
            if error.garbled:
                one.transport.close()
            raise
        for complaint in wrong:
            self._say(one, f"{one.transport.name}: {complaint}")
        self._mailbox.receive(reply.instructions)
        one.asked = tuple(instruction.id for instruction in reply.instructions)
        return reply

    def _say(self, one: _Receiver, what: str) -> None:
        if what != one.said:
            one.said = what
            self._tell(what)
