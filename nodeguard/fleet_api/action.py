"""Views of the actions of a node: what operators requested of its agent, and drains. Pure."""

from __future__ import annotations

from collections.abc import Collection

from nodeguard.fleet_api.schema.node import ActionView
from nodeguard.fleet_api.service_state import age
from nodeguard.fleet_api.text.phrases import count_noun
from nodeguard.judge.formatting import format_duration
from nodeguard.model.action import ActionKind, NodeAction
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.projection import project
from nodeguard.model.target import target_label

# Requests of a node that are shown, the latest first.
_SHOWN = 8


def list_actions(
    actions: Collection[NodeAction], uid: str, now: Instant
) -> tuple[tuple[ActionView, ...], int]:
    """Return the latest requests of a node, each with its last attempt, and the number of the others.

    actions: of all nodes, as they are stored. A finished one stays for a day.
    """
    last_attempts: dict[tuple[str, ...], NodeAction] = {}
    for action in sorted(actions, key=lambda action: action.attempt):
        if action.uid == uid:
            last_attempts[action.kind, action.incident, f"{action.occurrence}", action.request] = action
    latest = sorted(last_attempts.values(), key=lambda action: (-action.created_at, action.key))
    views = tuple(
        project(
            ActionView,
            action,
            purpose=action_text(action),
            created_at=rfc3339(action.created_at),
            age=age(now, action.created_at),
            changed_at=rfc3339(action.ended_at),
            changed_age=age(now, action.ended_at),
        )
        for action in latest[:_SHOWN]
    )
    return views, max(0, len(latest) - _SHOWN)


def action_text(action: NodeAction) -> str:
    """Return what an action does, after `to`."""
    match action.kind:
        case ActionKind.CLEAR if action.findings:
            first, more = action.findings[0], len(action.findings) - 1
            others = f" and {count_noun(more, 'more finding')}" if more else ""
            return f"clear {first.check} on {target_label(first.target)}{others}"
        case ActionKind.DETACH_GPUS:
            gpus = f"GPU {', '.join(action.gpus)}" if action.gpus else "all GPUs"
            if not action.seconds:
                return f"attach to {gpus} again"
            return f"detach from {gpus} for {format_duration(action.seconds)}"
        case ActionKind.DRAIN:
            further = len(action.pods) - 1
            others = f" and {count_noun(further, 'more pod')}" if further else ""
            return f"evict pod {action.pods[0]}{others}"
    return f"{action.kind}"
