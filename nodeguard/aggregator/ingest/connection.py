"""The connection of an agent: aiohttp's protocol with deadlines, and without client data in any log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from nodeguard.aggregator.ingest.connection_limiter import ConnectionLimiter, ConnectionSlot
from nodeguard.aggregator.ingest.limits import IngestLimits
from nodeguard.wire.encoding import MESSAGE_LIMIT

# Bytes of a request line and of a header, which may have a token, and the number of headers.
_LINE, _HEADER, _HEADERS = 1024, 10 * 1024, 32

# Bytes that are buffered before a request is handled, and bytes of a whole request.
_AHEAD = 16 * 1024
_WHOLE = MESSAGE_LIMIT + 128 * 1024

# Seconds in which the rest of a refused request is discarded.
_LINGER = 2.0

# Messages of aiohttp quote client data.
_NO_LOG = logging.Logger("none", logging.CRITICAL + 1)


class AgentConnection(RequestHandler):
    """One connection. certificate: of the client, if it is trusted; bucket: rate limit of its messages."""

    __slots__ = (
        "_certificate",
        "_clock",
        "_connections",
        "_is_between_requests",
        "_limits",
        "_received",
        "bucket",
        "slot",
    )

    def __init__(
        self,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        connections: ConnectionLimiter,
        slot: ConnectionSlot,
        limits: IngestLimits,
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=_NO_LOG,
            logger=_NO_LOG,
            max_line_size=_LINE,
            max_field_size=_HEADER,
            max_headers=_HEADERS,
            read_bufsize=_AHEAD,
            lingering_time=_LINGER,
            auto_decompress=False,
        )
        self.slot = slot
        self.bucket = limits.connection_rate.bucket()
        self._connections = connections
        self._limits = limits
        self._clock = loop.time
        self._certificate: Mapping[str, Any] | None = None
        self._is_between_requests = True
        self._received = 0

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """Return the client's certificate, None for none."""
        return self._certificate

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's protocol."""
        # Transports of uvloop are no subclasses of asyncio's.
        self.slot.close = cast("asyncio.Transport", transport).abort
        self.slot.deadline = self._clock() + self._limits.header_timeout
        self._certificate = transport.get_extra_info("peercert") or None
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's protocol."""
        if self._is_between_requests and data:
            self._is_between_requests = self.slot.is_idle = False
            self._received = 0
            self.slot.deadline = self._clock() + self._limits.header_timeout
        self._received += len(data)
        if self._received > _WHOLE:
            self.slot.close()
            return
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Part of asyncio's protocol."""
        self._connections.remove(self.slot)
        super().connection_lost(exc)

    def begin_request(self) -> None:
        """Note that the header of a request is complete: the body has its own deadline and size limit."""
        self._is_between_requests = self.slot.is_idle = False
        self._received = 0
        self.slot.deadline = self._clock() + self._limits.body_timeout

    def end_request(self, *, whole: bool) -> None:
        """Note that a request is answered. whole: whether all of it was received."""
        self._is_between_requests = self.slot.is_idle = whole
        self.slot.deadline = self._clock() + self._limits.idle_timeout

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to invalid HTTP; the response of aiohttp would quote it."""
        del request, exc, message
        answer = web.Response(status=status, text="nodeguard: this is not a request of an agent\n")
        answer.force_close()
        return answer
