"""Requests to a cloud's metadata service, and its responses."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from nodeguard.bundle.failures import failure_from_name

# The link-local address of the metadata service on AWS, Azure and Google; it needs no name resolution.
ADDRESS = "169.254.169.254"
METADATA = (ADDRESS, 80)

# Bytes of a response; a longer one is rejected. A document on maintenance has a few hundred bytes.
ANSWER_LIMIT = 1 << 16


class MetadataRequest(Struct, frozen=True):
    """A GET of a machine's own metadata service.

    path: with its query. headers: those that the service requires, never a secret. session: whether the
    service requires a session token, as AWS does. The client gets the token and does not pass it on.
    """

    path: str
    headers: dict[str, str] = {}
    session: bool = False

    @property
    def call(self) -> str:
        """Return its name in calls.json: `http(GET http://169.254.169.254/…)`."""
        return f"http(GET http://{ADDRESS}{self.path})"


class MetadataResponse(Struct, frozen=True):
    """A response. body: only with status 200, at most ANSWER_LIMIT bytes; invalid UTF-8 becomes U+FFFD."""

    status: int
    body: str = ""


def recorded_response(answer: dict[str, Any] | None, call: str) -> MetadataResponse:
    """Return the response that calls.json has for a call. answer: its entry, None if it has none.

    Raises the OSError or UnansweredError that the entry names; ENOSYS if there is no entry.
    """
    if answer is None:
        answer = {"error": "ENOSYS"}
    if "error" in answer:
        raise failure_from_name(answer["error"], call)
    return MetadataResponse(answer["status"], answer.get("body", ""))
