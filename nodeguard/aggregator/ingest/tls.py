"""TLS of the ingest server: the protocol of asyncio over plain connections of uvloop.

The TLS of uvloop itself has a read buffer of 256 KiB for each connection, in which the pages of the largest
read stay in memory, and allocates another one for each read. Here all connections share one small buffer.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from math import ceil
from typing import Any

# Bytes of a read. A buffer of OpenSSL in each connection grows to the size of its largest read and stays.
_READ_SIZE = 4096


class TlsProtocol(SSLProtocol):
    """TLS of one connection. The event loop passes a read on before it begins the next one."""

    max_size = _READ_SIZE
    _write_backlog: Any

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: asyncio.Protocol,
        context: ssl.SSLContext,
        connected: asyncio.Future[None],
        handshake_timeout: float,
        shutdown_timeout: float,
        buffer: memoryview,
    ) -> None:
        """connected: gets the result of the handshake. Timeouts are in seconds. buffer: for reads."""
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
        self._ssl_buffer, self._ssl_buffer_view = bytearray(), buffer
        # A list takes less memory than a deque, and replies hardly ever wait.
        self._write_backlog = []

    def get_buffer(self, n: int) -> memoryview:
        """Part of asyncio's protocol. n: the size that the event loop suggests."""
        del n
        return self._ssl_buffer_view


def read_buffer() -> memoryview:
    """Return a buffer for all connections of an event loop."""
    return memoryview(bytearray(_READ_SIZE))
