"""Patches of a Node: for its marks, and for the condition `NodeguardHealthy`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from nodeguard.executors.kube.desired import DesiredNode, unmarked_node
from nodeguard.model.instant import rfc3339
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.mark import EPOCH_ANNOTATION, HOLD_ANNOTATION, STATE_ANNOTATION, MarkRecord
from nodeguard.model.node import PREFIX, Node, NodeCondition, Taint

# The type of nodeguard's condition.
HEALTHY_CONDITION = "NodeguardHealthy"

# Effects that are never written: they delete running pods.
_FORBIDDEN_EFFECTS = frozenset({"NoExecute"})

# Above every epoch of a lease. A kubelet may write its own Node, and must not fence the writer of all Nodes.
_EPOCH_LIMIT = 2**30
_MAX_EPOCH_DIGITS = 10


class MarkError(Exception):
    """Marks that must not be written; names them and the reason."""


def mark_patch(node: Node, desired: DesiredNode, epoch: int) -> dict[str, Any] | None:
    """Return the merge patch that gives a Node its desired marks; None if it has them already.

    The list of taints is only written as a whole: taints of others stay as they are, in their order, and the
    patch is valid for this version of the Node only. epoch: of the lease; it is written with a change, and
    removed with the last mark. Raises MarkError.
    """
    spec = _taint_spec(node, desired)
    current_state = node.annotations.get(STATE_ANNOTATION, "")
    is_our_cordon = node.unschedulable and is_cordon_recorded(current_state)
    if desired.cordon and not node.unschedulable:
        spec["unschedulable"] = True
        is_our_cordon = True
    elif desired.cordon is False and is_our_cordon:
        spec["unschedulable"] = None
        is_our_cordon = False
    elif desired.cordon is None:
        is_our_cordon = is_our_cordon and is_cordon_recorded(desired.state)
    # The owner of a cordon is only known here: an operator may have cordoned the Node since the plan.
    state = _with_cordon(desired.state, is_our_cordon=is_our_cordon)
    differs = state != current_state
    if not spec and not differs:
        return None
    annotations: dict[str, str | None] = {STATE_ANNOTATION: state or None} if differs else {}
    annotations[EPOCH_ANNOTATION] = str(epoch) if state else None
    meta = {"uid": node.uid, "resourceVersion": node.version, "annotations": annotations}
    return {"metadata": meta, "spec": spec} if spec else {"metadata": meta}


def taint_patch(node: Node, desired: DesiredNode) -> dict[str, Any] | None:
    """Return the merge patch for the desired taints only; None if the Node has them. Without a record, a
    cordon would count as an operator's, so that there is none. Raises MarkError.
    """
    spec = _taint_spec(node, desired)
    return {"metadata": {"uid": node.uid, "resourceVersion": node.version}, "spec": spec} if spec else None


def unmark_patch(node: Node, hold: str, record: MarkRecord | None = None) -> dict[str, Any]:
    """Return the merge patch that removes all marks of nodeguard from a Node, and holds it, so that none is
    set again. Taints that others set stay. hold: the reason; a hold of an operator that is on the Node
    already stays. record: see foreign_taints.

    The patch is valid for this version of the Node only.
    """
    patch = mark_patch(node, unmarked_node(node, record), 0) or {
        "metadata": {"uid": node.uid, "resourceVersion": node.version, "annotations": {}}
    }
    if not _is_held(node):
        patch["metadata"]["annotations"][HOLD_ANNOTATION] = hold
    return patch


def _is_held(node: Node) -> bool:
    return node.annotations.get(HOLD_ANNOTATION, "false") != "false"


def check_hold(node: Node, desired: DesiredNode) -> None:
    """Verify that no operator holds a Node since the plan. Raises MarkError."""
    if is_held_back(node, desired):
        raise MarkError(f"{node.name}: an operator holds the Node since this was planned: it is not changed")


def is_held_back(node: Node, desired: DesiredNode) -> bool:
    """Return whether a hold forbids a desired state. Removing all marks is allowed on a held Node."""
    return _is_held(node) and bool(desired.taints or desired.state)


def condition_patch(node: Node, condition: NodeCondition, now: float) -> dict[str, Any] | None:
    """Return the strategic merge patch of a Node's status that sets the condition; None if it is set already.

    A condition without a status means removal. A change of the message only is not written, see
    model.node.Condition. now: seconds since the epoch; it is the time of the heartbeat, and of the transition
    where the status changes.
    """
    before = node.condition
    if not condition.replaces(before):
        return None
    if not condition.status:
        removal = {"$patch": "delete", "type": HEALTHY_CONDITION}
        return {"metadata": {"uid": node.uid}, "status": {"conditions": [removal]}}
    timestamp = rfc3339(now)
    body = {
        "type": HEALTHY_CONDITION,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.short_message,
        "lastHeartbeatTime": timestamp,
    }
    if before is None or before.status != condition.status:
        body["lastTransitionTime"] = timestamp
    return {"metadata": {"uid": node.uid}, "status": {"conditions": [body]}}


def written_epoch(annotations: dict[str, str]) -> int:
    """Return the epoch under which an object was last written; 0 for none, and for one that no lease has."""
    text = annotations.get(EPOCH_ANNOTATION, "")
    epoch = int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_EPOCH_DIGITS else 0
    return epoch if epoch < _EPOCH_LIMIT else 0


def is_cordon_recorded(state: str) -> bool:
    """Return whether a value of the annotation STATE records the cordon as nodeguard's own."""
    return "cordoned" in state and _fields(state).get("cordoned") is True


def _with_cordon(state: str, *, is_our_cordon: bool) -> str:
    """Return a value of STATE that records the cordon as nodeguard's exactly if it is."""
    if is_cordon_recorded(state) == is_our_cordon:
        return state
    fields = _fields(state)
    fields.pop("cordoned", None)
    if is_our_cordon:
        fields["cordoned"] = True
    return msgspec.json.encode(fields).decode()


def _fields(state: str) -> dict[str, Any]:
    try:
        return JsonDecoder(dict[str, Any]).decode(state)
    except msgspec.MsgspecError:
        return {}


def _taint_spec(node: Node, desired: DesiredNode) -> dict[str, Any]:
    """Return the part of the spec with the desired taints, after those of others; empty if the Node has them.
    Raises MarkError.
    """
    ours = _allowed_taints(desired, node)
    if set(ours) == {taint for taint in node.taints if _is_ours(taint)}:
        return {}
    theirs = [taint for taint in node.taints if not _is_ours(taint)]
    return {"taints": [_taint_body(taint) for taint in (*theirs, *ours)] or None}


def _allowed_taints(desired: DesiredNode, node: Node) -> tuple[Taint, ...]:
    """Return the desired taints, each key and effect once. Raises MarkError."""
    allowed: dict[tuple[str, str], Taint] = {}
    for taint in desired.taints:
        if not _is_ours(taint):
            raise MarkError(f"{desired.name}: the taint {taint.key} does not belong to nodeguard")
        # An operator may have set it; such a taint stays.
        if taint.effect in _FORBIDDEN_EFFECTS and taint not in node.taints:
            raise MarkError(
                f"{desired.name}: the taint {taint.key} deletes running pods: it is never written"
            )
        allowed.setdefault((taint.key, taint.effect), taint)
    return tuple(allowed.values())


def _is_ours(taint: Taint) -> bool:
    return taint.key.startswith(PREFIX)


def _taint_body(taint: Taint) -> dict[str, str]:
    return dict(_taint_fields(taint))


def _taint_fields(taint: Taint) -> Iterable[tuple[str, str]]:
    yield "key", taint.key
    if taint.value:
        yield "value", taint.value
    yield "effect", taint.effect
    if taint.time_added:
        yield "timeAdded", taint.time_added
