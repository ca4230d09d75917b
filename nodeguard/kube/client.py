"""HTTP client of the Kubernetes API: raw bytes in and out, each request with a deadline and a size limit."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Self
from weakref import WeakSet

import msgspec
from aiohttp import (
    AddrInfoType,
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from nodeguard import __version__
from nodeguard.kube.access import ApiAccess
from nodeguard.kube.credentials import AccessError
from nodeguard.kube.errors import NOT_SERVED, ApiError, response_error
from nodeguard.kube.refused_requests import RefusedRequests, is_not_served, request_right
from nodeguard.local.certificate_validity import validity_problem

__all__ = [
    "MAX_LINE_BYTES",
    "MAX_RESPONSE_BYTES",
    "MERGE_PATCH",
    "STRATEGIC_MERGE_PATCH",
    "ApiClient",
    "ApiError",
    "Query",
]

# Bytes of a response, of a line of a watch, and of an error response.
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
MAX_LINE_BYTES = 4 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024

# Seconds to connect, and without data until a watch is dead: a server sends a bookmark every minute.
_CONNECT_TIMEOUT = 5.0
_WATCH_TIMEOUT = 90.0
# Seconds that `close` waits until all sockets are closed.
_CLOSE_TIMEOUT = 1.0

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

Query = Mapping[str, str | int]


class ApiClient:
    """Client of one API server. Create it with `connect`, and close it. refused: what the server forbids."""

    def __init__(self, access: ApiAccess, headers: Iterable[tuple[str, str]] = ()) -> None:
        self._access = access
        self.refused = RefusedRequests()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._session = ClientSession(
            connector=TCPConnector(limit=0, socket_factory=self._create_socket),
            headers=[
                ("User-Agent", f"nodeguard/{__version__}"),
                ("Accept-Encoding", "identity"),
                *headers,
            ],
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
        )

    @classmethod
    async def connect(
        cls, kubeconfig: str | None, context: str = "", *, headers: Iterable[tuple[str, str]] = ()
    ) -> Self:
        """Load the server's address and the credentials. No request is sent yet.

        kubeconfig, context: as of ApiAccess.connect. headers: of each request, such as a user to impersonate.
        Raises ApiError for credentials that are not usable.
        """
        try:
            return cls(await ApiAccess.connect(kubeconfig, context), headers)
        except AccessError as error:
            raise _access_error(error) from None

    @property
    def url(self) -> str:
        """Address of the server."""
        return self._access.credentials.url

    async def close(self) -> None:
        """Close all connections, and return when their sockets are closed, after at most 1 s.

        aiohttp ends the connection of a cancelled request with a TLS shutdown, and does not wait for the
        server's reply. Shutting down the socket ends such a connection without that reply.
        """
        await self._session.close()
        for sock in self._open_sockets():
            # The connection may be lost already.
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                while self._open_sockets():
                    await asyncio.sleep(0)

    def _create_socket(self, address: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        sock = socket.socket(family, kind, protocol)
        self._sockets.add(sock)
        return sock

    def _open_sockets(self) -> list[socket.socket]:
        return [sock for sock in self._sockets if sock.fileno() >= 0]

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        content_type: str = "application/json",
        timeout: float = 5.0,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> bytes:
        """Send a request and return the body of the response.

        path: with its leading slash. body: bytes are sent as they are, None is no body, all else is encoded
        as JSON. content_type: of the body. timeout: seconds for the whole request. Raises ApiError, also for
        a response of more than max_bytes.
        """
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        limits = ClientTimeout(total=timeout, sock_connect=min(timeout, _CONNECT_TIMEOUT))
        async with self._response(method, path, query, limits, data, headers) as response:
            content = await _read(response, max_bytes)
            if len(content) > max_bytes:
                raise _TooLargeError
            return content

    async def stream(self, path: str, *, query: Query | None = None) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch as they arrive, until the server ends it.

        Only the unfinished line and the last piece of data are held in memory. Raises ApiError, also if the
        connection is lost, delivers nothing for 90 s, or a line has more than MAX_LINE_BYTES. A caller that
        stops before the end closes the generator with `contextlib.aclosing`.
        """
        limits = ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=_WATCH_TIMEOUT)
        lines = LineSplitter(MAX_LINE_BYTES)
        async with self._response("GET", path, query, limits, None, {}) as response:
            async for data in response.content.iter_any():
                for line in lines.feed(data):
                    yield line
                # A server that is faster than this process always leaves data to read.
                await asyncio.sleep(0)

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        query: Query | None,
        limits: ClientTimeout,
        data: bytes | None,
        headers: dict[str, str],
    ) -> AsyncIterator[ClientResponse]:
        """Yield a successful response, with its body still unread. Errors while it is read are ApiErrors."""
        request = f"{method} {path}"
        right = request_right(method, path, is_watch=bool(query and query.get("watch")))
        try:
            async with AsyncExitStack() as stack:
                for may_retry in (True, False):
                    authorization = await self._access.authorization()
                    credentials = self._access.credentials
                    response = await stack.enter_async_context(
                        self._session.request(
                            method,
                            URL(credentials.url + path),
                            params=query,
                            data=data,
                            headers={**headers, "Authorization": authorization} if authorization else headers,
                            timeout=limits,
                            allow_redirects=False,
                            ssl=credentials.ssl_context or True,
                            proxy=credentials.proxy,
                            server_hostname=credentials.server_name,
                        )
                    )
                    if response.status != 401 or not may_retry:
                        break
                    # The token may have rotated since it was read.
                    await self._access.renew(authorization)
                if not 200 <= response.status < 300:
                    text = await _read(response, _MAX_ERROR_BYTES)
                    remedy = NOT_SERVED if is_not_served(right, response.status) else ""
                    failure = response_error(
                        response.status, response.reason or "", response.headers, text, request, remedy
                    )
                    self.refused.record(right, response.status, failure)
                    raise failure
                self.refused.record(right, response.status)
                try:
                    yield response
                finally:
                    _abort(response)
        except AccessError as error:
            raise _access_error(error) from None
        except ClientConnectorCertificateError as error:
            await self._reload_access()
            raise self._certificate_error(request, error.certificate_error) from None
        except TimeoutError:
            seconds = limits.total or limits.sock_read
            raise ApiError(
                0,
                "Timeout",
                f"the Kubernetes API at {self.url} did not respond to {request} within {seconds:g} s: "
                "check its load, and whether a firewall drops connections to it",
            ) from None
        except (LineTooLongError, _TooLargeError):
            raise ApiError(
                0,
                "TooLarge",
                f"the response to {request} exceeds nodeguard's size limit: look for an object of many MiB",
            ) from None
        except ClientConnectorError as error:
            raise self._unreachable(request, _reason(error)) from None
        except (ClientError, OSError) as error:
            message = f"the connection to the Kubernetes API at {self.url} ended during {request}"
            raise ApiError(0, "Disconnected", f"{message} ({_reason(error)})") from None

    async def _reload_access(self) -> None:
        """Read the certificate authorities again: they rotate too."""
        try:
            await self._access.reload()
        except AccessError as error:
            raise _access_error(error) from None

    def _certificate_error(self, request: str, error: Exception) -> ApiError:
        problem = ""
        if isinstance(error, ssl.SSLCertVerificationError):
            problem = validity_problem(error, time.time())
            if not problem:
                problem = (
                    f"is refused (certificate verify failed: {error.verify_message}): check the address, "
                    "and the certificate authority that the kubeconfig or the service account names"
                )
        if not problem:
            return self._unreachable(request, str(error))
        message = (
            f"the Kubernetes API at {self.url} could not be reached for {request}: its certificate {problem}"
        )
        return ApiError(0, "Unreachable", message)

    def _unreachable(self, request: str, reason: str) -> ApiError:
        return ApiError(
            0,
            "Unreachable",
            f"the Kubernetes API at {self.url} could not be reached for {request} ({reason}): check that it"
            " runs and that this machine can connect to it",
        )


class LineTooLongError(Exception):
    """A line is longer than the limit."""


class LineSplitter:
    """Splits a stream of data into lines of at most `max_bytes`. It holds only the unfinished line."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._unfinished: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that this data completes, without empty lines. Raises LineTooLongError."""
        first, *rest = data.split(b"\n")
        self._append(first)
        for segment in rest:
            line = b"".join(self._unfinished)
            self._unfinished, self._length = [], 0
            if line:
                yield line
            self._append(segment)

    def _append(self, segment: bytes) -> None:
        self._length += len(segment)
        if self._length > self._max_bytes:
            raise LineTooLongError
        if segment:
            self._unfinished.append(segment)


def version_number(version: str) -> int:
    """Return a resourceVersion as a number: versions are decimal and grow. An invalid one is -1."""
    return int(version) if version.isascii() and version.isdigit() else -1


class _TooLargeError(Exception):
    pass


async def _read(response: ClientResponse, limit: int) -> bytes:
    """Return the body; of a body of more than `limit` bytes, a little more than that."""
    body = bytearray()
    async for data in response.content.iter_any():
        body += data
        if len(body) > limit:
            break
    return bytes(body)


def _reason(error: Exception) -> str:
    """Return why a request failed. The text of aiohttp for a failed connection names Python objects."""
    if isinstance(error, ClientConnectorError):
        error = error.os_error
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "it answers without TLS"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _abort(response: ClientResponse) -> None:
    """Drop the rest of a response: a watch would continue to arrive during the TLS shutdown."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


def _access_error(error: AccessError) -> ApiError:
    return ApiError(0, "Access", str(error))
