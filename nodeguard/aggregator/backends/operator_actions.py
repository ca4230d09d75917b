"""Operators' actions: pause, resume, unmark, and acknowledge or clear an incident."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from nodeguard.model.incident import FalseAlarm
from nodeguard.model.instant import rfc3339
from nodeguard.model.node import PREFIX

logger = logging.getLogger(__name__)

# Nodes that a message names.
_SHOWN_NODES = 8


class OperatorActionError(Exception):
    """An action that was not carried out. The message has the reason and the remedy."""


class OperatorActions(Protocol):
    """Carries out operators' actions. Each returns a message for the operator as soon as it is durable.

    by: name of the operator. Each raises OperatorActionError.
    """

    async def pause(self, reason: str, by: str) -> str:
        """Set no new marks."""

    async def resume(self, by: str) -> str:
        """End a pause."""

    async def unmark(self, by: str) -> str:
        """Pause, and remove all marks of nodeguard."""

    async def unmark_nodes(self, nodes: Sequence[str], reason: str, by: str) -> str:
        """Remove all marks of nodeguard from some nodes, and hold these, so that none is set again."""

    async def acknowledge(self, name: str, by: str) -> str:
        """Acknowledge an incident."""

    async def clear(self, name: str, by: str) -> str:
        """Clear an incident: its fault is fixed."""

    async def record_false_alarm(self, name: str, statement: FalseAlarm) -> str:
        """Record whether an incident, open or resolved, was no fault. It is not cleared by that."""


# The name of an operator who gave none.
ANONYMOUS = "an operator"


def false_alarm_message(name: str, statement: FalseAlarm) -> str:
    """Return the message for a statement that is stored, and log it. name: of the incident."""
    fields = {"incident": name, "by": statement.by, "reason": statement.reason}
    if statement.withdrawn:
        logger.info("false alarm of the incident withdrawn", extra=fields)
        return f"{name} is no longer recorded as a false alarm"
    logger.info("incident recorded as a false alarm", extra=fields)
    return f"{name} is recorded as a false alarm"


def clear_message(name: str, *, of_many: bool) -> str:
    """Return the message for a clear. name: of the incident; of_many: whether of a domain or of a check."""
    if of_many:
        return f"{name} is cleared: only new findings count, and each unhealthy node is marked by itself"
    return f"the node's agent is asked to clear {name}; nodeguard describe incident {name} shows its answer"


def format_hold_reason(reason: str, by: str, now: float) -> str:
    """Return the reason of a hold for every withheld mark: who, when and why, as of a pause."""
    return _format_decision("unmarked", by, now, reason)


def format_pause_reason(reason: str, by: str, now: float) -> str:
    """Return the reason of a pause for every withheld mark, with its time.

    For example `paused by alice at 2026-11-21T09:12:33Z: a bad driver`. now: seconds since the epoch.
    """
    return _format_decision("paused", by, now, reason)


def format_resumed(by: str, now: float) -> str:
    """Return who ended a pause, and when. now: seconds since the epoch."""
    return _format_decision("resumed", by, now)


def _format_decision(verb: str, by: str, now: float, reason: str = "") -> str:
    operator = f" by {by}" if by else ""
    return f"{verb}{operator} at {rfc3339(now)}{f': {reason}' if reason else ''}"


def foreign_taints_note(nodes: Sequence[str]) -> str:
    """Return a sentence about Nodes with taints that others set under nodeguard's prefix; empty for none."""
    if not nodes:
        return ""
    names = ", ".join(nodes[:_SHOWN_NODES])
    more = f" and {len(nodes) - _SHOWN_NODES} more" if len(nodes) > _SHOWN_NODES else ""
    return f"; taints under {PREFIX} that nodeguard did not set stay on {names}{more}"
