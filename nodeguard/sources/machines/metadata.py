"""MetadataClient: HTTP client of the cloud's metadata service: one address, no proxy, no redirect.

It sends only GET, and the PUT with which AWS issues a session token.
"""

from __future__ import annotations

import errno
import io
import math
import os
import socket
import time
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any, cast

from nodeguard.model.failure import StalledError
from nodeguard.sources.machine import ADDRESS, ANSWER_LIMIT, METADATA, MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# AWS EC2 user guide, instance metadata version 2: a token is valid for six hours at most.
_TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a path, not a secret
_TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105
_TOKEN_LIFE = 21_600
_TOKEN_USED = 20_000.0
_TOKEN_LENGTH = 1024

# Bytes of status lines and headers, in addition to the body.
_HEAD_LIMIT = 1 << 15

# If the token request has one of these statuses, the request that needed the token gets it too.
_PASSED_ON = frozenset((401, 403, 410, 429, 503))


class MetadataClient:
    """A client of a metadata service. address: its host and port."""

    def __init__(self, address: tuple[str, int] = METADATA) -> None:
        self._address = address
        self._token = ""
        self._token_at = -math.inf

    def fetch(self, request: MetadataRequest, within: float) -> MetadataResponse:
        """Send a request and return the response. within: seconds for the whole exchange.

        Raises StalledError if the complete response does not come in time, and OSError: EPROTO for invalid
        HTTP, EMSGSIZE for a response that is too long, EKEYREJECTED if the service issues no token, else the
        network error.
        """
        until = time.monotonic() + within
        try:
            return self._in_session(request, until) if request.session else self._get(request, until)
        except TimeoutError:
            raise StalledError(request.call) from None
        except (HTTPException, ValueError):
            raise _refusal(errno.EPROTO, request) from None
        except OSError as error:
            raise _refusal(error.errno or errno.EIO, request) from None

    def _in_session(self, request: MetadataRequest, until: float) -> MetadataResponse:
        is_expired = time.monotonic() - self._token_at > _TOKEN_USED
        refusal = self._renew(until) if is_expired else None
        response = refusal or self._get(request, until)
        if response.status == 401 and not is_expired:
            response = self._renew(until) or self._get(request, until)
        if response.status == 401:
            self._token_at = -math.inf
        return response

    def _renew(self, until: float) -> MetadataResponse | None:
        """Request a new token; return the response if it also applies to the request that needs the token."""
        life = {f"{_TOKEN_HEADER}-ttl-seconds": str(_TOKEN_LIFE)}
        response = self._exchange("PUT", _TOKEN_PATH, life, until)
        if response.status in _PASSED_ON:
            return response
        token = response.body.strip()
        if response.status != 200 or not 0 < len(token) <= _TOKEN_LENGTH or not _is_plain(token):
            raise OSError(errno.EKEYREJECTED, os.strerror(errno.EKEYREJECTED))
        self._token, self._token_at = token, time.monotonic()
        return None

    def _get(self, request: MetadataRequest, until: float) -> MetadataResponse:
        token = {_TOKEN_HEADER: self._token} if request.session else {}
        return self._exchange("GET", request.path, request.headers | token, until)

    def _exchange(self, method: str, path: str, headers: dict[str, str], until: float) -> MetadataResponse:
        connection = HTTPConnection(*self._address, timeout=_left(until))
        try:
            connection.request(method, path, headers={**headers, "Host": ADDRESS, "Connection": "close"})
            # Not read through the connection: its timeout restarts with every byte.
            stream = _Stream(connection.sock, until)
            with HTTPResponse(cast("Any", stream), method=method) as response:
                response.begin()
                if response.status != 200:
                    return MetadataResponse(response.status)
                body = response.read(ANSWER_LIMIT + 1)
                if len(body) > ANSWER_LIMIT:
                    raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
                if response.length:
                    raise HTTPException("ended early")
                return MetadataResponse(response.status, body.decode(errors="replace"))
        finally:
            connection.close()


class _Stream(io.RawIOBase):
    """Bytes of a socket, with a deadline and a maximum length. until: in time.monotonic()."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock = sock
        self._until = until
        self._remaining = ANSWER_LIMIT + _HEAD_LIMIT

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return a reader of this stream; HTTPResponse calls this on a socket."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """See io.RawIOBase."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """See io.RawIOBase. Raises TimeoutError, and OSError with EMSGSIZE above the maximum length."""
        self._sock.settimeout(_left(self._until))
        count = self._sock.recv_into(buffer)
        self._remaining -= count
        if self._remaining < 0:
            raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
        return count


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token


def _refusal(code: int, request: MetadataRequest) -> OSError:
    return OSError(code, os.strerror(code), request.call)
