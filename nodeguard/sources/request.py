"""What is asked of a cloud's metadata service, and what it answers."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from nodeguard.bundle.failures import failure_from_name

# The link-local address at which AWS, Azure and Google all answer; no name has to be resolved for it.
ADDRESS = "169.254.169.254"
METADATA = (ADDRESS, 80)

# A longer answer is refused: what the services tell of maintenance is a few hundred bytes.
ANSWER_LIMIT = 1 << 16


class MetadataRequest(Struct, frozen=True):
    """A GET of a machine's own metadata service.

    path: with its query. headers: what the service demands, nothing secret. session: whether it wants a token
    that is first asked for, as AWS does; whoever carries the request out sees to that and keeps it to itself.
    """

    path: str
    headers: dict[str, str] = {}
    session: bool = False

    @property
    def call(self) -> str:
        """Its name in calls.json: `http(GET http://169.254.169.254/…)`."""
        return f"http(GET http://{ADDRESS}{self.path})"


class MetadataResponse(Struct, frozen=True):
    """An answer. body: of status 200 alone, at most ANSWER_LIMIT bytes; what is no UTF-8 becomes U+FFFD."""

    status: int
    body: str = ""


def recorded_response(answer: dict[str, Any] | None, call: str) -> MetadataResponse:
    """The response that calls.json holds for a call; None where it holds none.

    Raises the OSError or UnansweredError that the answer names, ENOSYS where there is none.
    """
    if answer is None:
        answer = {"error": "ENOSYS"}
    if "error" in answer:
        raise failure_from_name(answer["error"], call)
    return MetadataResponse(answer["status"], answer.get("body", ""))
