"""The server that agents report to.

Few handshakes are under way at a time: a fleet that comes back at once waits in the kernel's queue, and keeps
nobody here waiting.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine

from aiohttp import web

from nodeguard.aggregator.identity.caller import Authenticator
from nodeguard.aggregator.ingest.connection import AgentConnection
from nodeguard.aggregator.ingest.connection_limiter import ConnectionLimiter, ConnectionSlot
from nodeguard.aggregator.ingest.endpoint import MessageEndpoint, MessageHandler
from nodeguard.aggregator.ingest.limits import IngestLimits

# Connections that the kernel keeps until they are accepted; it may have a lower limit of its own.
_BACKLOG = 8192

# Handshakes under way; those that take longer than so many seconds do not count, or silence would keep others
# out. Seconds after which it is looked again whether there are fewer.
_GREETED = 32
_LONG = 0.5
_AGAIN = 0.004

# Seconds: between two looks for who takes too long, and after an accept that failed.
_SWEEP = 1.0
_PAUSE = 0.2

# Seconds for the end of TLS, and for answers under way when the server ends.
_GOODBYE = 2.0

# What accept says of a connection that broke off before it was accepted.
_GONE = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH})


class IngestServer:
    """Takes messages of agents. Made in the loop that it runs in.

    identity: tells who asks. hear: answers a message, see exchange.Hear. trust: gives what the next
    connection is made with, None for no TLS; so a new certificate needs no restart. tell: is given what goes
    wrong, a sentence each.
    """

    def __init__(
        self,
        identity: Authenticator,
        hear: MessageHandler,
        trust: Callable[[], ssl.SSLContext | None],
        tell: Callable[[str], None],
        limits: IngestLimits | None = None,
    ) -> None:
        self._limits = limits or IngestLimits()
        self._loop = asyncio.get_running_loop()
        self._door = ConnectionLimiter(self._limits)
        self.endpoint = MessageEndpoint(identity, hear, self._limits, self._door, tell, self._loop.time)
        self._trust = trust
        self._tell = tell
        self._server = web.Server(self.endpoint)
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._greeted: dict[ConnectionSlot, float] = {}
        self._said = ""

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._door)

    @property
    def ports(self) -> list[int]:
        """Where it listens."""
        return [one.getsockname()[1] for one in self._sockets]

    async def listen(self, host: str, port: int) -> None:
        """Begin to listen. host: a name or an address, empty for all of this machine. Raises OSError."""
        found = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        new: list[socket.socket] = []
        try:
            for family, place in dict.fromkeys((one[0], one[4]) for one in found):
                new.append(_listening(family, place))
        except BaseException:
            for one in new:
                one.close()
            raise
        self._sockets += new
        for one in new:
            self._start(self._accept(one))
        if len(self._sockets) == len(new):
            self._start(self._sweep())

    async def close(self) -> None:
        """Hear nobody any more; who is being answered still gets the answer."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in self._sockets:
            one.close()
        self._server.pre_shutdown()
        await self._server.shutdown(_GOODBYE)
        self._door.close_all()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                sock, place = await self._loop.sock_accept(listening)
            except OSError as error:
                if error.errno not in _GONE:
                    self._say(
                        f"no connection can be accepted, {error.strerror}: raise the limit on open files"
                    )
                    await asyncio.sleep(_PAUSE)
                continue
            self._said = ""
            guest = self._door.admit(str(place[0]), self._loop.time())
            if isinstance(guest, str):
                sock.close()
                self.endpoint.not_accepted(str(place[0]), guest)
            else:
                self._start(self._greet(sock, guest))
            while self._is_busy():
                await asyncio.sleep(_AGAIN)

    def _is_busy(self) -> bool:
        """Whether as many handshakes are under way as may be."""
        while len(self._greeted) >= _GREETED:
            oldest, began = next(iter(self._greeted.items()))
            if self._loop.time() < began + _LONG:
                return True
            del self._greeted[oldest]
        return False

    async def _greet(self, sock: socket.socket, guest: ConnectionSlot) -> None:
        """Have the handshake, then leave the connection to its protocol."""
        task = asyncio.current_task()
        assert task is not None
        guest.close = task.cancel
        self._greeted[guest] = self._loop.time()
        connected = False
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            trust = self._trust()
            await self._loop.connect_accepted_socket(
                lambda: AgentConnection(self._server, self._loop, self._door, guest, self._limits),
                sock,
                ssl=trust,
                ssl_handshake_timeout=self._limits.header_timeout if trust else None,
                ssl_shutdown_timeout=_GOODBYE if trust else None,
            )
            connected = True
        except ssl.SSLCertVerificationError as error:
            self.endpoint.untrusted(guest.address, error)
        except OSError:
            self.endpoint.counts["handshakes failed"] += 1
        finally:
            self._greeted.pop(guest, None)
            if not connected:
                self._door.remove(guest)
                sock.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            self.endpoint.counts["too slow"] += self._door.close_overdue(self._loop.time())

    def _say(self, what: str) -> None:
        if what != self._said:
            self._said = what
            self._tell(what)


def _listening(family: int, place: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(place)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
