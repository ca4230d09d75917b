"""The body of a request: its maximum size, its reading, and the memory of large bodies together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import StreamReader

from nodeguard.aggregator.identity.caller import RequestRefusedError
from nodeguard.aggregator.ingest.connection import Request
from nodeguard.wire.encoding import MESSAGE_LIMIT

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


def expected_size(request: Request) -> int:
    """Return the maximum size of a body by the header. Raises RequestRefusedError if it is too large."""
    headers = request.head.headers
    if headers.get("Content-Encoding", "identity") != "identity":
        raise RequestRefusedError(415, "messages must not be compressed: check the proxies on the way")
    length = headers.get("Content-Length")
    if length is None:
        return MESSAGE_LIMIT
    # The parser has refused a value that is no number.
    if int(length) > MESSAGE_LIMIT:
        raise RequestRefusedError(413, _TOO_LARGE)
    return int(length)


async def read_body(body: StreamReader) -> bytes:
    """Return the body of a request. Raises RequestRefusedError if it is too large."""
    parts, size = [], 0
    while not body.at_eof():
        part = await body.readany()
        size += len(part)
        if size > MESSAGE_LIMIT:
            raise RequestRefusedError(413, _TOO_LARGE)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
