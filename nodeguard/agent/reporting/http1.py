"""Messages over HTTPS, with the standard library: one connection that is kept, no redirects, no proxies.

What an error says never holds the token, nor what the other side sent.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from typing import Protocol

from msgspec import Struct

from nodeguard.agent.reporting.connect import connect
from nodeguard.agent.reporting.credentials import CredentialError, TokenFile
from nodeguard.agent.reporting.endpoint import Address, parse_address, unnamed
from nodeguard.agent.reporting.hurry import Hurry, OverdueError
from nodeguard.agent.reporting.timed import OverlongError, TimedSocket
from nodeguard.agent.reporting.tls import CertificateFiles, TrustError, tls_context
from nodeguard.local.certificate_validity import validity_problem
from nodeguard.wire.encoding import REPLY_LIMIT

# Seconds for one exchange with its connection.
DEADLINE = 10.0


class HttpResponse(Struct, frozen=True):
    """What came back. status: HTTP's. put_off: seconds that the receiver wants to be left alone."""

    status: int
    body: bytes
    retry_after: float = 0.0


class TransportError(Exception):
    """No answer came, or none that can be used; says why and how to remedy."""


class Transport(Protocol):
    """A way to one receiver. It belongs to one thread, but for hurry."""

    name: str

    def post(self, body: bytes, within: float) -> HttpResponse:
        """Send a message and wait for the answer, so many seconds at most. Raises TransportError."""

    def hurry(self, until: float) -> None:
        """Be done by a moment of time.monotonic, with what is under way too. The latest word counts."""

    def close(self) -> None:
        """Close what is open; a later message opens it again."""


# Bytes of a reply's headers.
_HEADERS = 16 * 1024

# What a connection says that the other side has closed since the last exchange.
_CLOSED = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)

_TRUSTS = "and trusts who signed this node's certificate, and that both clocks are right"


class HttpsTransport:
    """A receiver's address, `https://host:port/path`; plain http to this very machine alone.

    address: as written, or in its parts. ca_file: certificates to trust, read again for each connection; None
    for the system's. shown: what this node shows of itself, read again likewise. Raises AddressError where
    the address is none. The name service alone may take longer than a deadline allows.
    """

    def __init__(
        self,
        address: str | Address,
        token: TokenFile | None,
        ca_file: str | None = None,
        shown: CertificateFiles | None = None,
    ) -> None:
        self._address = parse_address(address) if isinstance(address, str) else address
        self.name = self._address.name
        self._token = token
        self._ca_file = ca_file
        self._shown = shown
        self._connection: http.client.HTTPConnection | None = None
        self._socket: TimedSocket | None = None
        self._hurry = Hurry()

    def post(self, body: bytes, within: float = DEADLINE) -> HttpResponse:
        """Send a message and wait for the answer. Raises TransportError.

        A kept connection that turns out to be closed is opened anew, once: a message may be heard twice, and
        is applied once.
        """
        began = time.monotonic()
        until = began + within
        kept = self._connection is not None
        try:
            headers = self._headers()
            try:
                return self._exchange(body, headers, until)
            except _CLOSED:
                self.close()
                if not kept:
                    raise
                return self._exchange(body, headers, until)
        except (CredentialError, TrustError) as error:
            raise TransportError(str(error)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            took = round(min(within, time.monotonic() - began), 1)
            why = _why(error, took, certified=self._shown is not None)
            raise TransportError(f"{self.name}: {why}") from None

    def hurry(self, until: float) -> None:
        """Be done by a moment of time.monotonic, with what is under way too; any thread may say so."""
        self._hurry.by(until)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        if self._socket is not None:
            self._socket.abort()
        self._connection = self._socket = None

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.token()}"
        return headers

    def _exchange(self, body: bytes, headers: dict[str, str], until: float) -> HttpResponse:
        connection, timed = self._connected(until)
        timed.start(until, REPLY_LIMIT + _HEADERS)
        connection.request("POST", self._address.path, body, headers)
        response = connection.getresponse()
        content = response.read(REPLY_LIMIT + 1)
        if len(content) > REPLY_LIMIT:
            raise OverlongError
        if response.will_close or not response.isclosed():
            self.close()
        if response.status in {401, 403} and self._token is not None:
            self._token.forget()
        return HttpResponse(response.status, content, _put_off(response.getheader("Retry-After")))

    def _connected(self, until: float) -> tuple[http.client.HTTPConnection, TimedSocket]:
        if self._connection is None or self._socket is None:
            context = tls_context(self._ca_file, self._shown) if self._address.tls else None
            self._socket = connect(self._address, context, self._hurry, until)
            self._connection = http.client.HTTPConnection(self._address.host, self._address.port)
            self._connection.auto_open = 0
            self._connection.sock = self._socket
        return self._connection, self._socket


def _put_off(text: str | None) -> float:
    return float(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else 0.0


def _why(error: Exception, within: float, *, certified: bool) -> str:
    """What went wrong. certified: whether this node shows a certificate."""
    match error:
        case ssl.SSLCertVerificationError():
            untrusted = f"is not trusted ({error.verify_message}): set the CA that signed it"
            return f"its certificate {validity_problem(error, time.time()) or untrusted}"
        case ConnectionResetError() | BrokenPipeError() if certified:
            return f"the connection broke: see that it runs, {_TRUSTS}"
        case ssl.SSLError():
            return (
                f"no TLS with it ({error.reason or 'the connection broke'}): see that it speaks https there"
                + (f", {_TRUSTS}" if certified else "")
            )
        case OverdueError() | TimeoutError():
            return f"no answer within {within:g} s: see that it runs and can be reached"
        case OverlongError():
            return f"its answer has more than {REPLY_LIMIT} bytes: see that the address is the aggregator's"
        case socket.gaierror():
            return unnamed(error)
        case OSError():
            return f"{error.strerror or 'the connection broke'}: see that it runs and can be reached"
        case _:
            return "its answer is not HTTP: see that the address is the aggregator's"
