"""The Events of drains on their Node: one for the begin and one for the end, for any number of pods. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from nodeguard.fleet_api.text.drain import failed_text, gangs_text, pod_names
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.eviction import DrainEvent


def drain_events(
    previous: Mapping[str, NodeAction],
    drains: Iterable[NodeAction],
    checks: Callable[[NodeAction], Collection[str]],
) -> Iterator[DrainEvent]:
    """Yield the Events of drains that have begun or ended. previous: the drains as they were before, by key:
    one that is not among them was reported by an earlier leader. drains: as they are stored now. checks:
    returns those of the faults of a drain.
    """
    for drain in drains:
        earlier = previous.get(drain.key)
        if earlier is None or earlier.state.is_finished:
            continue
        if drain.begun_at and not earlier.begun_at:
            yield _event(drain, "NodeguardDrainStarted", _begin(drain, checks(drain)))
        if drain.state.is_finished and (drain.begun_at or earlier.begun_at):
            yield _end(drain)


def _begin(drain: NodeAction, checks: Collection[str]) -> str:
    reason = ", ".join((drain.request, *checks))
    by = f"; requested by {drain.requested_by}" if drain.requested_by else ""
    return f"evicts {pod_names(drain.pods)}{gangs_text(drain)}: {reason}{by}"


def _end(drain: NodeAction) -> DrainEvent:
    if drain.state == ActionState.SUCCEEDED:
        return _event(drain, "NodeguardDrainSucceeded", f"{drain.message}: {drain.request}")
    if drain.state.is_withdrawn:
        return _event(drain, "NodeguardDrainWithdrawn", drain.message)
    return _event(drain, "NodeguardDrainFailed", f"{drain.request}: {failed_text(drain)}", is_warning=True)


def _event(drain: NodeAction, reason: str, message: str, *, is_warning: bool = False) -> DrainEvent:
    return DrainEvent(drain.node, drain.uid, reason, message, is_warning)
