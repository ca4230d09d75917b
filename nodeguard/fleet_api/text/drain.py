"""Drains as text. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.fleet_api.schema.drain import DrainView, PodView
from nodeguard.fleet_api.text.phrases import count_noun
from nodeguard.fleet_api.view import Field
from nodeguard.model.target import NODE, target_label

# Pods of one drain that are named.
_NAMED = 5


def drain_fields(drains: Collection[DrainView]) -> Iterator[Field]:
    """Yield the fields of the drains of one node."""
    for drain in drains:
        yield Field("drain", drain_text(drain), name_style="suspect")


def drains_field(drains: Collection[DrainView], omitted: int) -> Field | None:
    """Return the field of the drains of a fleet; None for none. It names one that waits, or else the first.
    omitted: number of further drains.
    """
    if not drains:
        return None
    by_state = {state: [drain for drain in drains if drain.state == state] for state in DrainState}
    counts = {
        "running": len(by_state[DrainState.RUNNING]),
        "waiting": len(by_state[DrainState.WAITS]),
        "in a dry run": len(by_state[DrainState.WOULD_DRAIN]),
    }
    counts["more"] = omitted
    text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    shown = next(iter(by_state[DrainState.WAITS] or drains))
    number = len(drains) + omitted
    counted = f"{text}; " if number > 1 else ""
    return Field("drains", f"{counted}node {shown.node}: {drain_text(shown)}", name_style="suspect")


def pod_names(pods: Collection[PodView]) -> str:
    """Return some pods as text."""
    names = [f"{pod.namespace}/{pod.name}" for pod in pods]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{count_noun(len(names), 'pod')} ({', '.join(names[:_NAMED])}{more})"


def drain_text(drain: DrainView) -> str:
    """Return what leaves a node, or why it stays."""
    match drain.state:
        case DrainState.WOULD_DRAIN:
            return f"dry run: it would evict {pod_names(drain.pods)}"
        case DrainState.RUNNING:
            reason = f": {drain.reason}" if drain.reason else ""
            return f"evicts {pod_names(drain.pods)}{reason}"
    resource = "the node" if drain.resource == NODE else target_label(drain.resource)
    return f"the work of {resource} stays for now: {drain.reason}"
