"""Errors of requests to the Kubernetes API, with a message that names the remedy. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from nodeguard.model.json_decoder import JsonDecoder

T = TypeVar("T")

# Characters of the server's message that are passed on.
_MAX_MESSAGE = 400

_PAGE = "a page of another server, or of a proxy: check the address, and the proxies before it"

_FORBIDDEN = 403
_DENIED = "have the webhook or policy permit it"
_TERMINATING = "NamespaceTerminating"
_NO_NAMESPACE = "create the namespace again once it is gone"

# Reason of an ApiError, and of a cause, if a PodDisruptionBudget forbids an eviction: status 429, as for too
# many requests.
DISRUPTION_BUDGET = "DisruptionBudget"

_REMEDIES = {
    401: "check that the user or service account exists and that its token or certificate is valid",
    _FORBIDDEN: "grant the user or service account this right, as the manifests do",
    410: "nodeguard starts the list again",
    413: "the object exceeds the server's size limit",
    429: "the server limits requests; nodeguard retries",
}

# The remedy for a resource in which no object can be created, since the server does not have it.
NOT_SERVED = "install the CustomResourceDefinition of the resource, or create the namespace"


class ApiError(Exception):
    """A request to the Kubernetes API failed.

    status: HTTP status code, 0 where the server could not be reached or did not respond in time. reason: one
    word in CamelCase, as Kubernetes has them (`Conflict`, `Expired`, `DisruptionBudget`); for status 0
    `Unreachable`, `Disconnected`, `Timeout`, `TooLarge`, `Unreadable` or `Access`. message: one sentence for
    operators. retry_after: seconds after which the server accepts a retry, None where it names no delay.
    fields: paths of the invalid fields, such as `status.symptoms[0].check`. lacks_right: whether the user
    lacks the right; an admission webhook or policy may return the same status, for one object.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        fields: tuple[str, ...] = (),
        *,
        lacks_right: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.fields = fields
        self.lacks_right = lacks_right


class _Cause(Struct):
    field: str = ""
    reason: str = ""
    message: str = ""


class _Details(Struct):
    retryAfterSeconds: float = 0.0  # noqa: N815
    causes: list[_Cause] = []


class ApiStatus(Struct):
    """The Status object that the API returns for an error; only the fields that nodeguard reads."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_DECODER = JsonDecoder(ApiStatus)


def response_error(
    code: int, phrase: str, headers: Mapping[str, str], body: bytes, request: str, remedy: str = ""
) -> ApiError:
    """Return the error for an HTTP error response. phrase: HTTP's reason phrase; request: method and path;
    remedy: empty for that of the response.
    """
    try:
        status = _DECODER.decode(body)
    except msgspec.MsgspecError:
        text = body.decode(errors="replace").lstrip()
        status = ApiStatus(message=_PAGE if text.startswith("<") else text)
    return status_error(code, status, headers.get("Retry-After", ""), phrase, request, remedy)


def status_error(
    code: int, status: ApiStatus, retry_after: str, phrase: str, request: str, remedy: str = ""
) -> ApiError:
    """Return the error for a Status object. retry_after: the header of that name, empty for none. remedy:
    empty for that of the status.
    """
    text = single_line(status.message) or phrase or "no reason given"
    is_denied, budget = _is_denied(status), _budget_message(status)
    remedy = remedy or budget or (_denial_remedy(status) if is_denied else _REMEDIES.get(code, ""))
    message = f"the Kubernetes API returned {code} for {request}: {text}{': ' if remedy else ''}{remedy}"
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    if seconds is None and status.details is not None and status.details.retryAfterSeconds > 0:
        seconds = status.details.retryAfterSeconds
    fields = tuple(cause.field for cause in status.details.causes) if status.details is not None else ()
    reason = DISRUPTION_BUDGET if budget else status.reason or phrase.replace(" ", "")
    lacks_right = code == _FORBIDDEN and not is_denied
    return ApiError(code, reason, message, seconds, fields, lacks_right=lacks_right)


def _is_denied(status: ApiStatus) -> bool:
    """Return whether a webhook or a policy denied the request, also the policy that a namespace at its end
    accepts no object. A Status for a missing right has details
    without causes; a webhook's has no details, and a policy's has causes.
    """
    return status.code == _FORBIDDEN and (status.details is None or bool(status.details.causes))


def _denial_remedy(status: ApiStatus) -> str:
    causes = status.details.causes if status.details is not None else []
    return _NO_NAMESPACE if any(cause.reason == _TERMINATING for cause in causes) else _DENIED


def _budget_message(status: ApiStatus) -> str:
    """Return which PodDisruptionBudget forbids an eviction, and why; empty if none does."""
    causes = status.details.causes if status.details is not None else []
    messages = (cause.message for cause in causes if cause.reason == DISRUPTION_BUDGET)
    return single_line(next(messages, ""))


def affects_all_requests(error: ApiError) -> bool:
    """Return whether an error concerns the server as a whole, rather than this request only."""
    return (error.status == 0 and error.reason != "TooLarge") or error.status in {429, 503}


def may_have_succeeded(error: ApiError) -> bool:
    """Return whether the server may have carried out a request that failed: its response was lost, or is an
    error of the server itself. A request without a connection was not sent.
    """
    return (error.status == 0 and error.reason not in {"Access", "Unreachable"}) or error.status >= 500


def is_refusal(error: ApiError) -> bool:
    """Return whether the server refused a request for good, rather than failed or lost a race."""
    return 400 <= error.status < 500 and error.status not in {404, 408, 409, 429}


def single_line(text: str) -> str:
    """Return a server's message on one line, without control characters, cut to a readable length."""
    printable = "".join(char if char.isprintable() else " " for char in text[: 4 * _MAX_MESSAGE])
    line = " ".join(printable.split())
    return line if len(line) <= _MAX_MESSAGE else f"{line[: _MAX_MESSAGE - 1]}…"


def decoded(decode: Callable[[bytes], T], body: bytes, name: str) -> T:
    """Return the object of a response. name: of the object, for the message. Raises ApiError."""
    try:
        return decode(body)
    except msgspec.MsgspecError as error:
        raise ApiError(0, "Unreadable", f"{name} could not be read: {single_line(str(error))}") from None
