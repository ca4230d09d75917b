"""The notices of drains: the leader announces the eviction of pods, and lets their drain begin once the time
is over, or all pods agree.

The store has the time of each notice, and a pod a copy. A successor writes missing copies again, and removes
those of a notice that it ends, before it records the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_assessment import eviction_costs, found_set, recorded_pods
from nodeguard.aggregator.actions.keyed_tasks import KeyedTasks
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_notice import (
    WRITE_WITHIN,
    announced,
    have_agreed,
    needs_notice,
    notice_action,
    noticed_pods,
    pod_notice,
    unnoticed_pods,
)
from nodeguard.fleet.act.drain_progress import DrainAges
from nodeguard.fleet.act.drain_set import DrainSet
from nodeguard.fleet.act.progress import ActionOutcome
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.action_store import ActionStore
from nodeguard.model.drain import DrainMode, DrainPolicy
from nodeguard.model.eviction import DrainCluster, EvictionState, PodNotice, PodReadError
from nodeguard.model.instant import Instant
from nodeguard.model.pod import NodePod

# Notices that are written at the same time, and pods of each.
_WRITTEN = 4
_PARALLEL = 8

# Seconds between two readings of the pods: doubled from the first to the last one.
_FIRST_WAIT = 2.0
_LAST_WAIT = 60.0

# Seconds between two readings of the Jobs that would fail with the evictions.
_COSTS_WAIT = 600.0

# Seconds in which the notices on pods may be removed, until the notice ends without that.
_REMOVE_WITHIN = 600.0

# The responses after which a pod has its notice, or is gone. After a conflict with other writes it may not.
_SETTLED = frozenset({EvictionState.ACCEPTED, EvictionState.GONE})

# The end of a notice without a pod to evict: those that still run hold other hardware now. And of that of one
# pod, while others still use it.
_LEFT = "no pod uses the faulty hardware any more"
_OTHER_HARDWARE = "it does not use the faulty hardware any more"

_Key = tuple[str, str]


class _Attempt(Struct):
    """A candidate that needs a notice, or has one, as this leader has looked at it."""

    stored: tuple[str, int] = ("", 0)
    """Key and begin of the running notice that it is about."""
    due_at: float = -inf
    """When it is looked at again, in seconds of the monotonic clock."""
    wait: float = 0.0
    """Seconds of the latest wait."""
    offer: DrainSet | None = None
    """The set for which a notice is to be recorded."""
    reason: str = ""
    """Why its pods get no notice; empty for nothing."""
    has_agreed: bool = False
    """Whether all pods agreed to leave now, at the latest reading."""
    costs: tuple[str, ...] = ()
    """The Jobs that would fail with the evictions, at the latest reading."""
    costs_due_at: float = -inf
    """When they are read again, in seconds of the monotonic clock."""
    noticed: frozenset[str] | None = None
    """Uids of the pods that may show the notice, as of the latest reading; None before the first one."""
    removal_since: float = inf
    """When the notices on its pods were to be removed first, in seconds of the monotonic clock."""
    outcome: ActionOutcome | None = None

    def follow(self, notice: NodeAction | None) -> None:
        """Follow the running notice of the store; None for none."""
        stored = ("", 0) if notice is None else (notice.key, notice.begun_at)
        if stored[0] != self.stored[0]:
            self.due_at, self.wait, self.removal_since = -inf, 0.0, inf
            self.reason, self.has_agreed, self.noticed = "", False, None
            self.costs, self.costs_due_at = (), -inf
        if stored != self.stored:
            self.stored, self.offer, self.outcome = stored, None, None


class DrainNotices:
    """Gives notices while this aggregator leads. policy: returns the policy of drains. node_restraint: as of
    `assess`. is_unread: as of `DrainFleet`. store: is only read here. on_ended: is called after each task.
    """

    def __init__(
        self,
        policy: Callable[[], DrainPolicy],
        node_restraint: Callable[[str], str],
        is_unread: Callable[[NodeAction], bool],
        store: ActionStore,
        on_ended: Callable[[], object],
        now: Callable[[], Instant],
    ) -> None:
        self._policy = policy
        self._node_restraint = node_restraint
        self._is_unread = is_unread
        self._store = store
        self._now = now
        self._ages = DrainAges()
        self._attempts: dict[_Key, _Attempt] = {}
        self._present: dict[_Key, DrainCandidate] = {}
        self._tasks = KeyedTasks[_Key](on_ended)
        self._limit = asyncio.Semaphore(_WRITTEN)

    def reset(self) -> None:
        """Stop, as the term of the leader ends."""
        self._tasks.cancel()
        self._attempts = {}

    async def wait(self) -> None:
        """Wait until all that was started is done. Raises the first error."""
        await self._tasks.wait()

    def start_due(self, candidates: Iterable[DrainCandidate], cluster: DrainCluster) -> None:
        """Start what is due. candidates: the present ones, by the policy and by operators."""
        now, running, drains = self._now(), self._running(), self._drains()
        self._ages.follow(running.values(), now)
        self._present = {(item.uid, item.request): item for item in candidates}
        wanting = [
            key
            for key, candidate in self._present.items()
            if self._is_enforced() and not candidate.blocker and needs_notice(candidate, drains.get(key))
        ]
        self._attempts = {key: self._attempts.get(key) or _Attempt() for key in (*running, *wanting)}
        for key, attempt in self._attempts.items():
            notice, candidate, drain = running.get(key), self._present.get(key), drains.get(key)
            attempt.follow(notice)
            is_held = notice is not None and candidate is not None and bool(candidate.blocker)
            is_waiting = attempt.outcome is not None or attempt.offer is not None
            if is_waiting or now.mono < attempt.due_at or self._tasks.is_running(key):
                continue
            attempt.wait = min(_LAST_WAIT, 2.0 * attempt.wait or _FIRST_WAIT)
            attempt.due_at = now.mono + attempt.wait
            end = "" if notice is None else self._end(notice, candidate, drain)
            if notice is not None and end:
                self._tasks.start(key, self._withdraw(notice, attempt, cluster, end), self._limit)
            elif candidate is not None and not is_held and needs_notice(candidate, drain):
                self._tasks.start(key, self._carry_on(candidate, notice, attempt, cluster), self._limit)

    def cancel(self) -> None:
        """Cancel all tasks."""
        self._tasks.cancel()

    def awaited(self, candidates: Iterable[DrainCandidate], now: Instant) -> list[DrainCandidate]:
        """Return the candidates as their notices let them begin. One with pods that get no notice waits with
        the reason; one without pods to evict is left out. Without `enforce` they stay as they are.
        """
        if not self._is_enforced():
            return list(candidates)
        return list(self._awaited(candidates, now))

    def _awaited(self, candidates: Iterable[DrainCandidate], now: Instant) -> Iterator[DrainCandidate]:
        running, drains = self._running(), self._drains()
        for candidate in candidates:
            key = (candidate.uid, candidate.request)
            notice, attempt = running.get(key), self._attempts.get(key) or _Attempt()
            is_over = notice is not None and self._is_over(notice, now)
            if candidate.blocker or not needs_notice(candidate, drains.get(key)):
                # A drain that has begun early without an evicted pod still needs the agreement of all.
                yield replace(
                    candidate, is_early=candidate.after > 0.0 and notice is not None and not is_over
                )
            elif notice is None:
                if attempt.reason:
                    yield replace(candidate, blocker=attempt.reason)
            elif is_over:
                yield replace(candidate, after=0.0)
            elif notice.begun_at and attempt.has_agreed:
                yield replace(candidate, after=0.0, is_early=True)
            else:
                yield announced(candidate, notice, attempt.costs)

    def _is_over(self, notice: NodeAction, now: Instant) -> bool:
        """Return whether the time of a notice that all its pods have is over."""
        return bool(notice.begun_at) and self._ages.age(notice, now) >= notice.deadline - notice.begun_at

    def requested(self) -> list[NodeAction]:
        """Return the notices that run or begin, for the action loop: they end only by their outcomes."""
        offers = [
            notice_action(self._present[key], attempt.offer, self._now().wall)
            for key, attempt in self._attempts.items()
            if attempt.offer is not None and key in self._present and self._is_enforced()
        ]
        return [*self._running(reserved=True).values(), *offers]

    def outcomes(self) -> dict[str, ActionOutcome]:
        """Return the outcomes of running notices, by key of the action."""
        attempts = self._attempts.values()
        return {item.stored[0]: item.outcome for item in attempts if item.outcome is not None}

    async def _carry_on(
        self,
        candidate: DrainCandidate,
        notice: NodeAction | None,
        attempt: _Attempt,
        cluster: DrainCluster,
    ) -> None:
        """Find out whether the pods can get a notice, or give it to those without it."""
        try:
            holders = self._policy().unknown_holders
            found = await found_set(cluster, candidate, holders, self._node_restraint)
            problem = found.reason
        except PodReadError as error:
            self._postpone(attempt, error.retry_after)
            found, problem = DrainSet(), str(error)
        staying = [pod for pod in found.pods if not pod.is_terminating]
        if notice is None:
            offer = notice_action(candidate, found, self._now().wall)
            asked = pod_notice(candidate, offer)
            problem = problem or await self._write(cluster, attempt, staying, asked, is_dry_run=True)
            attempt.reason, attempt.offer = problem, None if problem or not staying else found
            return
        if not (problem or staying):
            await self._withdraw(notice, attempt, cluster, _LEFT)
            return
        attempt.removal_since = inf
        pods = unnoticed_pods(notice, staying, self._running().values())
        problem = problem or self._drain_reason(pods)
        problem = problem or await self._write(cluster, attempt, pods, pod_notice(candidate, notice))
        problem = problem or await self._remove_from_others(notice, found, attempt, cluster)
        attempt.reason, attempt.has_agreed = problem, not problem and have_agreed(staying)
        if self._now().mono >= attempt.costs_due_at:
            attempt.costs = await eviction_costs(cluster, staying)
            attempt.costs_due_at = self._now().mono + _COSTS_WAIT
        if not notice.begun_at:
            if self._ages.age(notice, self._now()) >= WRITE_WITHIN:
                late = problem or "too little time was left"
                await self._withdraw(notice, attempt, cluster, f"not all pods got the notice in time: {late}")
            elif not problem:
                attempt.outcome = ActionOutcome(ActionState.RUNNING)

    def _drain_reason(self, pods: Collection[NodePod]) -> str:
        """Return why pods get no notice now; empty for nothing.

        While a drain evicts them, a write would refuse the eviction of a pod as it was before, which has used
        a part of its disruption budget by then.
        """
        uids = {pod.key.uid for pod in pods}
        for drain in self._drains().values():
            is_running = bool(drain.begun_at) and not drain.state.is_finished
            if is_running and any(key.uid in uids for key in drain.pods):
                return f"the drain of {drain.node} evicts them now"
        return ""

    async def _remove_from_others(
        self, notice: NodeAction, found: DrainSet, attempt: _Attempt, cluster: DrainCluster
    ) -> str:
        """Remove a notice from pods that have left its set and still run. Returns why one keeps it for now;
        empty for none.
        """
        present = frozenset(pod.key.uid for pod in found.pods)
        previous = attempt.noticed
        if previous is None:
            previous = frozenset(key.uid for key in notice.pods)
        attempt.noticed = previous | present
        if previous <= present:
            return ""
        try:
            pods = await recorded_pods(cluster, notice)
        except PodReadError as error:
            self._postpone(attempt, error.retry_after)
            return str(error)
        others = [pod for uid, pod in pods.items() if uid in previous - present]
        lasting = [item for key, item in self._running().items() if not self._is_ending(key)]
        noticed = noticed_pods(notice, others, lasting)
        problem = await self._write(cluster, attempt, noticed, _removal(_OTHER_HARDWARE))
        if not problem:
            attempt.noticed = present
        return problem

    async def _withdraw(self, notice: NodeAction, attempt: _Attempt, cluster: DrainCluster, end: str) -> None:
        """Remove a notice from its pods, then end it. end: why."""
        now = self._now()
        attempt.removal_since = min(attempt.removal_since, now.mono)
        attempt.has_agreed, gone, problem = False, 0, ""
        try:
            pods = await recorded_pods(cluster, notice)
            gone = sum(key.uid not in pods for key in notice.pods)
            lasting = [item for key, item in self._running().items() if not self._is_ending(key)]
            noticed = noticed_pods(notice, pods.values(), lasting)
            problem = await self._write(cluster, attempt, noticed, _removal(end))
        except PodReadError as error:
            self._postpone(attempt, error.retry_after)
            problem = str(error)
        if problem and now.mono - attempt.removal_since < _REMOVE_WITHIN:
            attempt.reason = problem
            return
        message = f"{end}; pods may still show the notice: {problem}" if problem else end
        state = ActionState.SUCCEEDED if end == _LEFT else ActionState.SUPERSEDED
        attempt.outcome = ActionOutcome(state, gone, message)

    async def _write(
        self,
        cluster: DrainCluster,
        attempt: _Attempt,
        pods: Collection[NodePod],
        notice: PodNotice,
        *,
        is_dry_run: bool = False,
    ) -> str:
        """Write a notice on some pods. Returns why one of them does not get it; empty if all do. Dry runs end
        with the first such reason: without the right, each pod has it.
        """
        limit, problems = asyncio.Semaphore(_PARALLEL), list[str]()

        async def write(pod: NodePod) -> None:
            async with limit:
                if is_dry_run and problems:
                    return
                response = await cluster.write_notice(pod, notice, is_dry_run=is_dry_run)
                if response.state not in _SETTLED:
                    problems.append(f"pod {pod.key}: {response.message}")
                    self._postpone(attempt, response.retry_after)

        await asyncio.gather(*map(write, pods))
        return next(iter(problems), "")

    def _postpone(self, attempt: _Attempt, retry_after: float) -> None:
        """Leave the API server the seconds that it asks for before the next try."""
        attempt.due_at = max(attempt.due_at, self._now().mono + retry_after)

    def _end(self, notice: NodeAction, candidate: DrainCandidate | None, drain: NodeAction | None) -> str:
        """Return why a running notice ends; empty if it goes on. A drain that has begun keeps it, and so does
        a fault that is not read now: with another notice its pods would get another time.
        """
        if drain is not None and drain.state.is_finished:
            return "its drain has ended"
        if drain is not None and drain.begun_at:
            return ""
        if not self._is_enforced():
            return "the policy does not enforce drains"
        if candidate is not None or self._is_unread(notice):
            return ""
        return "its fault, its quarantine or its rule has ended"

    def _is_ending(self, key: _Key) -> bool:
        """Return whether a notice is being removed: another one that ends leaves no pod to it."""
        attempt = self._attempts.get(key)
        return attempt is not None and attempt.removal_since < inf

    def _is_enforced(self) -> bool:
        return self._policy().mode == DrainMode.ENFORCE

    def _running(self, *, reserved: bool = False) -> dict[_Key, NodeAction]:
        """Return the notices that run. reserved: also those that wait to run."""
        states = {ActionState.RUNNING} | ({ActionState.RESERVED} if reserved else set())
        return {
            (action.uid, action.request): action
            for action in self._store.actions()
            if action.kind == ActionKind.DRAIN_NOTICE and action.state in states
        }

    def _drains(self) -> dict[_Key, NodeAction]:
        """Return the latest drain of each candidate, without closed ones."""
        drains = [
            action
            for action in self._store.actions()
            if action.kind == ActionKind.DRAIN and not action.is_closed
        ]
        return {(drain.uid, drain.request): drain for drain in sorted(drains, key=lambda item: item.attempt)}


def _removal(reason: str) -> PodNotice:
    """Return what pods get in place of their notice."""
    return PodNotice("", f"nodeguard does not evict this pod: {reason}")
