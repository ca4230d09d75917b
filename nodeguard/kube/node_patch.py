"""From a Node and what it is to carry to the one patch that makes it so. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from nodeguard.kube.nodes import HEALTHY_CONDITION
from nodeguard.model.instant import rfc3339
from nodeguard.model.mark import EPOCH_ANNOTATION, HOLD_ANNOTATION, STATE_ANNOTATION, DesiredNode
from nodeguard.model.node import PREFIX, Node, NodeCondition, Taint

# Effects that are never written: the one deletes pods that run.
_NEVER = frozenset({"NoExecute"})

# What no lease comes to, and none outgrows: a node may write on its own Node, and must not end the term of
# who writes on all.
_NO_EPOCH = 2**30
_LONGEST_EPOCH = 10


class MarkError(Exception):
    """Marks that must not be written, whoever asks; says which and why."""


def mark_patch(node: Node, desired: DesiredNode, epoch: int) -> dict[str, Any] | None:
    """The merge patch after which a Node carries what is desired, None where it does already.

    Others' taints go along as they are and in their order, as the list is only written whole: the patch holds
    for this very version of the Node alone. epoch: of the lease; it is written along with something
    else, and goes with the last of ours. Raises MarkError.
    """
    ours = _checked(desired, node)
    spec: dict[str, Any] = {}
    if set(ours) != {taint for taint in node.taints if _is_ours(taint)}:
        theirs = [taint for taint in node.taints if not _is_ours(taint)]
        spec["taints"] = [_written(taint) for taint in (*theirs, *ours)] or None
    had = node.annotations.get(STATE_ANNOTATION, "")
    is_our_cordon = node.unschedulable and is_cordon_recorded(had)
    if desired.cordon and not node.unschedulable:
        spec["unschedulable"] = True
        is_our_cordon = True
    elif desired.cordon is False and is_our_cordon:
        spec["unschedulable"] = None
        is_our_cordon = False
    elif desired.cordon is None:
        is_our_cordon = is_our_cordon and is_cordon_recorded(desired.state)
    # Whose a cordon is shows only here: between plan and write a person may have been first.
    state = _owning(desired.state, is_our_cordon=is_our_cordon)
    differs = state != had
    if not spec and not differs:
        return None
    annotations: dict[str, str | None] = {STATE_ANNOTATION: state or None} if differs else {}
    annotations[EPOCH_ANNOTATION] = str(epoch) if ours or state else None
    meta = {"uid": node.uid, "resourceVersion": node.version, "annotations": annotations}
    return {"metadata": meta, "spec": spec} if spec else {"metadata": meta}


def check_hold(node: Node, desired: DesiredNode) -> None:
    """See that nobody has said meanwhile not to touch a Node; people who have all taken away mean it, too.
    Raises MarkError.
    """
    if node.annotations.get(HOLD_ANNOTATION, "false") != "false" and (desired.taints or desired.state):
        raise MarkError(f"{node.name} is held since this was planned: it is left as it is")


def written_epoch(annotations: dict[str, str]) -> int:
    """The epoch under which something was last written; 0 where nothing says so, or what no lease has."""
    said = annotations.get(EPOCH_ANNOTATION, "")
    epoch = int(said) if said.isascii() and said.isdigit() and len(said) <= _LONGEST_EPOCH else 0
    return epoch if epoch < _NO_EPOCH else 0


def is_cordon_recorded(state: str) -> bool:
    """Whether a text of the annotation STATE says that the cordon is nodeguard's own."""
    return "cordoned" in state and _fields(state).get("cordoned") is True


def _owning(state: str, *, is_our_cordon: bool) -> str:
    """A text of STATE that takes the cordon for ours just where it is."""
    if is_cordon_recorded(state) == is_our_cordon:
        return state
    fields = _fields(state)
    fields.pop("cordoned", None)
    if is_our_cordon:
        fields["cordoned"] = True
    return msgspec.json.encode(fields).decode()


def _fields(state: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(state, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _checked(desired: DesiredNode, node: Node) -> tuple[Taint, ...]:
    """The desired taints, each key and effect once; what a person set stays. Raises MarkError."""
    once: dict[tuple[str, str], Taint] = {}
    for taint in desired.taints:
        if not _is_ours(taint):
            raise MarkError(f"{desired.name}: the taint {taint.key} is not nodeguard's to write")
        if taint.effect in _NEVER and taint not in node.taints:
            raise MarkError(
                f"{desired.name}: the taint {taint.key} deletes pods that run: it is never written"
            )
        once.setdefault((taint.key, taint.effect), taint)
    return tuple(once.values())


def _is_ours(taint: Taint) -> bool:
    return taint.key.startswith(PREFIX)


def _written(taint: Taint) -> dict[str, str]:
    return dict(_members(taint))


def _members(taint: Taint) -> Iterable[tuple[str, str]]:
    yield "key", taint.key
    if taint.value:
        yield "value", taint.value
    yield "effect", taint.effect
    if taint.time_added:
        yield "timeAdded", taint.time_added


def condition_patch(node: Node, wanted: NodeCondition, now: float) -> dict[str, Any] | None:
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
        gone = {"$patch": "delete", "type": HEALTHY_CONDITION}
        return {"metadata": {"uid": node.uid}, "status": {"conditions": [gone]}}
    moment = rfc3339(now)
    said = {
        "type": HEALTHY_CONDITION,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.short_message,
        "lastHeartbeatTime": moment,
    }
    if had is None or had.status != wanted.status:
        said["lastTransitionTime"] = moment
    return {"metadata": {"uid": node.uid}, "status": {"conditions": [said]}}
