"""HTTP responses to agents. Pure."""

from __future__ import annotations

from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from msgspec import Struct

from nodeguard.aggregator.ingest.limits import retry_after

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


class Response(Struct, frozen=True):
    """A response. wait: seconds after which the request may be repeated, 0 for none. closes: whether the
    connection ends with it.
    """

    status: int
    body: bytes
    content_type: str = _JSON
    wait: float = 0.0
    closes: bool = False


def text_response(status: int, text: str, wait: float = 0.0, *, closes: bool = False) -> Response:
    """Return a response for people."""
    return Response(status, f"nodeguard: {text}\n".encode(), _TEXT, wait, closes)


def encode_response(response: Response, now: float, *, closes: bool) -> bytes:
    """Return a response as bytes. now: seconds since the epoch. closes: whether the connection ends."""
    lines = [
        _status_line(response.status),
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        _date_line(int(now)),
    ]
    if response.wait:
        lines.append(f"Retry-After: {retry_after(response.wait)}")
    if closes:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + response.body


def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"


@lru_cache(maxsize=1)
def _date_line(now: int) -> str:
    return f"Date: {formatdate(now, usegmt=True)}"
