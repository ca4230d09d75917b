"""Tells every receiver of one node what it has not heard; what nobody has heard stays in the mailbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.agent.reporting.kept import aged, restored
from nodeguard.agent.reporting.mailbox import Mailbox
from nodeguard.agent.reporting.replies import ITS_LOG, ReplyError, read
from nodeguard.agent.reporting.sending import Have, Line, What, beaten, due, failed, told, when
from nodeguard.agent.reporting.spool import Entry
from nodeguard.agent.reporting.transport import DEADLINE, Answer, Transport, TransportError
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
    """Belongs to a thread of its own, because a receiver may keep it waiting.

    transports: one to each receiver; each must hear. mailbox: what it shares with the loop. jitter: gives a
    number from 0 to 1. tell: is given what went wrong, a sentence each, once until it is over.
    """

    def __init__(
        self,
        transports: Sequence[Transport],
        mailbox: Mailbox,
        jitter: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self._receivers = [_Receiver(transport) for transport in transports]
        self._mailbox = mailbox
        self._jitter = jitter
        self._tell = tell

    def turn(self, now: Instant, within: float = DEADLINE) -> float:
        """One exchange with each receiver that is due. Returns seconds until the next is due.

        within: seconds for each exchange. Receivers that hear go first: one that is gone delays none.
        """
        for one in sorted(self._receivers, key=lambda one: one.line.failures):
            what = due(one.line, self._have(), now.mono)
            if what != "nothing":
                self._exchange(one, what, now, within)
        return min((when(one.line, self._have(), now.mono) for one in self._receivers), default=_IDLE)

    def heard(self) -> dict[str, float]:
        """When each receiver last heard of this node, in seconds since boot, by its name; -inf for never."""
        return {one.transport.name: one.line.heard for one in self._receivers}

    def leave(self, now: Instant, within: float) -> None:
        """Tell each receiver that hears that the agent ends, with the latest report in full.

        within: seconds for all of them.
        """
        for one in self._receivers:
            if one.line.failures == 0:
                self._exchange(one, "leave", now, within / len(self._receivers))

    def close(self) -> None:
        """Close every connection."""
        for one in self._receivers:
            one.transport.close()

    def _have(self) -> Have:
        latest, spooled = self._mailbox.latest, bool(self._mailbox.post.spool)
        if latest is None:
            return Have(spooled=spooled)
        return Have(latest[0].digest, wording(latest[0]), spooled)

    def _exchange(self, one: _Receiver, what: What, now: Instant, within: float) -> None:
        entry, message = self._spooled(now) if what == "spooled" else (None, self._current(what, now))
        if message is None:
            return
        written = self._mailbox.written
        acknowledged = tuple(name for name in one.asked if name in written)[:_ACKNOWLEDGED]
        message = replace(message, acknowledged=acknowledged, dropped=self._mailbox.post.spool.dropped)
        put_off = 0.0
        try:
            answer = one.transport.post(encode(message), within)
            put_off = answer.put_off
            reply = self._heard(one, answer, message, refusable=entry is not None)
        except (EncodingError, ReplyError, TransportError) as error:
            name = "" if isinstance(error, TransportError) else f"{one.transport.name}: "
            self._say(one, f"{name}{error}")
            one.line = failed(one.line, now.mono, self._jitter(), put_off)
            return
        if entry is not None:
            self._mailbox.done(entry, heard=not reply.refused)
            if reply.refused:
                self._tell(f"{one.transport.name}: it refuses a transition for good: {ITS_LOG}")
                return
        one.said = ""
        if isinstance(message, Report):
            one.line = told(one.line, message.digest, wording(message), now.mono, self._jitter())
        else:
            one.line = beaten(one.line, now.mono, self._jitter(), resend=reply.resend)

    def _spooled(self, now: Instant) -> tuple[Entry | None, Report | None]:
        """The oldest transition that nobody has heard; one that cannot be read is left out."""
        while (first := self._mailbox.first()) is not None:
            try:
                return first, aged(*restored(first.data), now)
            except EncodingError as error:
                self._mailbox.done(first, heard=False)
                self._tell(str(error))
        return None, None

    def _current(self, what: What, now: Instant) -> Message | None:
        number, latest = self._mailbox.number(now.mono), self._mailbox.latest
        if number is None or latest is None:
            return None
        report, at = latest
        if what != "heartbeat":
            return aged(replace(report, sequence=number, leaving=what == "leave"), at, now)
        return Heartbeat(
            version=VERSION,
            node=report.node,
            boot_id=report.boot_id,
            sequence=number,
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
