"""The ingest server: accepts the connections of agents.

Few TLS handshakes run at a time: when a whole fleet reconnects, connections wait in the kernel's queue and do
not block the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable, Coroutine

from nodeguard.aggregator.identity.caller import Authenticator, RequestRefusedError
from nodeguard.aggregator.ingest.connection import AgentConnection
from nodeguard.aggregator.ingest.connection_limiter import ConnectionLimiter, ConnectionSlot
from nodeguard.aggregator.ingest.endpoint import HANDSHAKE_FAILED, TIMEOUT, MessageEndpoint, MessageHandler
from nodeguard.aggregator.ingest.limits import IngestLimits
from nodeguard.aggregator.ingest.read_turns import ReadTurns
from nodeguard.aggregator.ingest.tls import TlsProtocol

logger = logging.getLogger(__name__)

# Connections that wait in the kernel; it may have a lower limit.
_BACKLOG = 8192

# TLS handshakes at a time. A handshake of more than _SLOW seconds does not count: idle clients must not block
# others. Seconds between two checks of their number.
_HANDSHAKES = 32
_SLOW = 0.5
_POLL = 0.004

# Seconds: between two checks for timeouts, and after an accept that failed.
_SWEEP = 1.0
_ACCEPT_RETRY = 0.2

# Seconds for the end of TLS, and for responses when the server stops.
_SHUTDOWN = 2.0

# Errors of accept for a connection that ended before it was accepted.
_ABORTED = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH}
)


class IngestServer:
    """Serves agents. Create it in its event loop.

    authenticator: identifies callers. handle: returns the reply to a message. tls: returns the TLS context of
    the next connection, None for plain HTTP, so that a new certificate needs no restart. on_refused,
    on_handled: see MessageEndpoint.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        handle: MessageHandler,
        tls: Callable[[], ssl.SSLContext | None],
        limits: IngestLimits | None = None,
        *,
        on_refused: Callable[[str, RequestRefusedError], object] = lambda *_: None,
        on_handled: Callable[[str, float], object] = lambda *_: None,
    ) -> None:
        self._limits = limits or IngestLimits()
        self._loop = asyncio.get_running_loop()
        self._connections = ConnectionLimiter(self._limits)
        self.endpoint = MessageEndpoint(
            authenticator,
            handle,
            self._limits,
            self._connections,
            self._loop.time,
            on_refused=on_refused,
            on_handled=on_handled,
        )
        self._tls = tls
        self._turns = ReadTurns(self._loop)
        self._running: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes: dict[ConnectionSlot, float] = {}

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    @property
    def ports(self) -> list[int]:
        """Return the ports on which it listens."""
        return [listener.getsockname()[1] for listener in self._sockets]

    async def listen(self, host: str, port: int) -> None:
        """Start to listen. host: a name or an address, empty for all addresses. Raises OSError."""
        infos = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        new: list[socket.socket] = []
        try:
            for family, address in dict.fromkeys((info[0], info[4]) for info in infos):
                new.append(_listening(family, address))
        except BaseException:
            for listener in new:
                listener.close()
            raise
        self._sockets += new
        for listener in new:
            self._start(self._accept(listener))
        if len(self._sockets) == len(new):
            self._start(self._sweep())

    async def close(self) -> None:
        """Stop to accept connections, and send the responses of running requests."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self._sockets:
            listener.close()
        if self._running:
            await asyncio.wait(self._running, timeout=_SHUTDOWN)
        self._connections.close_all()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                sock, address = await self._loop.sock_accept(listening)
            except OSError as error:
                if error.errno not in _ABORTED:
                    logger.error(  # noqa: TRY400 - the error has no more than its reason
                        "cannot accept connections",
                        extra={"error": error.strerror, "remedy": "raise the limit on open files"},
                    )
                    await asyncio.sleep(_ACCEPT_RETRY)
                continue
            slot = self._connections.admit(str(address[0]), self._loop.time())
            if isinstance(slot, str):
                sock.close()
                self.endpoint.connection_rejected(str(address[0]), slot)
            else:
                self._start(self._handshake(sock, slot))
            while self._is_busy():
                await asyncio.sleep(_POLL)

    def _is_busy(self) -> bool:
        """Return whether the maximum number of handshakes is running."""
        while len(self._handshakes) >= _HANDSHAKES:
            oldest, began = next(iter(self._handshakes.items()))
            if self._loop.time() < began + _SLOW:
                return True
            del self._handshakes[oldest]
        return False

    async def _handshake(self, sock: socket.socket, slot: ConnectionSlot) -> None:
        """Run the TLS handshake, then hand the connection to its protocol."""
        task = asyncio.current_task()
        assert task is not None
        slot.close = task.cancel
        self._handshakes[slot] = self._loop.time()
        connection = AgentConnection(
            self._loop, self.endpoint, self._running, self._connections, slot, self._limits, time.time
        )
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._connect(sock, connection)
        except ssl.SSLCertVerificationError as error:
            self.endpoint.client_certificate_refused(slot.address, error)
        except OSError:
            self.endpoint.connection_errors[HANDSHAKE_FAILED] += 1
        finally:
            self._handshakes.pop(slot, None)
            if connection.transport is None:
                self._connections.remove(slot)
                sock.close()

    async def _connect(self, sock: socket.socket, connection: AgentConnection) -> None:
        """Connect a socket to its protocol, after the TLS handshake."""
        tls = self._tls()
        if tls is None:
            await self._loop.connect_accepted_socket(lambda: connection, sock)
            return
        done = self._loop.create_future()
        protocol = TlsProtocol(
            self._loop,
            connection,
            tls,
            done,
            self._limits.header_timeout,
            _SHUTDOWN,
            self._turns,
        )
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, sock)
        try:
            await done
        except BaseException:
            transport.abort()
            raise

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            self.endpoint.connection_errors[TIMEOUT] += self._connections.close_overdue(self._loop.time())


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
