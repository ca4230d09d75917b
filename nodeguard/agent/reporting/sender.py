"""Tells one receiver of one node what it has not heard; what nobody has heard stays in the mailbox."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from nodeguard.agent.reporting.delivery_state import DeliveryQueue
from nodeguard.agent.reporting.http1 import DEADLINE, HttpResponse, Transport, TransportError
from nodeguard.agent.reporting.schedule import Have, Line, What, beaten, due, failed, refused, told, when
from nodeguard.agent.reporting.spool import Entry, aged, restored
from nodeguard.model.instant import Instant
from nodeguard.wire.digest import text_digest
from nodeguard.wire.encoding import EncodingError, decode_reply, encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Heartbeat, Message, Report

ITS_LOG = "its log says why"

# The status of an answer to a message that conflicts with others of its node: see wire.order.
_CONFLICT = 409

_REMEDIES = {
    401: "see that the token is one for it, and that both clocks agree",
    403: "see that the token is this node's own",
    _CONFLICT: f"see that one agent runs on the node: {ITS_LOG}",
    404: "see that the address has the path of the aggregator",
    413: "see what limits the size of requests between here and there",
} | dict.fromkeys((301, 302, 303, 307, 308), "it wants to be found elsewhere: set its address itself")


class ReplyError(Exception):
    """An answer that leaves open whether the message was heard; says why and how to remedy.

    garbled: what else comes on this connection may belong to something else, too. refused: this very message
    is not applied, whenever it is sent again; another one may be.
    """

    def __init__(self, why: str, *, garbled: bool = False, refused: bool = False) -> None:
        super().__init__(why)
        self.garbled = garbled
        self.refused = refused


# What an aggregator's own words begin with: those of whatever else stands on the way stay out of the log.
_OWN = b"nodeguard: "
_LONGEST = 400


def read_reply(answer: HttpResponse, message: Message) -> tuple[Reply, tuple[str, ...]]:
    """The reply to a message, and what was wrong with instructions in it. Raises ReplyError."""
    if answer.status != 200:
        why = _words(answer.body) or _REMEDIES.get(answer.status, ITS_LOG)
        raise ReplyError(f"it answered {answer.status}: {why}", refused=answer.status == _CONFLICT)
    try:
        reply, wrong = decode_reply(answer.body)
    except EncodingError as error:
        raise ReplyError(str(error), garbled=True) from None
    if reply.acked_sequence is not None and reply.acked_sequence != message.sequence:
        raise ReplyError("it answered another message: see what stands between here and there", garbled=True)
    return reply, wrong


def _words(body: bytes) -> str:
    """An aggregator's own words, if they can stand in a log: a printable line, and nothing like a token."""
    line = body[: _LONGEST + 1].removesuffix(b"\n")
    if not line.startswith(_OWN) or len(line) > _LONGEST:
        return ""
    text = line.removeprefix(_OWN).decode("ascii", "replace")
    return text if text.isascii() and text.isprintable() and max(map(len, text.split(" "))) < 80 else ""


# Acknowledgements in one message; the rest ride on the next one.
_ACKNOWLEDGED = 24


class Sender:
    """Belongs to a thread of its own, because its receiver may keep it waiting.

    transport: to the receiver. mailbox: what it shares with the loop and with the senders to other receivers:
    a transition is everybody's until one of them has heard it, then each is told the latest. jitter: gives a
    number from 0 to 1. tell: is given what went wrong, a sentence each, once until it is over.
    """

    def __init__(
        self,
        transport: Transport,
        mailbox: DeliveryQueue,
        jitter: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self.transport = transport
        self.line = Line()
        self._mailbox = mailbox
        self._jitter = jitter
        self._tell = tell
        # Ids of the instructions on the last reply; what was last told of the receiver.
        self._asked: tuple[str, ...] = ()
        self._said = ""

    def turn(self, now: Callable[[], Instant], within: float = DEADLINE) -> float:
        """One exchange with the receiver, if one is due. Returns seconds until the next is.

        now: gives the moment, which is another after the exchange. within: seconds for that.
        """
        what = due(self.line, self._have(), now().mono)
        if what != "nothing":
            self._exchange(what, now, within)
        return when(self.line, self._have(), now().mono)

    def leave(self, now: Callable[[], Instant], within: float) -> None:
        """Tell the receiver, if it hears, that the agent ends, with the latest report in full."""
        if self.line.failures == 0:
            self._exchange("leave", now, within)

    def stumbled(self, error: Exception) -> None:
        """Begin anew after an error that nobody thought of, and tell of it."""
        self.transport.close()
        kind = type(error).__name__
        self._say(f"{self.transport.name}: error in the agent itself, please report it: {kind}: {error}")

    def _have(self) -> Have:
        latest, spooled = self._mailbox.latest, bool(self._mailbox.state.spool)
        if latest is None:
            return Have(spooled=spooled)
        return Have(latest[0].digest, text_digest(latest[0]), spooled)

    def _exchange(self, what: What, now: Callable[[], Instant], within: float) -> None:
        entry, message = self._spooled(now()) if what == "spooled" else (None, self._current(what, now()))
        if message is None:
            return
        written = self._mailbox.written
        acknowledged = tuple(name for name in self._asked if name in written)[:_ACKNOWLEDGED]
        post = self._mailbox.state
        answers = tuple(one for one in post.inbox.results if one.id in acknowledged)
        message = replace(message, acknowledged=acknowledged, answers=answers, dropped=post.spool.dropped)
        put_off = 0.0
        try:
            answer = self.transport.post(encode(message), within)
            put_off = answer.retry_after
            reply = self._heard(answer, message)
        except (EncodingError, ReplyError, TransportError) as error:
            name = "" if isinstance(error, TransportError) else f"{self.transport.name}: "
            self._say(f"{name}{error}")
            if isinstance(error, ReplyError) and error.refused:
                self._refused(entry, now().mono)
            else:
                self.line = failed(self.line, now().mono, self._jitter(), put_off)
            return
        if entry is not None:
            self._mailbox.done(entry)
        self._said = ""
        if isinstance(message, Report):
            self.line = told(self.line, message.digest, text_digest(message), now().mono, self._jitter())
        else:
            self.line = beaten(self.line, now().mono, self._jitter(), resend=reply.resend)

    def _refused(self, entry: Entry | None, now: float) -> None:
        """Go on after a message that the receiver refuses.

        A refused transition is dropped: its age is counted from its verdict, so it is refused whenever it is
        sent. The next one is sent at once, and the latest state in full once a message is accepted.
        """
        if entry is not None:
            self._mailbox.done(entry, heard=False)
        else:
            self.line = refused(self.line, now, self._jitter())

    def _spooled(self, now: Instant) -> tuple[Entry | None, Report | None]:
        """The oldest transition that nobody has heard; one that cannot be read is left out."""
        while (first := self._mailbox.first()) is not None:
            try:
                return first, self._named(aged(*restored(first.data), now))
            except EncodingError as error:
                if self._mailbox.done(first, heard=False):
                    self._tell(str(error))
        return None, None

    def _named(self, report: Report) -> Report:
        """A report by the name that its node has now: it may have been given another one since."""
        latest = self._mailbox.latest
        return replace(report, node=latest[0].node) if latest is not None else report

    def _current(self, what: What, now: Instant) -> Message | None:
        current = self._mailbox.current(now.mono)
        if current is None:
            return None
        report, at = current
        if what != "heartbeat":
            return aged(replace(report, leaving=what == "leave"), at, now)
        return Heartbeat(
            version=VERSION,
            node=report.node,
            boot_id=report.boot_id,
            sequence=report.sequence,
            digest=report.digest,
        )

    def _heard(self, answer: HttpResponse, message: Message) -> Reply:
        """The reply to a message, its instructions in the mailbox. Raises ReplyError."""
        try:
            reply, wrong = read_reply(answer, message)
        except ReplyError as error:
            if error.garbled:
                self.transport.close()
            raise
        for complaint in wrong:
            self._say(f"{self.transport.name}: {complaint}")
        self._mailbox.receive(reply.instructions)
        self._asked = tuple(instruction.id for instruction in reply.instructions)
        return reply

    def _say(self, what: str) -> None:
        if what != self._said:
            self._said = what
            self._tell(what)
