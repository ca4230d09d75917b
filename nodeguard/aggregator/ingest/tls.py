"""TLS of the ingest server: the protocol of asyncio over plain connections of uvloop.

The TLS of uvloop itself has a read buffer of 256 KiB for each connection, in which the pages of the largest
read stay in memory, and allocates another one for each read. Here all connections share one small buffer, and
their turns.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from math import ceil
from typing import Any

from nodeguard.aggregator.ingest.read_turns import READ_SIZE, ReadTurns


class TlsProtocol(SSLProtocol):
    """TLS of one connection. The event loop passes a read on before it begins the next one."""

    max_size = READ_SIZE
    _write_backlog: Any
    _incoming: Any
    _transport: Any
    _ssl_reading_paused: Any

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: asyncio.Protocol,
        context: ssl.SSLContext,
        connected: asyncio.Future[None],
        handshake_timeout: float,
        shutdown_timeout: float,
        turns: ReadTurns,
    ) -> None:
        """connected: gets the result of the handshake. Timeouts are in seconds. turns: of all connections."""
        super().__init__(
            loop,
            connection,
            context,
            connected,
            server_side=True,
            ssl_handshake_timeout=ceil(handshake_timeout),
            ssl_shutdown_timeout=shutdown_timeout,
        )
        # In place of the buffer of this connection.
        self._ssl_buffer, self._ssl_buffer_view = bytearray(), turns.buffer
        self._turns = turns
        # A list takes less memory than a deque, and replies hardly ever wait.
        self._write_backlog = []

    def get_buffer(self, n: int) -> memoryview:
        """Part of asyncio's protocol. n: the size that the event loop suggests."""
        del n
        return self._ssl_buffer_view

    def buffer_updated(self, nbytes: int) -> None:
        """Part of asyncio's protocol. Without time for it now, the data waits, encrypted."""
        if self._turns.begin_turn():
            super().buffer_updated(nbytes)
            return
        self._incoming.write(self._ssl_buffer_view[:nbytes])
        self._transport.pause_reading()
        self._turns.wait(self._proceed)

    def _proceed(self) -> None:
        """Process the data that waits, and continue to read."""
        super().buffer_updated(0)
        if not (self._ssl_reading_paused or self._transport is None or self._transport.is_closing()):
            self._transport.resume_reading()
