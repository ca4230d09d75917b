"""Schema of actions: requests of operators to agents, and drains."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet_api.schema.drain import DrainView
from nodeguard.model.action import ActionState


class ActionView(Struct, frozen=True):
    """A request of an operator to the agent of a node, or a drain, with its last attempt."""

    name: str
    """Name of its NodeAction."""
    node: str
    kind: str
    """Kind of the request; a newer version may add kinds."""
    purpose: str
    """What it does, after `to`."""
    request: str
    """Who requested it, and when; of a drain, the quarantine."""
    requested_by: str
    """Name of the operator who requested a drain; empty for one by the policy, and for other kinds."""
    attempt: int
    """Number of the attempt; the first is 1."""
    incident: str
    """Name of the incident that it clears; empty for none."""
    state: ActionState
    parts: int
    """Number of the pods to evict, or of the findings to clear; 1 for another kind."""
    carried_out: int
    """Number of the parts that are done."""
    message: str
    """The answer of the agent, or why there is none; of a drain, how it ended. Empty before."""
    created_at: str
    """When it was requested."""
    age: float
    changed_at: str
    """When the state changed last."""
    changed_age: float
    """Seconds since `changed_at`."""
    times: int = 1
    """In the view of a node, the number of requests for the same that failed in a row, of which this is the
    latest; otherwise 1."""


class ActionList(Struct, frozen=True):
    """The actions that are recorded, unfinished ones first, then the latest; finished ones for a day."""

    version: Literal[1]
    at: str
    actions: tuple[ActionView, ...]
    """The actions."""
    omitted: int
    """Number of actions above the limit of a response."""
    unrecorded_drains: tuple[DrainView, ...]
    """Drains without an action: something forbids them, or the policy only observes. Empty on a replica that
    does not lead."""
