"""An agent's connection: aiohttp's, with deadlines that it lacks, and nothing of what was sent in any log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from nodeguard.aggregator.ingest.connection_limiter import ConnectionLimiter, ConnectionSlot
from nodeguard.aggregator.ingest.limits import Bucket, IngestLimits
from nodeguard.wire.encoding import MESSAGE_LIMIT

# Bytes of a request's line, of a header, with a token in one of them, and how many headers.
_LINE, _HEADER, _HEADERS = 1024, 10 * 1024, 32

# Bytes that are taken in before a request is looked at, and of a whole request, whoever sends it.
_AHEAD = 16 * 1024
_WHOLE = MESSAGE_LIMIT + 128 * 1024

# Seconds in which the rest of a request that was refused is thrown away.
_LINGER = 2.0

# aiohttp's own words quote what was sent.
_SILENT = logging.Logger("silent", logging.CRITICAL + 1)


class AgentConnection(RequestHandler):
    """certificate: the client's, if it showed one that is trusted; bucket: of its messages."""

    __slots__ = ("_certificate", "_clock", "_door", "_limits", "_resting", "_taken", "bucket", "slot")

    def __init__(
        self,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        door: ConnectionLimiter,
        guest: ConnectionSlot,
        limits: IngestLimits,
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=_SILENT,
            logger=_SILENT,
            max_line_size=_LINE,
            max_field_size=_HEADER,
            max_headers=_HEADERS,
            read_bufsize=_AHEAD,
            lingering_time=_LINGER,
            auto_decompress=False,
        )
        self.slot = guest
        self.bucket = Bucket(limits.connection_rate, loop.time())
        self._door = door
        self._limits = limits
        self._clock = loop.time
        self._certificate: Mapping[str, Any] | None = None
        self._resting = True
        self._taken = 0

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client's certificate."""
        return self._certificate

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's protocol."""
        # uvloop's own transports are of no class of asyncio's.
        self.slot.close = cast("asyncio.Transport", transport).abort
        self.slot.deadline = self._clock() + self._limits.header_timeout
        self._certificate = transport.get_extra_info("peercert") or None
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's protocol."""
        if self._resting and data:
            self._resting = self.slot.is_idle = False
            self._taken = 0
            self.slot.deadline = self._clock() + self._limits.header_timeout
        self._taken += len(data)
        if self._taken > _WHOLE:
            self.slot.close()
            return
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Part of asyncio's protocol."""
        self._door.remove(self.slot)
        super().connection_lost(exc)

    def begin_request(self) -> None:
        """A request's head is here; what follows has a deadline, and a length, of its own."""
        self._resting = self.slot.is_idle = False
        self._taken = 0
        self.slot.deadline = self._clock() + self._limits.body_timeout

    def end_request(self, *, whole: bool) -> None:
        """A request is answered. whole: whether all of it has come; else the rest of it is thrown away."""
        self._resting = self.slot.is_idle = whole
        self.slot.deadline = self._clock() + self._limits.idle_timeout

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is answered to who does not speak HTTP; aiohttp's own answer would quote it."""
        del request, exc, message
        answer = web.Response(status=status, text="nodeguard: this is no request of an agent\n")
        answer.force_close()
        return answer
