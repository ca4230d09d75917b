"""One message and its answer: who sends it, whether it may, what is replied."""

from __future__ import annotations

import ssl
import time
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable

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
from nodeguard.aggregator.ingest.body import SMALL, BodyMemory, expected_size, read_body
from nodeguard.aggregator.ingest.connection import AgentConnection
from nodeguard.aggregator.ingest.connection_limiter import ConnectionLimiter
from nodeguard.aggregator.ingest.limits import Bucket, Buckets, IngestLimits, Rate, cost, retry_after
from nodeguard.local.certificate_validity import validity_problem
from nodeguard.wire.encoding import EncodingError, decode_message, encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import Message

# Seconds until the same is said of the same again; complaints that are remembered; lines in all.
_AGAIN = 600.0
_MOST = 2048
_LINES = Rate(20.0, 0.2)


class RejectionLog:
    """tell: is given a sentence."""

    def __init__(self, tell: Callable[[str], None], now: float) -> None:
        self._tell = tell
        self._said: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._lines = Bucket(_LINES, now)
        self._left_out = 0

    def add(self, who: str, what: str, now: float) -> None:
        """Complain of somebody. who: an address, or a node that has shown that it is it."""
        said = self._said.get((who, what))
        if said is not None and now < said + _AGAIN:
            return
        if self._lines.take(_LINES, now):
            self._left_out += 1
            return
        self._said[who, what] = now
        self._said.move_to_end((who, what))
        if len(self._said) > _MOST:
            self._said.popitem(last=False)
        before = (
            f" ({self._left_out} other complaints were left out before this one)" if self._left_out else ""
        )
        self._left_out = 0
        self._tell(f"{who}: {what}{before}")


MESSAGES_PATH = "/v1/messages"

# Nodes, and addresses, whose rates are remembered.
_NODES = 65_536
_ADDRESSES = 8192

# Answers a message at once. Raises RefusedError where the message is not applied: see wire.order.
MessageHandler = Callable[[Caller, Message], Reply]


class MessageEndpoint:
    """Answers requests. counts: of messages by kind, of those refused by status, and of bytes.

    wall: gives seconds since 1970; clock: those of the loop. on_refused: is called with the name of a node
    that has shown its credential, and with the reason why its message is refused.
    """

    def __init__(
        self,
        identity: Authenticator,
        hear: MessageHandler,
        limits: IngestLimits,
        door: ConnectionLimiter,
        tell: Callable[[str], None],
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.on_refused: Callable[[str, RequestRefusedError], object] = lambda *_: None
        self._identity = identity
        self._hear = hear
        self._limits = limits
        self._door = door
        self._clock = clock
        self._wall = wall
        self._room = BodyMemory(limits.body_bytes)
        self._nodes = Buckets(limits.node_rate, _NODES)
        self._failures = Buckets(limits.failure_rate, _ADDRESSES)
        self._complaints = RejectionLog(tell, clock())

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a request."""
        connection = request.protocol
        assert isinstance(connection, AgentConnection)
        connection.begin_request()
        try:
            return await self._answer(request, connection)
        except RequestRefusedError as refused:
            self._complaints.add(refused.node or connection.slot.address, str(refused), self._clock())
            if refused.node and refused.status < 500:
                self.on_refused(refused.node, refused)
            return self._refusal(refused)
        except (RequestPayloadError, ConnectionError):
            return self._refusal(RequestRefusedError(400, "the message broke off on its way: send it again"))
        except Exception as error:  # noqa: BLE001 - one message that cannot be answered ends no server
            self._complaints.add("ingest", _told(error), self._clock())
            return self._refusal(RequestRefusedError(500, "error in the aggregator itself: see its log"))
        finally:
            connection.end_request(whole=request.content.is_eof())

    def untrusted(self, address: str, error: ssl.SSLCertVerificationError) -> None:
        """Log that a client's certificate is refused, which TLS itself cannot tell the client in words."""
        self.counts["handshakes failed"] += 1
        problem = validity_problem(error, self._wall()) or (
            f"is not trusted ({error.verify_message}): have it signed by the authority for agents"
        )
        self._complaints.add(address, f"its certificate {problem}", self._clock())

    def not_accepted(self, address: str, why: str) -> None:
        """Count and log that a connection of an address is not accepted."""
        self.counts["not accepted"] += 1
        self._complaints.add(address, why, self._clock())

    async def _answer(self, request: web.BaseRequest, connection: AgentConnection) -> web.StreamResponse:
        if request.method != "POST" or request.path != MESSAGES_PATH:
            raise RequestRefusedError(
                404, f"messages are taken by POST at {MESSAGES_PATH}: set that as the address's path"
            )
        size = expected_size(request)
        if wait := connection.bucket.take(self._limits.connection_rate, self._clock(), cost(size)):
            raise RequestRefusedError(429, _OFTEN, wait)
        credential = await self._who(request, connection)
        node = credential.node_names[0] if credential.node_names else ""
        try:
            message, length = await self._message(request, size)
            caller = authorize(credential, message.node)
            node = caller.node
            answer = self._answered(caller, message, length)
        except RequestRefusedError as refused:
            refused.node = node
            raise
        return web.Response(body=answer, content_type="application/json")

    async def _message(self, request: web.BaseRequest, size: int) -> tuple[Message, int]:
        """The message of a request, and how many bytes it has. size: how many it may have, by its head."""
        if size > SMALL:
            with self._room.reserved(size):
                body = await read_body(request)
        else:
            body = await read_body(request)
        try:
            return decode_message(body), len(body)
        except EncodingError as error:
            raise RequestRefusedError(400, str(error)) from None

    def _answered(self, caller: Caller, message: Message, size: int) -> bytes:
        if wait := self._nodes.take(caller.uid, self._clock(), cost(size)):
            raise RequestRefusedError(429, _OFTEN, wait)
        answer = _encoded(self._hear(caller, message))
        self.counts[type(message).__name__.lower()] += 1
        self.counts["bytes"] += size
        return answer

    async def _who(self, request: web.BaseRequest, connection: AgentConnection) -> VerifiedIdentity:
        shown = PresentedCredentials(request.headers.get("Authorization", ""), connection.certificate)
        now = self._wall()
        credential = self._identity.cached(shown, now)
        if credential is None:
            credential = await self._identified(shown, now, connection.slot.address)
        guest = connection.slot
        if not guest.is_authenticated and not self._door.authenticated(guest, _caller(credential)):
            refused = RequestRefusedError(429, _CONNECTIONS, 1.0, reason=_TOO_MANY)
            refused.node = credential.node_names[0] if credential.node_names else ""
            raise refused
        return credential

    async def _identified(self, shown: PresentedCredentials, now: float, address: str) -> VerifiedIdentity:
        """Who asks, where that is not known yet; whoever fails often must wait before it is looked into."""
        if wait := self._failures.take(address, self._clock()):
            raise RequestRefusedError(429, "too many callers of this address were not let in: wait", wait)
        try:
            credential = await self._identity.authenticate(shown, now)
        except RequestRefusedError as refused:
            if refused.status not in {401, 403}:
                self._failures.give_back(address)
            raise
        self._failures.give_back(address)
        return credential

    def _refusal(self, refused: RequestRefusedError) -> web.Response:
        self.counts[f"refused {refused.status}"] += 1
        headers = {"Retry-After": retry_after(refused.retry_after)} if refused.retry_after else None
        answer = web.Response(status=refused.status, text=f"nodeguard: {refused}\n", headers=headers)
        if refused.status in {404, 413, 415} or refused.reason == _TOO_MANY:
            answer.force_close()
        return answer


_TOO_MANY = "too-many-connections"
_CONNECTIONS = (
    "too many connections of this node are in use at once: see that only one agent runs on the node"
)
_OFTEN = "messages come too often: see that only one agent runs on the node"


def _caller(credential: VerifiedIdentity) -> str:
    """Return a name for the owner of a credential, equal for each of its credentials; empty where the caller
    may speak for any node.
    """
    return credential.uid or " ".join(credential.node_names or ())


def _told(error: Exception) -> str:
    """Where an error arose; its own words may hold what was sent."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    kind = type(error).__name__
    return f"error in the aggregator itself, please report it: {kind} at {frame.filename}:{frame.lineno}"


def _encoded(reply: Reply) -> bytes:
    """A reply as bytes; instructions that do not fit are left for the next one, since each is repeated."""
    while True:
        try:
            return encode(reply)
        except EncodingError:
            if not reply.instructions:
                raise
            reply = replace(reply, instructions=reply.instructions[: len(reply.instructions) // 2])
