"""One message and its answer: who sends it, whether it may, what is replied."""

from __future__ import annotations

import ssl
import time
import traceback
from collections import Counter
from collections.abc import Callable

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError
from msgspec.structs import replace

from nodeguard.aggregator.identity.caller import Caller, Credential, Identity, RefusedError, Shown, speaking
from nodeguard.aggregator.ingest.body import SMALL, Room, expected, read
from nodeguard.aggregator.ingest.complaints import Complaints
from nodeguard.aggregator.ingest.connection import Connection
from nodeguard.aggregator.ingest.door import Door
from nodeguard.aggregator.ingest.limits import Buckets, Limits, cost, put_off
from nodeguard.local.certificate_validity import validity_problem
from nodeguard.wire.encoding import EncodingError, decode_message, encode
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import Message

PATH = "/v1/messages"

# Nodes, and addresses, whose rates are remembered.
_NODES = 65_536
_ADDRESSES = 8192

# Answers a message at once. Raises RefusedError where the message is not applied: see wire.order.
Hear = Callable[[Caller, Message], Reply]


class Exchange:
    """Answers requests. counts: of messages by kind, of those refused by status, and of bytes.

    wall: gives seconds since 1970; clock: those of the loop. on_refused: is called with the name of a node
    that has shown its credential, and with the reason why its message is refused.
    """

    def __init__(
        self,
        identity: Identity,
        hear: Hear,
        limits: Limits,
        door: Door,
        tell: Callable[[str], None],
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.on_refused: Callable[[str, RefusedError], object] = lambda *_: None
        self._identity = identity
        self._hear = hear
        self._limits = limits
        self._door = door
        self._clock = clock
        self._wall = wall
        self._room = Room(limits.bodies)
        self._nodes = Buckets(limits.node, _NODES)
        self._failures = Buckets(limits.failures, _ADDRESSES)
        self._complaints = Complaints(tell, clock())

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a request."""
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.begin()
        try:
            return await self._answer(request, connection)
        except RefusedError as refused:
            self._complaints.of(refused.node or connection.guest.address, str(refused), self._clock())
            if refused.node and refused.status < 500:
                self.on_refused(refused.node, refused)
            return self._refusal(refused)
        except (RequestPayloadError, ConnectionError):
            return self._refusal(RefusedError(400, "the message broke off on its way: send it again"))
        except Exception as error:  # noqa: BLE001 - one message that cannot be answered ends no server
            self._complaints.of("ingest", _told(error), self._clock())
            return self._refusal(RefusedError(500, "error in the aggregator itself: see its log"))
        finally:
            connection.rest(whole=request.content.is_eof())

    def untrusted(self, address: str, error: ssl.SSLCertVerificationError) -> None:
        """Log that a client's certificate is refused, which TLS itself cannot tell the client in words."""
        self.counts["handshakes failed"] += 1
        problem = validity_problem(error, self._wall()) or (
            f"is not trusted ({error.verify_message}): have it signed by the authority for agents"
        )
        self._complaints.of(address, f"its certificate {problem}", self._clock())

    def not_accepted(self, address: str, why: str) -> None:
        """Count and log that a connection of an address is not accepted."""
        self.counts["not accepted"] += 1
        self._complaints.of(address, why, self._clock())

    async def _answer(self, request: web.BaseRequest, connection: Connection) -> web.StreamResponse:
        if request.method != "POST" or request.path != PATH:
            raise RefusedError(404, f"messages are taken by POST at {PATH}: set that as the address's path")
        size = expected(request)
        if wait := connection.bucket.take(self._limits.connection, self._clock(), cost(size)):
            raise RefusedError(429, _OFTEN, wait)
        credential = await self._who(request, connection)
        node = credential.names[0] if credential.names else ""
        try:
            message, length = await self._message(request, size)
            caller = speaking(credential, message.node)
            node = caller.node
            answer = self._answered(caller, message, length)
        except RefusedError as refused:
            refused.node = node
            raise
        return web.Response(body=answer, content_type="application/json")

    async def _message(self, request: web.BaseRequest, size: int) -> tuple[Message, int]:
        """The message of a request, and how many bytes it has. size: how many it may have, by its head."""
        if size > SMALL:
            with self._room.taken(size):
                body = await read(request)
        else:
            body = await read(request)
        try:
            return decode_message(body), len(body)
        except EncodingError as error:
            raise RefusedError(400, str(error)) from None

    def _answered(self, caller: Caller, message: Message, size: int) -> bytes:
        if wait := self._nodes.take(caller.uid, self._clock(), cost(size)):
            raise RefusedError(429, _OFTEN, wait)
        answer = _encoded(self._hear(caller, message))
        self.counts[type(message).__name__.lower()] += 1
        self.counts["bytes"] += size
        return answer

    async def _who(self, request: web.BaseRequest, connection: Connection) -> Credential:
        shown = Shown(request.headers.get("Authorization", ""), connection.certificate)
        now = self._wall()
        credential = self._identity.known(shown, now)
        if credential is None:
            credential = await self._identified(shown, now, connection.guest.address)
        guest = connection.guest
        if not guest.known and not self._door.recognise(guest, _caller(credential)):
            refused = RefusedError(429, _CONNECTIONS, 1.0, reason=_TOO_MANY)
            refused.node = credential.names[0] if credential.names else ""
            raise refused
        return credential

    async def _identified(self, shown: Shown, now: float, address: str) -> Credential:
        """Who asks, where that is not known yet; whoever fails often must wait before it is looked into."""
        if wait := self._failures.take(address, self._clock()):
            raise RefusedError(429, "too many callers of this address were not let in: wait", wait)
        try:
            credential = await self._identity.identify(shown, now)
        except RefusedError as refused:
            if refused.status not in {401, 403}:
                self._failures.give_back(address)
            raise
        self._failures.give_back(address)
        return credential

    def _refusal(self, refused: RefusedError) -> web.Response:
        self.counts[f"refused {refused.status}"] += 1
        headers = {"Retry-After": put_off(refused.put_off)} if refused.put_off else None
        answer = web.Response(status=refused.status, text=f"nodeguard: {refused}\n", headers=headers)
        if refused.status in {404, 413, 415} or refused.reason == _TOO_MANY:
            answer.force_close()
        return answer


_TOO_MANY = "too-many-connections"
_CONNECTIONS = (
    "too many connections of this node are in use at once: see that only one agent runs on the node"
)
_OFTEN = "messages come too often: see that only one agent runs on the node"


def _caller(credential: Credential) -> str:
    """Return a name for the owner of a credential, equal for each of its credentials; empty where the caller
    may speak for any node.
    """
    return credential.uid or " ".join(credential.names or ())


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
