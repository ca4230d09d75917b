"""Requests and responses of the aggregator's local API."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from nodeguard.wire.instruction import MAX_DETACH_SECONDS

# Not the directory of the agent: under systemd each has a runtime directory with its own owner.
SOCKET_PATH = "/run/nodeguard-aggregator/aggregator.sock"

# In characters: the reason of an action, and the operator.
MAX_BY = 128
Reason = Annotated[str, Meta(max_length=512)]
By = Annotated[str, Meta(max_length=MAX_BY)]

# Names of nodes in one request.
NodeNames = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...], Meta(max_length=100)]


class PauseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Set no new marks."""

    reason: Reason = ""
    """The reason, for other operators."""
    by: By = ""


class ResumeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """End a pause."""

    by: By = ""


class UnmarkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Pause, and remove all marks."""

    by: By = ""
    nodes: NodeNames = ()
    """Hold these nodes and remove their marks only, without a pause."""
    reason: Reason = ""
    """Reason of the hold, for other operators."""


class IncidentAction(Struct, frozen=True, forbid_unknown_fields=True):
    """Acknowledge an incident, clear it because its fault is fixed, or withdraw a recorded false alarm."""

    action: Literal["acknowledge", "clear", "withdraw"]
    """What the operator does."""
    by: By = ""
    false_alarm: bool = False
    """With `clear`: record that there was no fault, also of an incident that is over."""
    reason: Reason = ""
    """Reason of a false alarm, or of its withdrawal."""


class GpusRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Have the agent of a node close its handles of GPUs for a time, or read all GPUs again."""

    seconds: Annotated[int, Meta(ge=0, le=MAX_DETACH_SECONDS)]
    """For how many seconds the agent closes the GPUs; 0 to read all again."""
    gpus: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...], Meta(max_length=64)] = ()
    """Index, UUID or PCI address of each GPU; none for all."""
    by: By = ""


class DrainRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Evict the pods that use the faulty hardware of a quarantined node."""

    by: By = ""


class DrainResult(Struct, frozen=True):
    """The drains of a node that were requested, or run already."""

    message: str
    actions: tuple[str, ...]
    """Names of their NodeActions."""


class ActionResult(Struct, frozen=True):
    """The result of an action."""

    message: str


class ErrorResponse(Struct, frozen=True, omit_defaults=True):
    """An error."""

    error: str
    """The reason and the remedy."""
    retry_after: int = 0
    """Seconds after which the request may be sent again, as the API server of Kubernetes asks for it, or did
    not answer; 0 for another error."""
