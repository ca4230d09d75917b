"""The exchange with one aggregator: the report, transition or heartbeat that is due, and the reply to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.agent.reporting.delivery_queue import DeliveryQueue, SpoolEntry, decode_entry, set_age
from nodeguard.agent.reporting.http1 import DEADLINE, HttpResponse, Transport, TransportError
from nodeguard.agent.reporting.schedule import (
    EndpointState,
    MessageKind,
    Pending,
    after_failure,
    after_heartbeat,
    after_refusal,
    after_report,
    due_message,
    seconds_until_due,
)
from nodeguard.model.instant import Instant
from nodeguard.wire.digest import text_digest
from nodeguard.wire.encoding import EncodingError, decode_reply, encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import VERSION, Heartbeat, Message, Report

logger = logging.getLogger(__name__)

# Acknowledgements in one message; the rest follow in the next one.
_MAX_ACKNOWLEDGED = 24

# The status of a message that conflicts with others of its node: see wire.sequence.
_CONFLICT = 409

_SEE_LOG = "its log has the reason"
_REMEDIES = {
    401: "see that the token is one for it, and that both clocks agree",
    403: "see that the token is this node's own",
    _CONFLICT: f"see that one agent runs on the node: {_SEE_LOG}",
    404: "see that the address has the path of the aggregator",
    413: "see what limits the size of requests between here and there",
} | dict.fromkeys((301, 302, 303, 307, 308), "it redirects, which is not followed: set its address itself")

# The prefix of an aggregator's own errors: text of any proxy in between stays out of the log.
_OWN_ERROR = b"nodeguard: "
_MAX_ERROR = 400


class ReplyError(Exception):
    """A response that does not acknowledge the message; has the reason and the remedy.

    is_garbled: the connection may carry answers to other requests, so it must be closed. is_refused: this
    message is refused whenever it is sent again; another one may be accepted.
    """

    def __init__(self, reason: str, *, is_garbled: bool = False, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_garbled = is_garbled
        self.is_refused = is_refused


class InjectionReply(Struct, frozen=True):
    """The policy on injected faults in the latest reply of an aggregator.

    aggregator: its name. patterns: of the checks that operators may inject. at: when it last acknowledged a
    message, in seconds since boot, -inf for never.
    """

    aggregator: str
    patterns: tuple[str, ...] = ()
    at: float = -inf


class Sender:
    """Sends the reports of one node to one aggregator.

    transport: to the aggregator. queue: shared with the senders to other aggregators. A transition waits
    until one of them acknowledges it; then every aggregator gets the latest report. jitter: returns a number
    from 0 to 1. problem: why the latest message was not acknowledged; empty if it was.
    """

    def __init__(self, transport: Transport, queue: DeliveryQueue, jitter: Callable[[], float]) -> None:
        self.transport = transport
        self.endpoint = EndpointState()
        self.problem = ""
        self._queue = queue
        self._jitter = jitter
        self._instruction_ids: tuple[str, ...] = ()
        self._injectable: tuple[str, ...] = ()
        self._is_failing: bool | None = None

    @property
    def injection_reply(self) -> InjectionReply:
        """The policy on injected faults in the latest reply."""
        return InjectionReply(self.transport.name, self._injectable, self.endpoint.acked_at)

    async def send_due(self, now: Callable[[], Instant], timeout: float = DEADLINE) -> float:
        """Send one message if one is due. Return the seconds until the next is.

        now: returns the time, which is another after the exchange. timeout: seconds for the exchange.
        """
        kind = due_message(self.endpoint, self._pending(), now().mono)
        if kind != "nothing":
            await self._exchange(kind, now, timeout)
        return seconds_until_due(self.endpoint, self._pending(), now().mono)

    async def send_last(self, now: Callable[[], Instant], timeout: float) -> None:
        """Report in full that the agent ends, if the aggregator acknowledged the latest message."""
        if self.endpoint.failures == 0:
            await self._exchange("leave", now, timeout)

    def recover(self, error: Exception) -> None:
        """Close the connection after an unexpected error, and log it."""
        self.transport.close()
        self._is_failing = True
        fields = {"endpoint": self.transport.name, "error": f"{type(error).__name__}: {error}"}
        logger.error("error while a message is sent, please report it", extra=fields)

    def _pending(self) -> Pending:
        latest, is_spooled = self._queue.latest, bool(self._queue.state.spool)
        if latest is None:
            return Pending(is_spooled=is_spooled)
        return Pending(latest[0].digest, text_digest(latest[0]), is_spooled)

    async def _exchange(self, kind: MessageKind, now: Callable[[], Instant], limit: float) -> None:
        entry, message = self._spooled(now()) if kind == "spooled" else (None, self._latest(kind, now()))
        if message is None:
            return
        stored = self._queue.stored
        acknowledged = tuple(name for name in self._instruction_ids if name in stored)[:_MAX_ACKNOWLEDGED]
        state = self._queue.state
        results = tuple(result for result in state.inbox.results if result.id in acknowledged)
        dropped = state.spool.dropped
        message = replace(message, acknowledged=acknowledged, results=results, dropped=dropped)
        retry_after = 0.0
        try:
            response = await self.transport.post(encode(message), limit)
            retry_after = response.retry_after
            reply = self._receive(response, message)
        except (EncodingError, ReplyError, TransportError) as error:
            self._is_failing, self.problem = True, str(error)
            logger.warning(
                "the aggregator does not acknowledge",
                extra={"endpoint": self.transport.name, "error": self.problem},
            )
            if isinstance(error, ReplyError) and error.is_refused:
                self._refused(entry, now().mono)
            else:
                self.endpoint = after_failure(self.endpoint, now().mono, self._jitter(), retry_after)
            return
        self.problem = ""
        if entry is not None:
            self._queue.remove(entry)
        if self._is_failing is not False:
            self._is_failing = False
            logger.info("the aggregator acknowledges reports", extra={"endpoint": self.transport.name})
        mono, jitter = now().mono, self._jitter()
        if isinstance(message, Report):
            digest, text = message.digest, text_digest(message)
            self.endpoint = after_report(self.endpoint, digest, text, mono, jitter)
        else:
            self.endpoint = after_heartbeat(self.endpoint, mono, jitter, resend=reply.resend)

    def _refused(self, entry: SpoolEntry | None, now: float) -> None:
        """Continue after a message that the aggregator refuses.

        A refused transition is dropped: its age counts from its verdict, so it is refused whenever it is
        sent. The next one is sent at once, and the latest report in full once a message is accepted.
        """
        if entry is not None:
            self._queue.remove(entry, acknowledged=False)
        else:
            self.endpoint = after_refusal(self.endpoint, now, self._jitter())

    def _spooled(self, now: Instant) -> tuple[SpoolEntry | None, Report | None]:
        """Return the oldest transition in the spool, and drop those before it that cannot be decoded."""
        while (oldest := self._queue.oldest()) is not None:
            try:
                return oldest, self._rename_node(set_age(*decode_entry(oldest.data), now, self._queue.speed))
            except EncodingError as error:
                if self._queue.remove(oldest, acknowledged=False):
                    logger.warning(
                        "cannot read a stored change of the node, it is left out", extra={"error": str(error)}
                    )
        return None, None

    def _rename_node(self, report: Report) -> Report:
        """Return a report with the present name of its node, which may have changed since."""
        latest = self._queue.latest
        return replace(report, node=latest[0].node) if latest is not None else report

    def _latest(self, kind: MessageKind, now: Instant) -> Message | None:
        numbered = self._queue.number_latest(now.mono)
        if numbered is None:
            return None
        report, at = numbered
        if kind != "heartbeat":
            return set_age(replace(report, leaving=kind == "leave"), at, now, self._queue.speed)
        return Heartbeat(
            version=VERSION,
            node=report.node,
            boot_id=report.boot_id,
            sequence=report.sequence,
            digest=report.digest,
        )

    def _receive(self, response: HttpResponse, message: Message) -> Reply:
        """Return the reply to a message, and queue what it has for the agent. Raises ReplyError."""
        try:
            reply, errors = read_reply(response, message)
        except ReplyError as error:
            if error.is_garbled:
                self.transport.close()
            raise
        for message_error in errors:
            logger.warning(
                "the aggregator sent an invalid instruction",
                extra={"endpoint": self.transport.name, "error": message_error},
            )
        self._queue.receive(reply.instructions)
        self._injectable = reply.injectable
        self._instruction_ids = tuple(instruction.id for instruction in reply.instructions)
        return reply


def read_reply(response: HttpResponse, message: Message) -> tuple[Reply, tuple[str, ...]]:
    """Return the reply to a message, and an error for each instruction that is invalid. Raises ReplyError."""
    if response.status != 200:
        reason = _own_error(response.body) or _REMEDIES.get(response.status, _SEE_LOG)
        raise ReplyError(f"it answered {response.status}: {reason}", is_refused=response.status == _CONFLICT)
    try:
        reply, errors = decode_reply(response.body)
    except EncodingError as error:
        raise ReplyError(str(error), is_garbled=True) from None
    if reply.acked_sequence is not None and reply.acked_sequence != message.sequence:
        raise ReplyError("it answered another message: see which proxy is in between", is_garbled=True)
    return reply, errors


def _own_error(body: bytes) -> str:
    """Return an aggregator's own error if it is safe to log: one printable line, and nothing like a token."""
    line = body[: _MAX_ERROR + 1].removesuffix(b"\n")
    if not line.startswith(_OWN_ERROR) or len(line) > _MAX_ERROR:
        return ""
    text = line.removeprefix(_OWN_ERROR).decode("ascii", "replace")
    return text if text.isascii() and text.isprintable() and max(map(len, text.split(" "))) < 80 else ""
