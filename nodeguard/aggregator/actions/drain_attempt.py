"""What the leader knows of one drain besides the store: its latest assessment and evictions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf

from msgspec import Struct

from nodeguard.aggregator.actions.drain_assessment import Assessment
from nodeguard.fleet.act.drain_progress import DrainStep
from nodeguard.fleet.act.progress import ActionOutcome
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.eviction import DrainCluster, Eviction, EvictionState
from nodeguard.model.pod import NodePod

# Seconds until a set is assessed again: doubled from the first to the last one.
_FIRST_WAIT = 2.0
_LAST_WAIT = 60.0

# Seconds of the longest wait after a stored drain that was refused: each leaves its record for a day.
_LAST_REFUSED_WAIT = 600.0

# Seconds between two readings of the pods of a drain that has begun, the same way.
_FIRST_READING = 1.0
_LAST_READING = 10.0

# Seconds until the next try if the first pod has changed since it was read: its kubelet reports its status.
_CHANGED_WAIT = 0.2

# Seconds for which an assessment allows the first eviction.
_FRESH = 5.0

# Evictions of one drain at the same time.
_PARALLEL = 8

# The states of an eviction after which the pod ends, or may end.
_MAY_HAVE_EVICTED = frozenset({EvictionState.ACCEPTED, EvictionState.UNKNOWN})

# The states that say nothing about the set: the pod is judged again as it is now.
_OUTDATED = frozenset({EvictionState.CHANGED, EvictionState.GONE})


class DrainAttempt(Struct):
    """One candidate or stored drain, as this leader has looked at it. It is lost with the lease."""

    assessment: Assessment | None = None
    assessed_at: float = -inf
    """Seconds of the monotonic clock."""
    is_tried: bool = False
    """Whether the API server accepted dry runs of all evictions of the latest assessment."""
    is_limited: bool = False
    """Whether only a limit forbade the dry runs."""
    costs: tuple[str, ...] = ()
    """The Jobs that would fail with the evictions of the latest assessment; only read if the policy only
    observes."""
    due_at: float = -inf
    """When it is looked at again."""
    wait: float = 0.0
    """Seconds of the latest wait."""
    stored: tuple[str, int] = ("", 0)
    """Key and begin of the running drain that it is about."""
    is_confirmed: bool = False
    """Whether this leader assessed the set before the begin was recorded: a pod that is gone since then, and
    that it did not evict, ended by itself."""
    is_refused: bool = False
    """Whether the stored drain may not begin any more: no pod of it was evicted."""
    has_evicted: bool = False
    """Whether a pod of the set was evicted, or may have been."""
    may_evict: bool = True
    """Whether pods of the stored drain may still be evicted: not all were seen terminating or gone."""
    gone: frozenset[str] = frozenset()
    """Uids of the recorded pods that need no eviction any more: they end, or are gone."""
    problems: dict[str, str] = {}
    """Why the latest eviction of a pod failed, by its uid."""
    outcome: ActionOutcome | None = None
    reason: str = ""
    """What the drain waits for, or why it is refused."""
    job_reasons: Mapping[str, str] = {}
    """As of the latest step, see DrainStep; empty while another reason is the latest."""
    remaining: tuple[str, ...] | None = None
    """Uids of the pods of the stored drain that were not gone at the latest reading; None before the first
    one."""
    running_since: float = inf
    """Since when this leader carries the stored drain on, in seconds of the monotonic clock: the first
    reading of its pods, and before that the takeover. An earlier leader may have left pods that it did not
    evict."""

    @property
    def may_leave(self) -> bool:
        """Return whether there are pods to evict, and all of them may leave by the latest assessment."""
        found = self.assessment
        return found is not None and bool(found.pods) and not found.reason

    def is_allowed(self, mono: float) -> bool:
        """Return whether the latest assessment allows the first eviction now. mono: seconds of the monotonic
        clock.
        """
        is_complete = self.assessment is not None and self.is_tried and not self.assessment.reason
        return is_complete and mono - self.assessed_at < _FRESH

    def follow(self, action: NodeAction | None, mono: float) -> None:
        """Follow the running drain of the store; None for none. One that is new, or has begun, is due now.
        mono: seconds of the monotonic clock.
        """
        stored = ("", 0) if action is None else (action.key, action.begun_at)
        if stored == self.stored:
            return
        # Only this leader's own confirmation says that nothing was evicted before the begin.
        is_own_begin = self.outcome is not None and (stored[0], 0) == self.stored
        self.is_confirmed = is_own_begin and not self._has_evicted_pod()
        self.stored = stored
        self.is_refused = self.has_evicted = False
        self.may_evict = True
        self.outcome, self.reason, self.job_reasons, self.problems = None, "", {}, {}
        self.remaining, self.running_since = None, mono
        if action is not None:
            self.due_at = -inf

    def is_about(self, action: NodeAction) -> bool:
        """Return whether the stored drain is the one that it follows."""
        return self.stored == (action.key, action.begun_at)

    def is_withdrawing(self, action: NodeAction) -> bool:
        """Return whether a stored drain is to be withdrawn, as no pod of it was evicted."""
        return self.is_refused and self.is_about(action)

    def record_assessment(self, assessment: Assessment, mono: float, last_wait: float = _LAST_WAIT) -> None:
        """Record an assessment, and wait twice as long as before until the next one. last_wait: seconds of
        the longest wait.
        """
        self.assessment, self.assessed_at = assessment, mono
        self.is_tried = self.is_limited = False
        self.costs = ()
        self.wait = min(last_wait, 2.0 * self.wait or _FIRST_WAIT)
        self.due_at = mono + max(self.wait, assessment.retry_after)

    def record_tries(self, tried: Assessment, mono: float) -> None:
        """Record an assessment with the dry runs of its evictions."""
        self.assessment, self.is_tried, self.assessed_at = tried, not tried.reason, mono
        self.due_at = max(self.due_at, mono + tried.retry_after)

    def is_unrecorded(self, mono: float) -> bool:
        """Return whether a set that may leave got no record in time."""
        return self.may_leave and self.is_tried and not self.is_allowed(mono)

    def refuse(self, mono: float, reason: str = "", *, blocker: str = "", retry_after: float = 0.0) -> None:
        """Withdraw the stored drain, of which no pod was evicted. reason: why its set may not leave now, or
        empty if something else forbids the drain. blocker: what that is; empty if it has no fault any more.
        The set is assessed again after the usual wait. retry_after: as of an Eviction.
        """
        self.record_assessment(Assessment(reason=reason, retry_after=retry_after), mono, _LAST_REFUSED_WAIT)
        self.is_refused, self.outcome, self.reason = True, None, reason or blocker

    def confirm(self, action: NodeAction, mono: float) -> None:
        """Let a stored drain begin if its set is allowed now and is the recorded one, else withdraw it."""
        found, recorded = self.assessment or Assessment(), {key.uid for key in action.pods}
        if found.uids | (recorded & self.gone) != recorded:
            self.refuse(mono, found.reason or "its pods have changed", retry_after=found.retry_after)
        elif not self.is_allowed(mono):
            reason = found.reason or "its pods could not be assessed in time"
            self.refuse(mono, reason, retry_after=found.retry_after)
        elif action.begun_at:
            self.is_confirmed = not self._has_evicted_pod()
        else:
            self.outcome = ActionOutcome(ActionState.RUNNING)
            self.due_at = mono + _FRESH

    async def evict(
        self,
        step: DrainStep,
        cluster: DrainCluster,
        monotonic: Callable[[], float],
        *,
        is_repeated: bool = True,
    ) -> int:
        """Evict the pods of a step. Returns how many evictions were accepted. monotonic: returns seconds of
        the monotonic clock: the API server may answer late, and its waits begin with the answer.

        The first pod leaves by itself: if that is refused, no pod was evicted, and the drain is withdrawn.
        is_repeated: whether a later drain has its set: if not, this one waits for an API server that does not
        answer.
        """
        pods, accepted, ends_at = list(step.evict), 0, monotonic() + step.seconds_left
        if not self.has_evicted and pods:
            response = await self._evict(pods.pop(0), cluster)
            mono = monotonic()
            accepted += response.state == EvictionState.ACCEPTED
            reason = f"pod {step.evict[0].key}: {response.message}"
            if response.state in _OUTDATED:
                self.due_at = mono + _CHANGED_WAIT
                return 0
            if response.state not in _MAY_HAVE_EVICTED:
                if response.retry_after and not is_repeated:
                    self.reason, self.due_at = reason, mono + response.retry_after
                else:
                    self.refuse(mono, reason, retry_after=response.retry_after)
                return 0
            self.has_evicted = True
            self.wait = 0.0
        limit = asyncio.Semaphore(_PARALLEL)

        async def evict(pod: NodePod) -> Eviction:
            async with limit:
                return await self._evict(pod, cluster)

        responses = await asyncio.gather(*map(evict, pods))
        accepted += sum(response.state == EvictionState.ACCEPTED for response in responses)
        self.reason, self.job_reasons = step.reason, step.job_reasons
        retry_after = max((response.retry_after for response in responses), default=0.0)
        mono = monotonic()
        self.wait_for_pods(mono, min(retry_after, ends_at - mono), is_first=bool(accepted))
        return accepted

    def wait_for_pods(self, mono: float, retry_after: float = 0.0, *, is_first: bool = False) -> None:
        """Wait until the pods are read again: twice as long as before, or shortly if a pod was evicted; at
        least for retry_after.
        """
        self.wait = _FIRST_READING if is_first else min(_LAST_READING, 2.0 * self.wait or _FIRST_READING)
        self.due_at = mono + max(self.wait, retry_after)

    def _has_evicted_pod(self) -> bool:
        pods = self.assessment.pods if self.assessment is not None else ()
        return any(pod.is_evicted for pod in pods)

    async def _evict(self, pod: NodePod, cluster: DrainCluster) -> Eviction:
        response = await cluster.evict(pod, is_dry_run=False)
        self.problems.pop(pod.key.uid, None)
        if response.state not in {EvictionState.ACCEPTED, EvictionState.GONE}:
            self.problems[pod.key.uid] = response.message
        return response
