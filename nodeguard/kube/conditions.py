"""The condition `NodeguardHealthy` on a Node. Pure."""

from __future__ import annotations

from typing import Any

from nodeguard.kube.nodes import HEALTHY
from nodeguard.model.instant import rfc3339
from nodeguard.model.node import Condition, Node


def condition_patch(node: Node, wanted: Condition, now: float) -> dict[str, Any] | None:
    """The strategic merge patch of a Node's status after which it has the condition, None where that has it.

    A condition without a status is one that is to be taken away. Nothing is written for other words alone,
    see model.node.Condition.
    now: seconds since the epoch; it becomes the moment of the transition where the status changes, and of the
    last word always.
    """
    had = node.condition
    if not wanted.replaces(had):
        return None
    if not wanted.status:
        gone = {"$patch": "delete", "type": HEALTHY}
        return {"metadata": {"uid": node.uid}, "status": {"conditions": [gone]}}
    moment = rfc3339(now)
    said = {
        "type": HEALTHY,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.short_message,
        "lastHeartbeatTime": moment,
    }
    if had is None or had.status != wanted.status:
        said["lastTransitionTime"] = moment
    return {"metadata": {"uid": node.uid}, "status": {"conditions": [said]}}
