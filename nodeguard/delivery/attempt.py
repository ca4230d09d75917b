"""One attempt to deliver a message: the signed request, and what the response means for the message."""

from __future__ import annotations

import base64
import hmac
import ssl
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from hashlib import sha256

import aiohttp
from msgspec import Struct

# Seconds for one request.
TIMEOUT = 10.0

# Statuses that are about the message: the receiver cannot process it, and will not later.
_REFUSALS = frozenset({400, 413, 422})
_TOO_LARGE = 413

_REMEDIES = {
    401: "check the credentials",
    403: "check the credentials",
    404: "check the url",
    407: "check the proxy",
    410: "check the url",
}

_KEY_PREFIX = b"whsec_"


class Destination(Struct, frozen=True):
    """A webhook. secret: key of the signature, empty for none. ca: the authorities that may sign the
    receiver's certificate, in PEM; empty for those of the system. render: returns the body of a request from
    a payload; it may add secrets, which no queue stores. Never log url or secrets.
    """

    name: str
    url: str
    render: Callable[[bytes], bytes]
    secret: bytes = b""
    ca: str = ""


class AttemptResult(Struct, frozen=True):
    """The result of an attempt. problem: empty if the receiver has accepted the message; it never has the
    address, which may be a secret. is_refused: whether the problem is the message, so that each attempt would
    fail; is_too_large: whether it is its size. retry_after: seconds that the receiver asks for.
    """

    problem: str = ""
    is_refused: bool = False
    is_too_large: bool = False
    retry_after: float = 0.0


async def send(
    destination: Destination,
    session: aiohttp.ClientSession,
    trusted: ssl.SSLContext,
    *,
    message_id: str,
    body: bytes,
    wall: float,
) -> AttemptResult:
    """Send a body once. trusted: the authorities of the receiver. wall: seconds since the epoch."""
    headers = signed_headers(destination.secret, message_id, body, wall)
    try:
        async with session.post(
            destination.url, data=body, headers=headers, allow_redirects=False, ssl=trusted
        ) as response:
            return _result_of(response.status, response.headers, wall)
    except TimeoutError:
        return AttemptResult(f"no response within {TIMEOUT:g} s")
    except aiohttp.ClientConnectorCertificateError:
        return AttemptResult(
            "the receiver's certificate is not trusted: set caFile to the CA certificate that signed it"
        )
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return AttemptResult(f"cannot send ({type(error).__name__}): check the url and the network")


def _result_of(status: int, headers: Mapping[str, str], wall: float) -> AttemptResult:
    """Return what a response means. Only a few statuses are about the message: all others may pass."""
    if 200 <= status < 300:
        return AttemptResult()
    remedy = "set the address to which it redirects" if 300 <= status < 400 else _REMEDIES.get(status, "")
    problem = f"HTTP status {status}: {remedy}" if remedy else f"HTTP status {status}"
    return AttemptResult(
        problem,
        is_refused=status in _REFUSALS,
        is_too_large=status == _TOO_LARGE,
        retry_after=_retry_after(headers.get("Retry-After", ""), wall),
    )


def _retry_after(text: str, wall: float) -> float:
    """Return the seconds of a header: a number or a date; 0 for none."""
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - wall)
    except (ValueError, OverflowError):
        return 0.0


def signed_headers(secret: bytes, message_id: str, body: bytes, wall: float) -> dict[str, str]:
    """Return the headers of a request, by the Standard Webhooks specification.

    With a secret, the signature is the HMAC-SHA256 of id, time and body. wall: seconds since the epoch.
    """
    sent = f"{wall:.0f}"
    headers = {"Content-Type": "application/json", "webhook-id": message_id, "webhook-timestamp": sent}
    if secret:
        content = f"{message_id}.{sent}.".encode() + body
        digest = hmac.new(signing_key(secret), content, sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def signing_key(secret: bytes) -> bytes:
    """Return the key of a secret: `whsec_` and Base64, or the secret itself. Raises ValueError."""
    if not secret.startswith(_KEY_PREFIX):
        return secret
    key = base64.b64decode(secret.removeprefix(_KEY_PREFIX), validate=True)
    if not key:
        raise ValueError("the key is empty")
    return key
