"""The Events of drains on their Node: one for the begin and one for the end, for any number of pods. Pure.

They follow from the records, so that a leader that is killed after a record and before its Event loses none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from nodeguard.fleet_api.text.drain import failed_text, gangs_text, pod_names
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.eviction import DrainEvent


def drain_events(
    previous: Mapping[str, NodeAction],
    drains: Iterable[NodeAction],
    checks: Callable[[NodeAction], Collection[str]],
    since: float,
) -> Iterator[DrainEvent]:
    """Yield the Events of drains that have begun or ended. previous: the drains as they were before, by key.
    drains: as they are stored now. checks: returns those of the faults of a drain. since: for drains that are
    not among the previous ones, in seconds since the epoch: what happened before was reported by an earlier
    leader, and what happened later may have been.
    """
    for drain in drains:
        earlier = previous.get(drain.key)
        is_begin_old = drain.begun_at < since if earlier is None else bool(earlier.begun_at)
        is_end_old = drain.changed_at < since if earlier is None else earlier.state.is_finished
        if drain.begun_at and not is_begin_old:
            message = _begin(drain, checks(drain))
            yield _event(drain, "started", drain.begun_at, "NodeguardDrainStarted", message)
        # The begin of a drain with a first eviction that was refused is taken back, and its state shows it.
        has_begun = drain.begun_at or drain.state == ActionState.SUPERSEDED
        if has_begun and drain.state.is_finished and not is_end_old:
            yield _end(drain)


def _begin(drain: NodeAction, checks: Collection[str]) -> str:
    reason = ", ".join((drain.request, *checks))
    by = f"; requested by {drain.requested_by}" if drain.requested_by else ""
    return f"evicts {pod_names(drain.pods)}{gangs_text(drain)}: {reason}{by}"


def _end(drain: NodeAction) -> DrainEvent:
    is_warning = False
    if drain.state == ActionState.SUCCEEDED:
        reason, message = "NodeguardDrainSucceeded", f"{drain.message}: {drain.request}"
    elif drain.state.is_withdrawn:
        reason, message = "NodeguardDrainWithdrawn", drain.message
    else:
        reason, message, is_warning = "NodeguardDrainFailed", f"{drain.request}: {failed_text(drain)}", True
    return _event(drain, "ended", drain.changed_at, reason, message, is_warning=is_warning)


def _event(
    drain: NodeAction, part: str, at: int, reason: str, message: str, *, is_warning: bool = False
) -> DrainEvent:
    return DrainEvent(drain.node, drain.uid, f"{drain.key}.{part}", at, reason, message, is_warning)
