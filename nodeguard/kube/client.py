"""Raw requests to the Kubernetes API: bytes in, bytes out, each with a deadline and a limit."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

import msgspec
from aiohttp import (
    ClientConnectorCertificateError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from nodeguard import __version__
from nodeguard.kube.access import AccessError, ApiAccess
from nodeguard.kube.errors import ApiError, response_error
from nodeguard.local.certificate_validity import validity_problem


class LineTooLongError(Exception):
    """A line longer than is taken."""


class LineSplitter:
    """Puts pieces together to lines of at most `most` bytes; holds the unfinished one alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun: list[bytes] = []
        self._length = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that a piece ends, without the empty ones. Raises LineTooLongError."""
        first, *rest = piece.split(b"\n")
        self._begin(first)
        for part in rest:
            line = b"".join(self._begun)
            self._begun, self._length = [], 0
            if line:
                yield line
            self._begin(part)

    def _begin(self, part: bytes) -> None:
        self._length += len(part)
        if self._length > self._most:
            raise LineTooLongError
        if part:
            self._begun.append(part)


__all__ = [
    "MERGE_PATCH",
    "MAX_RESPONSE_BYTES",
    "MAX_LINE_BYTES",
    "STRATEGIC_MERGE_PATCH",
    "ApiClient",
    "ApiError",
    "Query",
]

# Bytes of an answer, of a line of a watch, and of what is read of a refusal.
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
MAX_LINE_BYTES = 4 * 1024 * 1024
_MOST_OF_A_REFUSAL = 64 * 1024

# Seconds to get a connection, and until a watch has begun. A watch that says nothing for so long is dead: a
# server sends a bookmark every minute.
_CONNECT = 5.0
_QUIET = 90.0

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

Query = Mapping[str, str | int]


class ApiClient:
    """Speaks to one API server. Made by `connect`; to be closed."""

    def __init__(self, access: ApiAccess) -> None:
        self._access = access
        self._session = ClientSession(
            connector=TCPConnector(limit=0),
            headers={"User-Agent": f"nodeguard/{__version__}", "Accept-Encoding": "identity"},
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
        )

    @classmethod
    async def connect(cls, kubeconfig: str | None) -> Self:
        """Find the way to a server; nothing is asked of it yet.

        kubeconfig: a file's path, None for what a pod finds in itself. Raises ApiError where there is no way.
        """
        access = ApiAccess(kubeconfig)
        try:
            await access.load()
        except AccessError as error:
            raise _no_access(error) from None
        return cls(access)

    @property
    def url(self) -> str:
        """Address of the server."""
        return self._access.url

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        # What was aborted is closed in the next turn of the loop.
        await asyncio.sleep(0)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        content_type: str = "application/json",
        timeout: float = 5.0,
    ) -> bytes:
        """What the server answers.

        path: with its leading slash. body: bytes as they are, None for none, all else as JSON. content: the
        body's type. within: seconds for all of it. Raises ApiError, also for an answer of more than MOST.
        """
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        timeout = ClientTimeout(total=timeout, sock_connect=min(timeout, _CONNECT))
        async with self._answer(method, path, query, timeout, data, headers) as answer:
            whole = await _read(answer, MAX_RESPONSE_BYTES)
            if len(whole) > MAX_RESPONSE_BYTES:
                raise _TooLargeError
            return whole

    async def stream(self, path: str, *, query: Query | None = None) -> AsyncGenerator[bytes, None]:
        """The lines of a watch as they come, until the server ends it.

        No more is held than the unfinished line and what has just come with its end. Raises ApiError, also
        where the connection is lost, says nothing for 90 s, or a line has more than MOST_OF_A_LINE bytes. Who
        leaves off before its end closes it, with `contextlib.aclosing`.
        """
        timeout = ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=_QUIET)
        lines = LineSplitter(MAX_LINE_BYTES)
        async with self._answer("GET", path, query, timeout, None, {}) as answer:
            async for piece in answer.content.iter_any():
                for line in lines.feed(piece):
                    yield line
                # A server that is quicker than we are leaves something to read at all times.
                await asyncio.sleep(0)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Query | None,
        timeout: ClientTimeout,
        data: bytes | None,
        headers: dict[str, str],
    ) -> AsyncIterator[ClientResponse]:
        """A good answer, whose body is still to come; what goes wrong with it is an ApiError."""
        asked = f"{method} {path}"
        try:
            async with AsyncExitStack() as stack:
                for again in (True, False):
                    who = await self._access.authorization()
                    answer = await stack.enter_async_context(
                        self._session.request(
                            method,
                            URL(self._access.url + path),
                            params=query,
                            data=data,
                            headers={**headers, "Authorization": who} if who else headers,
                            timeout=timeout,
                            allow_redirects=False,
                            ssl=self._access.ssl_context or True,
                            proxy=self._access.proxy,
                            server_hostname=self._access.server_name,
                        )
                    )
                    if answer.status != 401 or not again:
                        break
                    # The token may have rotated since it was read.
                    await self._access.renew(who)
                if not 200 <= answer.status < 300:
                    text = await _read(answer, _MOST_OF_A_REFUSAL)
                    raise response_error(answer.status, answer.reason or "", answer.headers, text, asked)
                try:
                    yield answer
                finally:
                    _drop(answer)
        except AccessError as error:
            raise _no_access(error) from None
        except ClientConnectorCertificateError as error:
            await self._trust_again()
            raise self._untrusted(asked, error.certificate_error) from None
        except TimeoutError:
            seconds = timeout.total or timeout.sock_read
            raise ApiError(
                0, "Timeout", f"the Kubernetes API at {self.url} said nothing to {asked} within {seconds:g} s"
            ) from None
        except (LineTooLongError, _TooLargeError):
            raise ApiError(
                0,
                "TooLarge",
                f"the answer to {asked} has more than nodeguard reads: look for an object of many MiB",
            ) from None
        except (ClientError, OSError) as error:
            raise self._unreachable(asked, str(error) or type(error).__name__) from None

    async def _trust_again(self) -> None:
        """Read the authorities again: they rotate too."""
        try:
            await self._access.load()
        except AccessError as error:
            raise _no_access(error) from None

    def _untrusted(self, asked: str, error: Exception) -> ApiError:
        problem = ""
        if isinstance(error, ssl.SSLCertVerificationError):
            problem = validity_problem(error, time.time())
        if not problem:
            return self._unreachable(asked, str(error))
        what = f"the Kubernetes API at {self.url} could not be asked for {asked}: its certificate {problem}"
        return ApiError(0, "Unreachable", what)

    def _unreachable(self, asked: str, why: str) -> ApiError:
        return ApiError(
            0,
            "Unreachable",
            f"the Kubernetes API at {self.url} could not be asked for {asked} ({why}): check that it runs and"
            " that this machine reaches it",
        )


class _TooLargeError(Exception):
    pass


async def _read(answer: ClientResponse, most: int) -> bytes:
    """The whole body; of one of more than `most` bytes, a little more than that."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > most:
            break
    return bytes(body)


def _drop(answer: ClientResponse) -> None:
    """Leave the rest of an answer: a watch would go on coming in while TLS says goodbye."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()


def _no_access(error: AccessError) -> ApiError:
    return ApiError(0, "Access", str(error))


def version_number(version: str) -> int:
    """A resourceVersion as a number; they are decimal and grow. What is none is older than all."""
    return int(version) if version.isascii() and version.isdigit() else -1
