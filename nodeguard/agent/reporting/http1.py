"""HTTP/1.1 requests to one aggregator over one kept connection, with asyncio streams and h11.

It follows no redirect and uses no proxy. An error never contains the token, nor text of the other side.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import time
from collections.abc import Sequence
from math import inf
from typing import Any, Protocol

import h11
from msgspec import Struct

from nodeguard.agent.reporting.credentials import (
    CertificateFiles,
    CredentialError,
    TlsFileError,
    TokenFile,
    tls_context,
)
from nodeguard.agent.reporting.endpoint import Address, is_ip, parse_address, resolve, resolve_error
from nodeguard.local.certificate_validity import validity_problem
from nodeguard.local.daemon_thread import DaemonThread
from nodeguard.wire.encoding import REPLY_LIMIT

# Seconds for one exchange, including its connection.
DEADLINE = 10.0

# Bytes of a reply's headers.
_HEADER_LIMIT = 16 * 1024

# The IP addresses of this machine, which need no name service.
_LOCALHOST = ("127.0.0.1", "::1")

# Errors that mean that the other side has closed the connection since the last exchange.
_CLOSED = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)

_TRUST_REMEDY = "and trusts who signed this node's certificate, and that both clocks are right"


class HttpResponse(Struct, frozen=True):
    """A response. status: of HTTP. retry_after: seconds for which the aggregator wants no request."""

    status: int
    body: bytes
    retry_after: float = 0.0


class TransportError(Exception):
    """A request without a usable response; the message has the reason and the remedy."""


class TooLongError(OSError):
    """A response with more bytes than the limit."""


class Transport(Protocol):
    """A connection to one aggregator."""

    name: str

    async def post(self, body: bytes, timeout: float) -> HttpResponse:
        """Send a message and return the response within a time in seconds. Raises TransportError."""

    def end_by(self, deadline: float) -> None:
        """End every exchange by a time of the event loop, also the present one. The latest call counts."""

    def close(self) -> None:
        """Close the connection; a later message opens it again."""


class HttpsTransport:
    """An aggregator at `https://host:port/path`, or at http on this machine.

    address: as configured, or in its parts. ca_file: the CAs to trust, read again for each connection; None
    for those of the system. certificate: of this node, read again likewise. Raises AddressError if the
    address is invalid.
    """

    def __init__(
        self,
        address: str | Address,
        token: TokenFile | None,
        ca_file: str | None = None,
        certificate: CertificateFiles | None = None,
    ) -> None:
        self._address = parse_address(address) if isinstance(address, str) else address
        self.name = self._address.name
        self._token = token
        self._ca_file = ca_file
        self._certificate = certificate
        self._connection: _Connection | None = None
        # Token and certificates are files, and a disk may hang; OpenSSL takes milliseconds to parse the CAs.
        self._files = DaemonThread("credentials")
        self._deadline = inf
        self._timeout: asyncio.Timeout | None = None

    async def post(self, body: bytes, timeout: float = DEADLINE) -> HttpResponse:
        """Send a message and return the response. Raises TransportError.

        If a kept connection turns out to be closed, the message is sent once more over a new one: the
        aggregator may receive a message twice, and applies it once.
        """
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(min(began + timeout, self._deadline)) as self._timeout:
                return await self._post(body)
        except (CredentialError, TlsFileError) as error:
            raise TransportError(str(error)) from None
        except (OSError, h11.ProtocolError, ValueError) as error:
            self.close()
            took = round(min(timeout, asyncio.get_running_loop().time() - began), 1)
            reason = _reason(error, took, has_certificate=self._certificate is not None)
            raise TransportError(reason) from None
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._timeout = None

    def end_by(self, deadline: float) -> None:
        """See Transport.end_by."""
        self._deadline = deadline
        timeout = self._timeout
        if timeout is not None and not timeout.expired() and deadline < (timeout.when() or inf):
            timeout.reschedule(deadline)

    def close(self) -> None:
        """See Transport.close."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    async def _post(self, body: bytes) -> HttpResponse:
        if self._connection is not None and self._connection.is_closed():
            self.close()
        is_kept = self._connection is not None
        headers, context = await self._files.run(lambda: self._read_files(with_tls=not is_kept))
        try:
            return await self._exchange(body, headers, context)
        except _CLOSED:
            self.close()
            if not is_kept:
                raise
        headers, context = await self._files.run(lambda: self._read_files(with_tls=True))
        return await self._exchange(body, headers, context)

    async def _ips(self) -> Sequence[str]:
        if self._address.ips:
            return self._address.ips
        if self._address.is_fixed:
            return (self._address.host,) if is_ip(self._address.host) else _LOCALHOST
        replicas = await self._files.run(lambda: resolve(self._address))
        return [ip for ips in replicas for ip in ips]

    def _read_files(self, *, with_tls: bool) -> tuple[list[tuple[str, str]], ssl.SSLContext | None]:
        headers = [("Host", _host(self._address)), ("Accept", "application/json")]
        headers.append(("Content-Type", "application/json"))
        if self._token is not None:
            headers.append(("Authorization", f"Bearer {self._token.token()}"))
        context = tls_context(self._ca_file, self._certificate) if with_tls and self._address.tls else None
        return headers, context

    async def _exchange(
        self, body: bytes, headers: list[tuple[str, str]], context: ssl.SSLContext | None
    ) -> HttpResponse:
        if self._connection is None:
            self._connection = await _connect(self._address, await self._ips(), context)
        response, content = await self._connection.post(self._address.path, headers, body)
        if self._connection.is_closed():
            self.close()
        if response.status_code in {401, 403} and self._token is not None:
            self._token.forget()
        retry_after = dict(response.headers).get(b"retry-after", b"").decode("latin-1")
        return HttpResponse(response.status_code, content, _seconds(retry_after))


class _Connection:
    """A connection with its HTTP/1.1 state."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_LIMIT)

    def is_closed(self) -> bool:
        """Return whether no further exchange is possible."""
        return self._http.our_state is not h11.IDLE or self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    async def post(
        self, path: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[h11.Response, bytes]:
        """Send a request and return the response with its body. Raises OSError, h11.ProtocolError."""
        request = h11.Request(
            method="POST", target=path, headers=[*headers, ("Content-Length", str(len(body)))]
        )
        parts = (request, h11.Data(data=body), h11.EndOfMessage())
        self._writer.write(b"".join(self._http.send(part) or b"" for part in parts))
        await self._writer.drain()
        return await self._receive()

    async def _receive(self) -> tuple[h11.Response, bytes]:
        left = REPLY_LIMIT + _HEADER_LIMIT
        response: h11.Response | None = None
        content = bytearray()
        while True:
            event: Any = self._http.next_event()
            if event is h11.NEED_DATA:
                if left <= 0:
                    raise TooLongError
                data = await self._reader.read(left)
                if not data and left == REPLY_LIMIT + _HEADER_LIMIT:
                    raise ConnectionResetError
                left -= len(data)
                self._http.receive_data(data)
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                content += event.data
                if len(content) > REPLY_LIMIT:
                    raise TooLongError
            elif isinstance(event, h11.EndOfMessage) and response is not None:
                # A connection that has bytes of no request is not used again.
                if self._http.their_state is h11.DONE and not self._http.trailing_data[0]:
                    self._http.start_next_cycle()
                return response, bytes(content)


async def _connect(address: Address, ips: Sequence[str], context: ssl.SSLContext | None) -> _Connection:
    """Return a connection to the first IP address that accepts one. Raises OSError."""
    for left, ip in zip(range(len(ips), 0, -1), ips, strict=True):
        try:
            sock = await _connect_socket(ip, address.port, left)
            host = address.host if context is not None else None
            return _Connection(*await asyncio.open_connection(sock=sock, ssl=context, server_hostname=host))
        except OSError as error:
            if left == 1 or isinstance(error, ssl.SSLError):
                raise
    raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))


async def _connect_socket(ip: str, port: int, left: int) -> socket.socket:
    """Return a socket that is connected. left: IP addresses to try, which share the time of the exchange."""
    infos = socket.getaddrinfo(ip, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    family, kind, protocol, _, sockaddr = infos[0]
    sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(DEADLINE / left if left > 1 else None):
            await asyncio.get_running_loop().sock_connect(sock, sockaddr)
    except BaseException:
        sock.close()
        raise
    return sock


def _host(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return host if address.port == (443 if address.tls else 80) else f"{host}:{address.port}"


def _seconds(text: str) -> float:
    """Return the seconds of a Retry-After header, 0 for a date and for anything else."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0.0


def _reason(error: Exception, took: float, *, has_certificate: bool) -> str:
    """Return why an exchange failed, and the remedy. has_certificate: whether this node presents one."""
    match error:
        case ssl.SSLCertVerificationError():
            untrusted = f"is not trusted ({error.verify_message}): set the CA that signed it"
            return f"its certificate {validity_problem(error, time.time()) or untrusted}"
        case ConnectionResetError() | BrokenPipeError() if has_certificate:
            return f"the connection broke: see that it runs, {_TRUST_REMEDY}"
        case ssl.SSLError():
            return (
                f"TLS failed ({error.reason or 'the connection broke'}): see that it speaks https there"
                + (f", {_TRUST_REMEDY}" if has_certificate else "")
            )
        case TimeoutError():
            return f"no answer within {took:g} s: see that it runs and can be reached"
        case TooLongError():
            return f"its answer has more than {REPLY_LIMIT} bytes: see that the address is the aggregator's"
        case socket.gaierror():
            return resolve_error(error)
        case OSError():
            # The text of asyncio repeats the address.
            problem = os.strerror(error.errno) if error.errno else error.strerror or "the connection broke"
            return f"{problem}: see that it runs and can be reached"
        case _:
            return "its answer is not HTTP: see that the address is the aggregator's"
