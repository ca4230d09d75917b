"""What is asked of an aggregator and answered, as both sides of its socket write it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

# Not the agent's directory: under systemd each of the two has a runtime directory, with an owner of its own.
SOCKET_PATH = "/run/nodeguard-aggregator/aggregator.sock"

# In characters: why something is done, and by whom.
Why = Annotated[str, Meta(max_length=512)]
By = Annotated[str, Meta(max_length=128)]


class PauseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Mark nothing new. why: for people to read."""

    reason: Why = ""
    by: By = ""


class ResumeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """End a pause."""

    by: By = ""


class UnmarkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Pause, and take away every mark."""

    by: By = ""


class IncidentAction(Struct, frozen=True, forbid_unknown_fields=True):
    """What is decided of an incident: `acknowledge`: it is known of; `clear`: it is over."""

    action: Literal["acknowledge", "clear"]
    by: By = ""


class ActionResult(Struct, frozen=True):
    """What became of it, in a sentence."""

    message: str


class ErrorResponse(Struct, frozen=True):
    """Why it was not done, and the remedy, in a sentence."""

    error: str
