"""Requests and responses of the aggregator's local API."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from nodeguard.wire.instruction import MAX_DETACH_SECONDS

# Not the directory of the agent: under systemd each has a runtime directory with its own owner.
SOCKET_PATH = "/run/nodeguard-aggregator/aggregator.sock"

# In characters: the reason of an action, and the operator.
Reason = Annotated[str, Meta(max_length=512)]
By = Annotated[str, Meta(max_length=128)]

# Names of nodes in one request.
NodeNames = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...], Meta(max_length=100)]


class PauseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Set no new marks. reason: for other operators."""

    reason: Reason = ""
    by: By = ""


class ResumeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """End a pause."""

    by: By = ""


class UnmarkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Pause, and remove all marks. nodes: hold these and remove their marks only, without a pause. reason: of
    the hold, for other operators.
    """

    by: By = ""
    nodes: NodeNames = ()
    reason: Reason = ""


class IncidentAction(Struct, frozen=True, forbid_unknown_fields=True):
    """An operator's action on an incident: acknowledge it, or clear it because its fault is fixed.

    false_alarm: with a clear, record that there was no fault, also of an incident that is over; `withdraw`
    withdraws that. reason: of either.
    """

    action: Literal["acknowledge", "clear", "withdraw"]
    by: By = ""
    false_alarm: bool = False
    reason: Reason = ""


class GpusRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Have the agent of a node close its handles of GPUs for so many seconds, or read all GPUs again for 0.

    gpus: index, UUID or PCI address; none for all.
    """

    seconds: Annotated[int, Meta(ge=0, le=MAX_DETACH_SECONDS)]
    gpus: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...], Meta(max_length=64)] = ()
    by: By = ""


class ActionResult(Struct, frozen=True):
    """The result of an action."""

    message: str


class ErrorResponse(Struct, frozen=True):
    """An error. error: has the reason and the remedy."""

    error: str
