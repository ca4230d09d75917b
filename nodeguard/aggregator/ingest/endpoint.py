"""The message endpoint: authenticates the sender of a request, applies the limits and returns the reply."""

from __future__ import annotations

import logging
import ssl
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial

from aiohttp.web_protocol import RequestPayloadError
from msgspec.structs import replace

from nodeguard.aggregator.identity.caller import (
    Authenticator,
    Caller,
    PresentedCredentials,
    RequestRefusedError,
    VerifiedIdentity,
    authorize,
)
from nodeguard.aggregator.ingest.body import SMALL, BodyMemory, expected_size, read_body
from nodeguard.aggregator.ingest.connection import AgentConnection, LaterResponse, Request
from nodeguard.aggregator.ingest.connection_limiter import ConnectionLimiter
from nodeguard.aggregator.ingest.limits import IngestLimits, cost
from nodeguard.aggregator.ingest.response import Response, text_response
from nodeguard.local.certificate_validity import validity_problem
from nodeguard.local.rate_limiter import KeyedRateLimiter
from nodeguard.wire.encoding import EncodingError, decode_printable_message, encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import Message

logger = logging.getLogger(__name__)

MESSAGES_PATH = "/v1/messages"

# Reasons of connection errors, for metrics.
HANDSHAKE_FAILED, TIMEOUT, LIMIT_REACHED = "handshake-failed", "timeout", "limit-reached"

# The kind of a request without a valid message, for metrics.
_UNKNOWN_KIND = "unknown"

# Nodes and addresses with a rate limit of their own.
_NODES = 65_536
_ADDRESSES = 8192


_TOO_OFTEN = "messages come too often: check that only one agent runs on the node"
_TOO_MANY_CONNECTIONS = (
    "too many connections of this node are in use at once: check that only one agent runs on the node"
)
_TOO_MANY_REASON = "too-many-connections"

# Returns the reply to a message at once. Raises RequestRefusedError if the message is not applied.
MessageHandler = Callable[[Caller, Message], Reply]


class MessageEndpoint:
    """Answers the requests of agents.

    requests: count by message kind and HTTP status. connection_errors: count by reason. received_bytes: of
    accepted messages. clock: returns seconds of the event loop.
    on_refused: is called with the name of a node and the error if its message is refused, or its credential,
    which has a verified signature.
    on_handled: is called with the message kind and the seconds from the body to the reply.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        handle: MessageHandler,
        limits: IngestLimits,
        connections: ConnectionLimiter,
        clock: Callable[[], float],
        *,
        on_refused: Callable[[str, RequestRefusedError], object],
        on_handled: Callable[[str, float], object],
    ) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.connection_errors: Counter[str] = Counter()
        self.received_bytes = 0
        self._on_refused = on_refused
        self._on_handled = on_handled
        self._authenticator = authenticator
        self._handle = handle
        self._limits = limits
        self._connections = connections
        self._clock = clock
        self._body_memory = BodyMemory(limits.body_bytes)
        self._node_rates = KeyedRateLimiter(limits.node_rate, _NODES)
        self._failure_rates = KeyedRateLimiter(limits.failure_rate, _ADDRESSES)

    def __call__(self, request: Request, connection: AgentConnection) -> Response | LaterResponse:
        """Return the response to a request at once, if its sender is authenticated and it is complete; else
        a function that waits for it.
        """
        try:
            size = self._check(request, connection)
            credentials = _credentials(request, connection)
            identity = self._authenticator.cached(credentials, time.time())
            if identity is None or not request.body.is_eof():
                return partial(self._later, request, connection, size, credentials)
            self._count_connection(identity, connection)
            return self._message(identity, request.body.read_nowait())
        except Exception as error:  # noqa: BLE001 - one message must not end the server
            return self._failure(error, connection)

    async def _later(
        self, request: Request, connection: AgentConnection, size: int, credentials: PresentedCredentials
    ) -> Response:
        """Return the response to a request. size: the maximum of its body in bytes."""
        try:
            now = time.time()
            identity = self._authenticator.cached(credentials, now)
            if identity is None:
                identity = await self._authenticate(credentials, now, connection.slot.address)
            self._count_connection(identity, connection)
            if size <= SMALL:
                return self._message(identity, await read_body(request.body))
            with self._body_memory.reserved(size):
                return self._message(identity, await read_body(request.body))
        except Exception as error:  # noqa: BLE001 - one message must not end the server
            return self._failure(error, connection)

    def _failure(self, error: Exception, connection: AgentConnection) -> Response:
        """Log an error of a request. Returns the response."""
        if isinstance(error, RequestPayloadError | ConnectionError):
            error = RequestRefusedError(400, "the message is incomplete: send it again")
        elif isinstance(error, RequestRefusedError):
            sender = {"node": error.node} if error.node else {"address": connection.slot.address}
            logger.warning("request refused", extra={**sender, "status": error.status, "reason": str(error)})
            if error.node and error.status < 500:
                self._on_refused(error.node, error)
        else:
            # The error may quote the client.
            logger.error("internal error in a request, please report it", extra={"error": _location(error)})
            error = RequestRefusedError(500, "internal error of the aggregator: see its log")
        self.requests[_UNKNOWN_KIND, error.status] += 1
        closes = error.status in {404, 413, 415} or error.reason == _TOO_MANY_REASON
        return text_response(error.status, str(error), error.retry_after, closes=closes)

    def client_certificate_refused(self, address: str, error: ssl.SSLCertVerificationError) -> None:
        """Count and log an invalid client certificate: TLS cannot send the reason to the client."""
        self.connection_errors[HANDSHAKE_FAILED] += 1
        problem = validity_problem(error, time.time()) or (
            f"is not trusted ({error.verify_message}): have it signed by the CA of --client-ca"
        )
        logger.warning("client certificate refused", extra={"address": address, "reason": f"it {problem}"})

    def connection_rejected(self, address: str, reason: str) -> None:
        """Count and log a connection that exceeds a limit."""
        self.connection_errors[LIMIT_REACHED] += 1
        logger.warning("connection rejected", extra={"address": address, "reason": reason})

    def _check(self, request: Request, connection: AgentConnection) -> int:
        """Return the maximum size of a body in bytes. Raises RequestRefusedError by the header."""
        if request.head.method != "POST" or request.head.path.partition("?")[0] != MESSAGES_PATH:
            raise RequestRefusedError(
                404, f"messages are accepted by POST at {MESSAGES_PATH}: set this path in the agent's address"
            )
        size = expected_size(request)
        if wait := connection.bucket.take(self._clock(), cost(size)):
            raise RequestRefusedError(429, _TOO_OFTEN, wait)
        return size

    def _message(self, identity: VerifiedIdentity, body: bytes) -> Response:
        """Return the response to a message of an authenticated sender. Raises RequestRefusedError."""
        node = _first_node(identity)
        try:
            try:
                message = decode_printable_message(body)
            except EncodingError as error:
                raise RequestRefusedError(400, str(error)) from None
            caller = authorize(identity, message.node)
            node = caller.node
            return Response(200, self._reply(caller, message, len(body)))
        except RequestRefusedError as refused:
            refused.node = node
            raise

    def _reply(self, caller: Caller, message: Message, size: int) -> bytes:
        started = self._clock()
        if wait := self._node_rates.take(caller.uid, started, cost(size)):
            raise RequestRefusedError(429, _TOO_OFTEN, wait)
        reply = _encode_reply(self._handle(caller, message))
        kind = type(message).__name__.lower()
        self.requests[kind, 200] += 1
        self.received_bytes += size
        self._on_handled(kind, self._clock() - started)
        return reply

    def _count_connection(self, identity: VerifiedIdentity, connection: AgentConnection) -> None:
        """Count a connection for its sender. Raises RequestRefusedError if the sender has too many."""
        slot = connection.slot
        if not slot.is_authenticated and not self._connections.authenticated(slot, _connection_key(identity)):
            refused = RequestRefusedError(429, _TOO_MANY_CONNECTIONS, 1.0, reason=_TOO_MANY_REASON)
            refused.node = _first_node(identity)
            raise refused

    async def _authenticate(
        self, presented: PresentedCredentials, now: float, address: str
    ) -> VerifiedIdentity:
        """Authenticate a sender. An address with many failures has to wait, which limits the cryptography."""
        if wait := self._failure_rates.take(address, self._clock()):
            raise RequestRefusedError(429, "too many failed authentications of this address: wait", wait)
        try:
            identity = await self._authenticator.authenticate(presented, now)
        except RequestRefusedError as refused:
            if refused.status not in {401, 403}:
                self._failure_rates.refund(address)
            raise
        self._failure_rates.refund(address)
        return identity


def _credentials(request: Request, connection: AgentConnection) -> PresentedCredentials:
    return PresentedCredentials(request.head.headers.get("Authorization", ""), connection.certificate)


def _first_node(identity: VerifiedIdentity) -> str:
    """Return the first node that an identity may report for; empty if it may report for any node."""
    return identity.node_names[0] if identity.node_names else ""


def _connection_key(identity: VerifiedIdentity) -> str:
    """Return a key for the owner of a credential, equal for all of the owner's credentials. Empty if the
    identity may report for any node.
    """
    return identity.uid or " ".join(identity.node_names or ())


def _location(error: Exception) -> str:
    """Return where an error was raised. Its own message may contain what the client sent."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {frame.filename}:{frame.lineno}"


def _encode_reply(reply: Reply) -> bytes:
    """Encode a reply. Instructions that do not fit wait for the next reply: each is repeated."""
    while True:
        try:
            return encode(reply)
        except EncodingError:
            if not reply.instructions:
                raise
            reply = replace(reply, instructions=reply.instructions[: len(reply.instructions) // 2])
