"""Refused messages as responses have them. Pure."""

from __future__ import annotations

from nodeguard.fleet.refusals import Refusal
from nodeguard.fleet_api.forms import RefusedMessages
from nodeguard.model.instant import Instant, rfc3339


def refused_messages(refusal: Refusal, now: Instant) -> RefusedMessages:
    """Return the refused messages of a node as responses have them."""
    return RefusedMessages(
        node=refusal.node,
        reason=refusal.reason,
        message=refusal.message,
        count=refusal.count,
        latest=rfc3339(now.wall_of(refusal.last)),
        age=round(max(0.0, now.mono - refusal.last), 1),
    )
