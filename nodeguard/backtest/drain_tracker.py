"""Drains of a replay over time: those that would have begun, and why others would not. Pure.

A history has no pods. Each set is taken to leave within a minute: what disruption budgets, owners and unknown
holders of GPUs would have forbidden is not known.
"""

from __future__ import annotations

from functools import partial
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.act.drain_progress import drain_action
from nodeguard.fleet.drains import fleet_drain_candidates, limited_drains
from nodeguard.fleet.planner import Planner
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.instant import Instant, Timestamp

# Seconds for which a drain counts as running: twice the default grace period of a pod.
_RUNNING = 60.0

# Seconds for which a drain counts in `newPerHour`.
_HOUR = 3600.0


class ReplayedDrain(Struct):
    """A drain that a policy asks for.

    target: the GPU, or `node` for all GPUs of the node. checks: of its findings, worst first. requested: when
    nodeguard would first have looked at the pods. begun: when it would have evicted them, after their notice;
    None for never. reason: why it waited longer, the latest one; empty if it did not.
    """

    node: str
    target: str
    checks: tuple[str, ...]
    requested: Timestamp
    begun: Timestamp | None = None
    reason: str = ""

    @property
    def waited(self) -> float:
        """Return the seconds from the request to the begin; 0 for a drain that never began."""
        return 0.0 if self.begun is None else self.begun - self.requested


class DrainTracker:
    """Follows the drains of a planner. drains: in the order of their requests."""

    def __init__(self) -> None:
        self.drains: list[ReplayedDrain] = []
        # Those of present quarantines, by uid of the Node and request, and what counts for the limits.
        self._current: dict[tuple[str, str], ReplayedDrain] = {}
        self._actions: list[NodeAction] = []

    def plan_applied(self, planner: Planner, at: float) -> float:
        """Record a plan that was carried out at once. Returns when a drain that waits for the end of its
        notice, or for a limit, is to be looked at again; inf if none does.
        """
        # A later quarantine of the node is drained again.
        over = {key for key in self._current if not planner.state.drain_marks(key[0])}
        for key in over:
            del self._current[key]
        self._actions = [
            _later(action, at, is_released=(action.uid, action.request) in over)
            for action in self._actions
            if at - action.begun_at < _HOUR
        ]
        ready, next_look = [], inf
        for candidate in fleet_drain_candidates(planner, Instant(at, at, "")):
            key = (candidate.uid, candidate.request)
            drain = self._current.get(key)
            if drain is None:
                drain = ReplayedDrain(candidate.node, candidate.resource, candidate.checks, Timestamp(at))
                self._current[key] = drain
                self.drains.append(drain)
            if drain.begun is None and at >= drain.requested + candidate.after:
                ready.append(candidate)
            elif drain.begun is None:
                next_look = min(next_look, drain.requested + candidate.after)
        limited = limited_drains(planner, self._actions, ready, partial(_age, at=at))
        for candidate in limited:
            drain = self._current[candidate.uid, candidate.request]
            if candidate.blocker:
                drain.reason = candidate.blocker
            else:
                drain.begun = Timestamp(at)
                self._actions.append(replace(drain_action(candidate, (), at), begun_at=int(at)))
        if any(candidate.blocker for candidate in limited):
            next_look = min(next_look, at + _RUNNING)
        return next_look


def _age(action: NodeAction, at: float) -> float:
    return at - action.begun_at


def _later(action: NodeAction, at: float, *, is_released: bool) -> NodeAction:
    """Return the drain as of a later time."""
    state = ActionState.SUCCEEDED if is_released or _age(action, at) >= _RUNNING else action.state
    return replace(action, state=state, released_at=int(at) if is_released else action.released_at)
