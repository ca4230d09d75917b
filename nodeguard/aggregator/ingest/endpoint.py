"""The message endpoint: authenticates the sender of a request, applies the limits and returns the reply."""

from __future__ import annotations

import logging
import ssl
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web
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
from nodeguard.aggregator.ingest.connection import AgentConnection
from nodeguard.aggregator.ingest.connection_limiter import ConnectionLimiter
from nodeguard.aggregator.ingest.limits import IngestLimits, cost, retry_after
from nodeguard.local.certificate_validity import validity_problem
from nodeguard.local.rate_limiter import KeyedRateLimiter
from nodeguard.wire.encoding import MESSAGE_LIMIT, EncodingError, decode_message, encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import Message

# Messages up to this size do not count against the memory limit.
SMALL = 16 * 1024

_TOO_LARGE = f"a message has at most {MESSAGE_LIMIT} bytes: check that the sender is a nodeguard agent"


class BodyMemory:
    """Memory for large messages that are being read, of all connections together, in bytes."""

    def __init__(self, most: int) -> None:
        self._left = most

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Reserve memory for a message. Raises RequestRefusedError if there is none now."""
        if size > self._left:
            raise RequestRefusedError(503, "too many large messages at once: wait", 2.0)
        self._left -= size
        try:
            yield
        finally:
            self._left += size


def expected_size(request: web.BaseRequest) -> int:
    """Return the maximum size of a body by the header. Raises RequestRefusedError if it is too large."""
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise RequestRefusedError(415, "messages must not be compressed: check the proxies on the way")
    length = request.content_length
    if length is None:
        return MESSAGE_LIMIT
    if length > MESSAGE_LIMIT:
        raise RequestRefusedError(413, _TOO_LARGE)
    return length


async def read_body(request: web.BaseRequest) -> bytes:
    """Return the body of a request. Raises RequestRefusedError if it is too large."""
    content = request.content
    parts, size = [], 0
    while not content.at_eof():
        part = await content.readany()
        size += len(part)
        if size > MESSAGE_LIMIT:
            raise RequestRefusedError(413, _TOO_LARGE)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


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
    accepted messages. wall: returns seconds since 1970; clock: seconds of the event loop.
    on_refused: is called with the name of an authenticated node and the error if its message is refused.
    on_handled: is called with the message kind and the seconds from the body to the reply.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        handle: MessageHandler,
        limits: IngestLimits,
        connections: ConnectionLimiter,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.connection_errors: Counter[str] = Counter()
        self.received_bytes = 0
        self.on_refused: Callable[[str, RequestRefusedError], object] = lambda *_: None
        self.on_handled: Callable[[str, float], object] = lambda *_: None
        self._authenticator = authenticator
        self._handle = handle
        self._limits = limits
        self._connections = connections
        self._clock = clock
        self._wall = wall
        self._body_memory = BodyMemory(limits.body_bytes)
        self._node_rates = KeyedRateLimiter(limits.node_rate, _NODES)
        self._failure_rates = KeyedRateLimiter(limits.failure_rate, _ADDRESSES)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the response to a request."""
        connection = request.protocol
        assert isinstance(connection, AgentConnection)
        connection.begin_request()
        try:
            return await self._answer(request, connection)
        except RequestRefusedError as refused:
            sender = {"node": refused.node} if refused.node else {"address": connection.slot.address}
            logger.warning(
                "request refused", extra={**sender, "status": refused.status, "reason": str(refused)}
            )
            if refused.node and refused.status < 500:
                self.on_refused(refused.node, refused)
            return self._refusal(refused)
        except (RequestPayloadError, ConnectionError):
            return self._refusal(RequestRefusedError(400, "the message is incomplete: send it again"))
        except Exception as error:  # noqa: BLE001 - one message must not end the server
            logger.error(  # noqa: TRY400 - the error may quote the client
                "internal error in a request, please report it", extra={"error": _location(error)}
            )
            return self._refusal(RequestRefusedError(500, "internal error of the aggregator: see its log"))
        finally:
            connection.end_request(whole=request.content.is_eof())

    def client_certificate_refused(self, address: str, error: ssl.SSLCertVerificationError) -> None:
        """Count and log an invalid client certificate: TLS cannot send the reason to the client."""
        self.connection_errors[HANDSHAKE_FAILED] += 1
        problem = validity_problem(error, self._wall()) or (
            f"is not trusted ({error.verify_message}): have it signed by the CA of --client-ca"
        )
        logger.warning("client certificate refused", extra={"address": address, "reason": f"it {problem}"})

    def connection_rejected(self, address: str, reason: str) -> None:
        """Count and log a connection that exceeds a limit."""
        self.connection_errors[LIMIT_REACHED] += 1
        logger.warning("connection rejected", extra={"address": address, "reason": reason})

    async def _answer(self, request: web.BaseRequest, connection: AgentConnection) -> web.StreamResponse:
        if request.method != "POST" or request.path != MESSAGES_PATH:
            raise RequestRefusedError(
                404, f"messages are accepted by POST at {MESSAGES_PATH}: set this path in the agent's address"
            )
        size = expected_size(request)
        if wait := connection.bucket.take(self._clock(), cost(size)):
            raise RequestRefusedError(429, _TOO_OFTEN, wait)
        identity = await self._identity(request, connection)
        node = identity.node_names[0] if identity.node_names else ""
        try:
            message, length = await self._message(request, size)
            caller = authorize(identity, message.node)
            node = caller.node
            body = self._reply(caller, message, length)
        except RequestRefusedError as refused:
            refused.node = node
            raise
        return web.Response(body=body, content_type="application/json")

    async def _message(self, request: web.BaseRequest, size: int) -> tuple[Message, int]:
        """Return the message of a request and its size in bytes. size: the limit that the header gives."""
        if size > SMALL:
            with self._body_memory.reserved(size):
                body = await read_body(request)
        else:
            body = await read_body(request)
        try:
            return decode_message(body), len(body)
        except EncodingError as error:
            raise RequestRefusedError(400, str(error)) from None

    def _reply(self, caller: Caller, message: Message, size: int) -> bytes:
        started = self._clock()
        if wait := self._node_rates.take(caller.uid, started, cost(size)):
            raise RequestRefusedError(429, _TOO_OFTEN, wait)
        reply = _encode_reply(self._handle(caller, message))
        kind = type(message).__name__.lower()
        self.requests[kind, 200] += 1
        self.received_bytes += size
        self.on_handled(kind, self._clock() - started)
        return reply

    async def _identity(self, request: web.BaseRequest, connection: AgentConnection) -> VerifiedIdentity:
        """Return the sender of a request. Raises RequestRefusedError."""
        presented = PresentedCredentials(request.headers.get("Authorization", ""), connection.certificate)
        now = self._wall()
        slot = connection.slot
        identity = self._authenticator.cached(presented, now)
        if identity is None:
            identity = await self._authenticate(presented, now, slot.address)
        if not slot.is_authenticated and not self._connections.authenticated(slot, _connection_key(identity)):
            refused = RequestRefusedError(429, _TOO_MANY_CONNECTIONS, 1.0, reason=_TOO_MANY_REASON)
            refused.node = identity.node_names[0] if identity.node_names else ""
            raise refused
        return identity

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

    def _refusal(self, refused: RequestRefusedError) -> web.Response:
        self.requests[_UNKNOWN_KIND, refused.status] += 1
        headers = {"Retry-After": retry_after(refused.retry_after)} if refused.retry_after else None
        response = web.Response(status=refused.status, text=f"nodeguard: {refused}\n", headers=headers)
        if refused.status in {404, 413, 415} or refused.reason == _TOO_MANY_REASON:
            response.force_close()
        return response


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
