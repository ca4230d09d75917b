"""The connection of an agent: HTTP/1.1 with deadlines and limits, and without client data in any log.

aiohttp parses the requests. A request that is complete and needs no authentication is answered at once,
without a task. An idle connection has no parser: the headers of its last request would stay in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from nodeguard.aggregator.ingest.connection_limiter import ConnectionLimiter, ConnectionSlot
from nodeguard.aggregator.ingest.limits import IngestLimits
from nodeguard.aggregator.ingest.response import Response, encode_response, text_response
from nodeguard.wire.encoding import MESSAGE_LIMIT

# Bytes of a request line and of a header, which may have a token, and the number of headers.
_LINE, _HEADER, _HEADERS = 1024, 10 * 1024, 32

# Bytes that are buffered before a request is handled, and bytes of a whole request.
_AHEAD = 16 * 1024
_WHOLE = MESSAGE_LIMIT + 128 * 1024

# Seconds in which the rest of a refused request is discarded.
_LINGER = 2.0

_INVALID = text_response(400, "this is not a request of an agent", closes=True)


class Request:
    """A request with its header, while its body may still be incomplete."""

    __slots__ = ("body", "head")

    def __init__(self, head: RawRequestMessage, body: StreamReader) -> None:
        self.head, self.body = head, body

    def ends_with(self, data: bytes) -> bool:
        """Return whether the whole request, and nothing after it, ends with this data of its header."""
        length, end = self.head.headers.get("Content-Length", "0"), data.find(b"\r\n\r\n")
        return end >= 0 and not self.head.chunked and length.isdigit() and end + 4 + int(length) == len(data)


# Returns the response to a request, or a function that waits for it.
LaterResponse = Callable[[], Awaitable[Response]]
Answer = Callable[["Request", "AgentConnection"], Response | LaterResponse]


class AgentConnection(BaseProtocol):
    """One connection. certificate: of the client, if it is trusted; bucket: rate limit of its messages."""

    __slots__ = (
        "_answer",
        "_clock",
        "_connections",
        "_is_between_requests",
        "_is_closing",
        "_limits",
        "_received",
        "_request",
        "_running",
        "_task",
        "_wall",
        "bucket",
        "certificate",
        "slot",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        answer: Answer,
        running: set[asyncio.Task[None]],
        connections: ConnectionLimiter,
        slot: ConnectionSlot,
        limits: IngestLimits,
        wall: Callable[[], float],
    ) -> None:
        """answer: responds to requests. running: receives the tasks of responses that take some time.
        wall: returns seconds since the epoch.
        """
        super().__init__(loop)
        self.slot = slot
        self.bucket = limits.connection_rate.bucket()
        self.certificate: Mapping[str, Any] | None = None
        self._answer = answer
        self._running = running
        self._connections = connections
        self._limits = limits
        self._clock = loop.time
        self._wall = wall
        self._request: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_between_requests = True
        self._is_closing = False
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's protocol."""
        # Transports of uvloop are no subclasses of asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self.slot.close = self.transport.abort
        self.slot.deadline = self._clock() + self._limits.header_timeout
        self.certificate = transport.get_extra_info("peercert") or None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Part of asyncio's protocol."""
        self._connections.remove(self.slot)
        if self._task is not None:
            self._task.cancel()
        self._request = self._parser = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's protocol."""
        if self._is_between_requests and data:
            self._is_between_requests = self.slot.is_idle = False
            self._received = 0
            self.slot.deadline = self._clock() + self._limits.header_timeout
        self._received += len(data)
        # Too much, or from a client that does not read the responses.
        if self._received > _WHOLE or self.writing_paused:
            self.slot.close()
        elif self.transport is not None and not self.transport.is_closing():
            self._feed(data)

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - of aiohttp
        """Part of aiohttp's flow control, which also calls it when nothing is paused."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _feed(self, data: bytes) -> None:
        """Parse data, and answer the requests in it, one after the other."""
        if self._parser is None:
            self._parser = self._new_parser()
        while self._parser is not None:
            before = self._request
            try:
                messages, upgraded, _ = self._parser.feed_data(data)
            except HttpProcessingError:
                upgraded = True
            if upgraded:
                self._refuse()
                return
            for head, body in messages:
                self._begin(Request(head, body), data)
            self._continue()
            if self._request is not None or (before is None and not messages):
                return
            data = b""

    def _new_parser(self) -> HttpRequestParser:
        """Return a parser, which stops after each request until it is answered."""
        return HttpRequestParser(
            self,
            self._loop,
            _AHEAD,
            max_line_size=_LINE,
            max_field_size=_HEADER,
            max_headers=_HEADERS,
            payload_exception=RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=1,
        )

    def _begin(self, request: Request, data: bytes) -> None:
        """Handle a complete header: the body has its own deadline and size limit."""
        self._request = request
        self._is_between_requests = self.slot.is_idle = False
        self._received = 0
        self.slot.deadline = self._clock() + self._limits.body_timeout
        answer = self._answer(request, self)
        if isinstance(answer, Response):
            if self._respond(answer, request) and request.ends_with(data):
                self._parser = None
        else:
            self._task = self._loop.create_task(self._respond_later(answer, request))
            self._running.add(self._task)
            self._task.add_done_callback(self._running.discard)

    async def _respond_later(self, answer: LaterResponse, request: Request) -> None:
        response = await answer()
        self._task = None
        is_over = self._respond(response, request)
        if self._buffer_paused:
            self._resume_reading_for_buffer()
        if is_over and not self._is_closing:
            self._feed(b"")

    def _respond(self, response: Response, request: Request) -> bool:
        """Send a response. Returns whether the request is over: the rest of another one is discarded."""
        if self.transport is None:
            return False
        self._is_closing = response.closes or request.head.should_close
        self.transport.write(encode_response(response, self._wall(), closes=self._is_closing))
        if request.body.is_eof():
            self._end()
            return True
        self.slot.deadline = self._clock() + _LINGER
        return False

    def _continue(self) -> None:
        """Wait for the end of a request: discard it if it is answered."""
        if self._request is None:
            return
        body = self._request.body
        if self._task is None:
            try:
                body.read_nowait()
            except RequestPayloadError:
                self.slot.close()
                return
            if body.is_eof():
                self._end()
        elif body.is_eof() and not self._buffer_paused:
            self._pause_reading_for_buffer()

    def _end(self) -> None:
        """Note that a request is received and answered."""
        self._request = None
        self._is_between_requests = self.slot.is_idle = True
        self.slot.deadline = self._clock() + self._limits.idle_timeout
        if self._is_closing and self.transport is not None:
            self.transport.close()
        elif self._parser is not None:
            self._parser.message_consumed()

    def _refuse(self) -> None:
        """Refuse invalid HTTP. The response does not quote it."""
        if self._request is None and self.transport is not None:
            self.transport.write(encode_response(_INVALID, self._wall(), closes=True))
            self.transport.close()
        else:
            self.slot.close()
