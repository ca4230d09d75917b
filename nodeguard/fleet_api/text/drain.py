"""Drains as text. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.fleet_api.schema.action import ActionView
from nodeguard.fleet_api.schema.drain import DrainPreview, DrainView, PodView
from nodeguard.fleet_api.schema.status import FleetStatus
from nodeguard.fleet_api.text.wording import api_time, count_noun, target_text
from nodeguard.fleet_api.view import Field, Note, Row, View, fields_view
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.pod import PodKey
from nodeguard.model.target import NODE, target_label

# Pods of one drain that are named.
_NAMED = 5


def drain_fields(drains: Collection[DrainView]) -> Iterator[Field]:
    """Yield the fields of the drains of one node."""
    for drain in drains:
        yield Field("drain", drain_text(drain), name_style="suspect")
        yield from _cost_fields(drain)


def drains_fields(status: FleetStatus) -> Iterator[Field]:
    """Yield the fields of the drains of a fleet: one that failed, or else one that waits, or else the first;
    and the costs of all.
    """
    if (field := _drains_field(status)) is not None:
        yield field
        yield from _cost_fields(*status.drains)


def _drains_field(status: FleetStatus) -> Field | None:
    drains, failed = status.drains, status.failed_drains
    waiting = [drain for drain in drains if drain.state == DrainState.WAITS]
    counts = {
        "failed": len(failed) + status.failed_drains_omitted,
        "running": sum(drain.state == DrainState.RUNNING for drain in drains),
        "waiting": len(waiting),
        "announced": sum(drain.state == DrainState.ANNOUNCED for drain in drains),
        "in a dry run": sum(drain.state == DrainState.WOULD_DRAIN for drain in drains),
        "more": status.drains_omitted,
    }
    number = sum(counts.values())
    if not number:
        return None
    text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    counted = f"{text}; " if number > 1 else ""
    if failed:
        shown = f"node {failed[0].node}: {failed_text(failed[0])}"
        return Field("drains", f"{counted}{shown}", name_style="fatal")
    drain = next(iter(waiting or drains))
    return Field("drains", f"{counted}node {drain.node}: {drain_text(drain)}", name_style="suspect")


def failed_text(drain: ActionView | NodeAction) -> str:
    """Return how a drain ended that has left pods, or may have."""
    end = "it failed" if drain.state == ActionState.FAILED else "its end is not known"
    return f"{end}: {drain.message}"


def preview_view(preview: DrainPreview, *, is_dry_run: bool = True) -> View:
    """Return the preview of a drain, with all pods."""
    note = [Note("Dry run: nothing is evicted.", "dim")] if is_dry_run else []
    return fields_view([*note, *_preview_rows(preview)])


def _preview_rows(preview: DrainPreview) -> Iterator[Row]:
    if preview.reason:
        yield Field(preview.node, preview.reason)
    for drain in preview.drains:
        pods, gangs = count_noun(len(drain.pods), "pod"), gangs_text(drain)
        match drain.state:
            case DrainState.WAITS:
                text, style = f"{pods} would stay: {drain.reason}" if drain.pods else drain.reason, "warning"
            case DrainState.RUNNING:
                verb = "is" if len(drain.pods) == 1 else "are"
                text, style = f"{pods} {verb} being evicted{gangs}: {drain.reason}".rstrip(": "), "suspect"
            case _:
                text, style = f"{pods} would be evicted{gangs}" if drain.pods else "no pod to evict", ""
        checks = f"{', '.join(drain.checks)}: " if drain.checks else ""
        yield Field(target_text(drain.resource) if drain.resource else "node", f"{checks}{text}", style)
        for pod in drain.pods:
            yield Field("", f"{pod.namespace}/{pod.name}")
        yield from _cost_fields(drain)


def _cost_fields(*drains: DrainView) -> Iterator[Field]:
    costs = list(dict.fromkeys(cost for drain in drains for cost in drain.costs))
    for cost in costs[:_NAMED]:
        yield Field("cost", cost, "warning")
    if len(costs) > _NAMED:
        yield Field("", f"and {len(costs) - _NAMED} more", "warning")


def pod_names(pods: Collection[PodView | PodKey]) -> str:
    """Return some pods as text."""
    names = [f"{pod.namespace}/{pod.name}" for pod in pods]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{count_noun(len(names), 'pod')} ({', '.join(names[:_NAMED])}{more})"


def gangs_text(*drains: DrainView | NodeAction) -> str:
    """Return the gangs that leave whole, after the number of pods."""
    names = sorted({f"{group.namespace}/{group.name}" for drain in drains for group in drain.pod_groups})
    return f", with all pods of PodGroup {', '.join(names)}" if names else ""


def leaving_pods(node: str, drains: Sequence[DrainView | NodeAction]) -> str:
    """Return how many pods leave with some drains of a node: a pod may be in two of them."""
    pods = {(pod.namespace, pod.name) for drain in drains for pod in drain.pods}
    gangs = gangs_text(*drains)
    return f"{count_noun(len(pods), 'pod')}{gangs}" if gangs else f"{count_noun(len(pods), 'pod')} of {node}"


def requested_drains_text(drains: Sequence[NodeAction]) -> str:
    """Return what becomes of the drains of a node that an operator has requested, at least one."""
    new = [drain for drain in drains if drain.state == ActionState.RESERVED]
    running = [drain for drain in drains if drain.state == ActionState.RUNNING]
    texts = [f"{leaving_pods(new[0].node, new)} will be evicted"] if new else []
    if running:
        operators = ", ".join(sorted({drain.requested_by for drain in running} - {""}))
        by = f", requested by {operators}" if operators else ""
        texts.append(f"{leaving_pods(running[0].node, running)} are being evicted already{by}")
    texts += [f"drained already: {drain.message}" for drain in drains if drain.state.is_finished]
    return "; ".join(texts)


def waiting_reason(drain: DrainView) -> str:
    """Return why the pods of a drain stay, and until when, if that is known."""
    return f"{drain.reason}, until {api_time(drain.limited_until)}" if drain.limited_until else drain.reason


def drain_text(drain: DrainView) -> str:
    """Return what leaves a node, or why it stays."""
    reason = f": {drain.reason}" if drain.reason else ""
    match drain.state:
        case DrainState.WOULD_DRAIN:
            return f"dry run: it would evict {pod_names(drain.pods)}{gangs_text(drain)}{reason}"
        case DrainState.ANNOUNCED:
            return f"evicts {pod_names(drain.pods)}{gangs_text(drain)} at {api_time(drain.evict_at)} or later"
        case DrainState.RUNNING:
            remaining = f", {drain.left} of them not gone" if drain.left is not None else ""
            return f"evicts {pod_names(drain.pods)}{gangs_text(drain)}{remaining}{reason}"
    resource = "the node" if drain.resource == NODE else target_label(drain.resource)
    return f"the work of {resource} stays for now: {waiting_reason(drain)}"
