"""What went wrong between us and the API, in a sentence that says what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

# Characters of a server's sentence that are passed on.
_LONGEST = 400

_REMEDIES = {
    401: "check that the service account still exists and that its token is fresh",
    403: "give the service account this right, as the manifests do",
    413: "the object is larger than the server takes",
    429: "the server is asked too much: it goes on by itself",
}


class ApiError(Exception):
    """A request that came to nothing.

    status: HTTP's, 0 where the server could not be reached or gave no answer in time. reason: one word, as
    Kubernetes has them (`Conflict`, `Expired`), for status 0 `Unreachable`, `Timeout` or `Access`. message:
    one sentence for people. retry_after: seconds after which the server wants to be asked again, None
    where it does not say.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class _Details(Struct):
    retryAfterSeconds: float = 0.0  # noqa: N815


class ApiStatus(Struct):
    """What the API says instead of an object, as far as it matters here."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_DECODER = msgspec.json.Decoder(ApiStatus)


def response_error(code: int, phrase: str, headers: Mapping[str, str], body: bytes, request: str) -> ApiError:
    """The error that an answer is. phrase: HTTP's word for the code; asked: method and path."""
    try:
        said = _DECODER.decode(body)
    except msgspec.MsgspecError:
        said = ApiStatus(message=body.decode(errors="replace"))
    return status_error(code, said, headers.get("Retry-After", ""), phrase, request)


def status_error(code: int, status: ApiStatus, retry_after: str, phrase: str, request: str) -> ApiError:
    """The error that a Status is."""
    text = single_line(status.message) or phrase or "no reason given"
    remedy = _REMEDIES.get(code, "")
    message = f"the Kubernetes API answered {code} to {request}: {text}{': ' if remedy else ''}{remedy}"
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    if seconds is None and status.details is not None and status.details.retryAfterSeconds > 0:
        seconds = status.details.retryAfterSeconds
    return ApiError(code, status.reason or phrase.replace(" ", ""), message, seconds)


def single_line(text: str) -> str:
    """A server's words on one line, and not many of them."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text[: 4 * _LONGEST]).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
