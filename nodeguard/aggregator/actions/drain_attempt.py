"""What the leader knows of one drain besides the store: its latest assessment and evictions."""

from __future__ import annotations

import asyncio
from math import inf

from msgspec import Struct

from nodeguard.aggregator.actions.drain_assessment import Assessment
from nodeguard.fleet.act.drain_progress import DrainStep
from nodeguard.fleet.act.progress import ActionOutcome
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.eviction import DrainCluster, Eviction, EvictionState
from nodeguard.model.pod import NodePod

# Seconds until a set is assessed again that may not leave: doubled from the first to the last one.
_FIRST_WAIT = 2.0
_LAST_WAIT = 60.0

# Seconds between two readings of the pods of a drain that has begun, the same way.
_FIRST_READING = 1.0
_LAST_READING = 10.0

# Seconds for which an assessment allows the first eviction.
_FRESH = 5.0

# Evictions of one drain at the same time.
_PARALLEL = 8

# The states of an eviction after which the pod ends, or may end.
_MAY_HAVE_EVICTED = frozenset({EvictionState.ACCEPTED, EvictionState.UNKNOWN})


class DrainAttempt(Struct):
    """One candidate or stored drain, as this leader has looked at it. It is lost with the lease."""

    assessment: Assessment | None = None
    assessed_at: float = -inf
    """Seconds of the monotonic clock."""
    due_at: float = -inf
    """When it is looked at again."""
    wait: float = 0.0
    """Seconds of the latest wait."""
    is_read: bool = False
    """Whether the pods of the stored drain were read."""
    is_refused: bool = False
    """Whether the stored drain may not begin any more."""
    has_evicted: bool = False
    """Whether a pod of the set was evicted, or may have been."""
    problems: dict[str, str] = {}
    """Why the latest eviction of a pod failed, by its uid."""
    outcome: ActionOutcome | None = None
    reason: str = ""
    """What the drain that has begun waits for."""

    @property
    def may_leave(self) -> bool:
        """Return whether there are pods to evict, and all of them may leave by the latest assessment."""
        found = self.assessment
        return found is not None and bool(found.pods) and not (found.reason or self.is_refused)

    def is_fresh(self, mono: float) -> bool:
        """Return whether the latest assessment allows the first eviction now."""
        is_allowed = self.assessment is not None and not (self.assessment.reason or self.is_refused)
        return is_allowed and mono - self.assessed_at < _FRESH

    def is_due(self, action: NodeAction | None, mono: float) -> bool:
        """Return whether there is something to do now. action: the running drain; None for none. mono:
        seconds of the monotonic clock.
        """
        if action is None or self.has_evicted or not self.is_fresh(mono):
            return mono >= self.due_at
        # A confirmed drain waits until its begin is recorded.
        return bool(action.begun_at) or self.outcome is None

    def start_again(self) -> None:
        """Forget the stored drain: it was withdrawn, or an operator deleted its record."""
        self.is_read = self.is_refused = self.has_evicted = False
        self.outcome, self.reason, self.problems = None, "", {}

    def record_assessment(self, assessment: Assessment, mono: float) -> None:
        """Record an assessment. mono: seconds of the monotonic clock."""
        self.assessment, self.assessed_at = assessment, mono
        self.wait_until_next(mono)

    def wait_until_next(self, mono: float) -> None:
        """Wait twice as long as before until the next assessment."""
        self.wait = min(_LAST_WAIT, 2.0 * self.wait or _FIRST_WAIT)
        self.due_at = mono + self.wait

    def refuse(self, mono: float) -> None:
        """Withdraw the stored drain, of which no pod was evicted."""
        self.is_read = self.is_refused = True
        self.outcome = None
        self.wait_until_next(mono)

    def confirm(self, action: NodeAction, assessment: Assessment, mono: float) -> None:
        """Record the assessment of a stored drain right before its first eviction: only the recorded set
        begins.
        """
        self.is_read = True
        self.record_assessment(assessment, mono)
        is_same = assessment.uids == {key.uid for key in action.pods}
        self.is_refused = bool(assessment.reason) or not is_same
        self.outcome = None if self.is_refused else ActionOutcome(ActionState.RUNNING)

    async def evict(self, step: DrainStep, cluster: DrainCluster, mono: float) -> int:
        """Evict the pods of a step. Returns how many evictions were accepted.

        The first pod leaves by itself: if that is refused, no pod was evicted, and the drain is withdrawn.
        """
        pods, accepted = list(step.evict), 0
        if not self.has_evicted and pods:
            response = await self._evict(pods.pop(0), cluster)
            accepted += response.state == EvictionState.ACCEPTED
            if response.state not in _MAY_HAVE_EVICTED:
                self.refuse(mono)
                return accepted
            self.has_evicted = True
            self.wait = 0.0
        limit = asyncio.Semaphore(_PARALLEL)

        async def evict(pod: NodePod) -> bool:
            async with limit:
                return (await self._evict(pod, cluster)).state == EvictionState.ACCEPTED

        accepted += sum(await asyncio.gather(*map(evict, pods)))
        self.reason = step.reason
        self.wait = _FIRST_READING if accepted else min(_LAST_READING, 2.0 * self.wait or _FIRST_READING)
        self.due_at = mono + self.wait
        return accepted

    async def _evict(self, pod: NodePod, cluster: DrainCluster) -> Eviction:
        response = await cluster.evict(pod, is_dry_run=False)
        self.problems.pop(pod.key.uid, None)
        if response.state not in {EvictionState.ACCEPTED, EvictionState.GONE}:
            self.problems[pod.key.uid] = response.message
        return response
