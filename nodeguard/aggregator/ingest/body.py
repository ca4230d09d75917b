"""The body of a request, read within limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from nodeguard.aggregator.identity.caller import RequestRefusedError
from nodeguard.wire.encoding import MESSAGE_LIMIT

# A message up to this many bytes needs no room of its own.
SMALL = 16 * 1024

_TOO_LARGE = f"a message has at most {MESSAGE_LIMIT} bytes: see that it is nodeguard's agent that sends it"


class BodyMemory:
    """Bytes for large messages that are being read at a time, by all callers together."""

    def __init__(self, most: int) -> None:
        self._left = most

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Room for a message. Raises RefusedError where there is none now."""
        if size > self._left:
            raise RequestRefusedError(503, "too many large messages at once: wait", 2.0)
        self._left -= size
        try:
            yield
        finally:
            self._left += size


def expected_size(request: web.BaseRequest) -> int:
    """Bytes that a request's body may have, by its head. Raises RefusedError where these are too many."""
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise RequestRefusedError(
            415, "a message is sent as it is: see that nothing on the way compresses it"
        )
    length = request.content_length
    if length is None:
        return MESSAGE_LIMIT
    if length > MESSAGE_LIMIT:
        raise RequestRefusedError(413, _TOO_LARGE)
    return length


async def read_body(request: web.BaseRequest) -> bytes:
    """The body of a request. Raises RefusedError where it has too many bytes."""
    content = request.content
    parts, size = [], 0
    while not content.at_eof():
        part = await content.readany()
        size += len(part)
        if size > MESSAGE_LIMIT:
            raise RequestRefusedError(413, _TOO_LARGE)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
