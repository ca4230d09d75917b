"""The drain runner: the leader assesses candidates, requests their drains, and evicts the pods.

The store has the truth: a drain is recorded with its pods before anything is evicted, and `begun_at` before
the first eviction. What is held here can be lost: a successor reads the pods again, and continues the drain
or withdraws it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_assessment import (
    Assessment,
    assess,
    eviction_costs,
    gone_pods,
    left_pods,
    recorded_pods,
    try_evictions,
)
from nodeguard.aggregator.actions.drain_attempt import DrainAttempt
from nodeguard.aggregator.actions.drain_events import drain_events
from nodeguard.aggregator.actions.drain_notices import DrainNotices
from nodeguard.aggregator.actions.drain_queue import DrainFleet, DrainId, DrainQueue
from nodeguard.aggregator.actions.drain_reports import drain_reports
from nodeguard.aggregator.actions.keyed_tasks import KeyedTasks
from nodeguard.aggregator.clock import current_instant
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_progress import (
    has_joined,
    next_step,
    requested_drains,
    shown_drains,
    stored_drain,
)
from nodeguard.fleet.act.drain_report import DrainReport
from nodeguard.fleet.act.progress import ActionOutcome, drain_records
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.action_store import ActionStore, ActionStoreError
from nodeguard.model.drain import DrainMode
from nodeguard.model.eviction import DrainCluster, PodReadError
from nodeguard.model.instant import Instant

logger = logging.getLogger(__name__)

# Seconds between two turns without a change.
_TICK = 1.0

# Candidates that are assessed, and nodes that are drained, at the same time.
_ASSESSED = 4
_DRAINED = 8

# Seconds for a leader that takes a drain over to evict what an earlier one has left, also if the time of the
# drain is over. Those after it have only the rest of them.
_TAKEOVER = 120.0

# Seconds after the time of a drain in which its pods may be read, until its end is unknown.
_LAST_READINGS = 300.0

# Seconds until a task that failed is started again.
_RETRY = 5.0

# Seconds after a record in which a new leader sends its Event again: the earlier one may have been killed
# before. It is then too old for the recorder of Events too.
_EVENTS = 600.0

# Seconds between two assessments of a set that may leave, if the policy only observes.
_OBSERVED_WAIT = 600.0


class DrainRunner:
    """Carries drains out while this aggregator leads.

    store: of all actions; it is only read here. cluster: returns the cluster of the present leader session;
    None while this aggregator does not lead, or has no cluster. on_changed: is called when `requested` or
    `outcomes` have changed. evicted: number of pods that were evicted since the start.
    """

    def __init__(
        self,
        fleet: DrainFleet,
        store: ActionStore,
        cluster: Callable[[], DrainCluster | None],
        *,
        on_changed: Callable[[], object] = lambda: None,
        now: Callable[[], Instant] = current_instant,
    ) -> None:
        self._fleet = fleet
        self._store = store
        self._cluster = cluster
        self._on_changed = on_changed
        self._now = now
        self._session: DrainCluster | None = None
        self._queue = DrainQueue(fleet, store, now)
        self._tasks = KeyedTasks[DrainId](self._on_ended)
        self._notices = DrainNotices(
            fleet.policy, fleet.node_restraint, fleet.is_unread, store, self._on_ended, now
        )
        self._assessing = asyncio.Semaphore(_ASSESSED)
        self._draining = asyncio.Semaphore(_DRAINED)
        self._wake = asyncio.Event()
        self._logged = ""
        self._mode = fleet.policy().mode
        # The drains as of the latest turn of this term, by key.
        self._previous: dict[str, NodeAction] = {}
        self.evicted = 0

    def wake(self) -> None:
        """Take the next turn now: something has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Take turns until the task is cancelled. A node with slow requests delays no other."""
        try:
            while True:
                self._wake.clear()
                try:
                    await self._follow_session()
                    self._start_due()
                except Exception:  # the data of one node must not stop the loop
                    logger.exception("internal error in a drain, please report it")
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TICK):
                        await self._wake.wait()
        finally:
            self._tasks.cancel()
            self._notices.cancel()

    async def turn(self) -> None:
        """Do what is due, once, and wait until it is done."""
        await self._follow_session()
        self._start_due()
        # Together, so that no error of the one is lost while the other is awaited.
        await asyncio.gather(self._notices.wait(), self._tasks.wait())

    async def _follow_session(self) -> None:
        """Begin a new term with what is stored: the watch may be late, and the predecessor may have begun or
        withdrawn a drain meanwhile. Nothing begins before it can be read.
        """
        cluster = self._cluster()
        if cluster is self._session:
            return
        self._tasks.cancel()
        self._notices.reset()
        self._session, self._queue.attempts, self._previous = None, {}, {}
        try:
            if cluster is not None:
                await self._store.refresh()
        except ActionStoreError as error:
            if self._logged != str(error):
                logger.warning("cannot read the recorded drains", extra={"error": str(error)})
            self._logged = str(error)
            return
        self._session, self._logged = cluster, ""

    def _start_due(self) -> None:
        """Start what is due: one task at a time for each candidate or drain."""
        now, cluster = self._now(), self._session
        drains = self._queue.drains()
        self._queue.ages.follow(drains, now)
        self._queue.present = ()
        if cluster is None:
            return
        present = self._fleet.candidates(now)
        self._notices.start_due(present, cluster)
        self._queue.present = self._notices.awaited(present, now)
        for event in drain_events(self._previous, drains, self._checks, now.wall - _EVENTS):
            cluster.record(event)
        self._previous = {drain.key: drain for drain in drains}
        candidates = {(candidate.uid, candidate.request): candidate for candidate in self._queue.present}
        records = drain_records(drains)
        running = {key: action for key, action in records.items() if action.state == ActionState.RUNNING}
        keys = (*candidates, *running)
        self._follow_mode()
        self._queue.attempts = {key: self._queue.attempts.get(key) or DrainAttempt() for key in keys}
        for key, attempt in self._queue.attempts.items():
            attempt.follow(running.get(key), now.mono)
            if attempt.is_unrecorded(now.mono) and key not in running and self._queue.is_enforced():
                # It holds no limit meanwhile.
                reason = "its NodeAction is not recorded: see the log of the aggregator"
                found = replace(attempt.assessment or Assessment(), reason=reason)
                attempt.record_tries(found, now.mono)
        remaining = {attempt.stored[0]: attempt.remaining for attempt in self._queue.attempts.values()}
        cluster.show(shown_drains(drains, remaining))
        admitted = {key for key, candidate in self._queue.ready(now).items() if not candidate.blocker}
        for key, attempt in self._queue.attempts.items():
            candidate, action = candidates.get(key), running.get(key)
            is_due = now.mono >= attempt.due_at
            # A set that waited for a limit is looked at as soon as the limit allows it.
            is_due |= action is None and key in admitted and attempt.is_limited
            if not is_due or self._tasks.is_running(key):
                continue
            attempt.due_at = now.mono + _RETRY
            attempt.is_limited = False
            if action is not None:
                if not attempt.is_refused:
                    self._tasks.start(key, self._carry_on(key, action, attempt, cluster), self._draining)
            elif candidate is not None and not candidate.blocker and not stored_drain(candidate, drains):
                self._tasks.start(key, self._assess(key, candidate, attempt, cluster), self._assessing)

    def _follow_mode(self) -> None:
        """Assess each set again at once if the policy has begun or ceased to observe: what it only observes
        is looked at less and less often.
        """
        if (mode := self._fleet.policy().mode) != self._mode:
            self._mode = mode
            attempts = self._queue.attempts.items()
            self._queue.attempts = {key: attempt for key, attempt in attempts if attempt.stored[0]}

    def _checks(self, drain: NodeAction) -> tuple[str, ...]:
        candidate = self._queue.candidate((drain.uid, drain.request))
        return candidate.checks if candidate is not None else ()

    def _on_ended(self) -> None:
        self._on_changed()
        self.wake()

    def requested(self) -> list[NodeAction]:
        """Return the drains and notices that are requested now, for the action loop. A drain that this leader
        has not looked at yet stays as it is.
        """
        drains, notices, now = self._queue.drains(), self._notices.requested(), self._now()
        if self._session is None:
            return [*(action for action in drains if not action.is_closed), *notices]
        # The store may have a drain by hand that is new since the latest turn.
        self._queue.present = self._notices.awaited(self._fleet.candidates(now), now)
        withdrawing = {
            action.key
            for action in drains
            if (attempt := self._queue.attempts.get((action.uid, action.request))) is not None
            and attempt.is_withdrawing(action)
        }
        return [
            *requested_drains(drains, self._queue.present, self._queue.assessed(drains), withdrawing),
            *notices,
        ]

    def outcomes(self) -> dict[str, ActionOutcome]:
        """Return the outcomes of running drains and notices, by key, and why other drains are withdrawn."""
        outcomes = {}
        for action in self._queue.drains():
            attempt, reason = self._queue.attempt(action), self._withdrawal_reason(action)
            outcome = attempt.outcome if attempt.is_about(action) else None
            if outcome is None and reason:
                outcome = ActionOutcome(ActionState.CANCELLED, 0, f"no pod was evicted: {reason}")
            if outcome is not None:
                outcomes[action.key] = outcome
        return {**outcomes, **self._notices.outcomes()}

    def _withdrawal_reason(self, action: NodeAction) -> str:
        """Return why a stored drain is not requested any more; empty if it is, or has no fault any more."""
        attempt = self._queue.attempt(action)
        if attempt.is_withdrawing(action):
            return attempt.reason
        candidate = self._queue.candidate((action.uid, action.request))
        return candidate.blocker if candidate is not None and not action.begun_at else ""

    def reports(self) -> tuple[DrainReport, ...]:
        """Return the present candidates and the running drains, for views and metrics. A finished drain is in
        the store.
        """
        now = self._now()
        candidates = {(candidate.uid, candidate.request): candidate for candidate in self._queue.present}
        if self._queue.is_enforced():
            # Nothing is drained, and no limit used, while the policy only observes.
            candidates |= self._queue.ready(now)
        drains = [action for action in self._queue.drains() if not action.is_closed]
        return tuple(drain_reports(candidates, drains, self._queue.attempts, now.wall))

    async def _assess(
        self, key: DrainId, candidate: DrainCandidate, attempt: DrainAttempt, cluster: DrainCluster
    ) -> None:
        """Assess the set of a candidate without a drain. Dry runs cost a request for each pod, so only those
        within the limits have them.
        """
        policy = self._fleet.policy()
        found = await assess(cluster, candidate, policy.unknown_holders, self._fleet.node_restraint)
        reason = found.reason or found.ending or self._queue.earlier_drain_reason(found, None)
        found = replace(found, reason=reason)
        is_observed = policy.mode == DrainMode.OBSERVE and not found.reason
        now = self._now()
        attempt.record_assessment(found, now.mono, *[_OBSERVED_WAIT] * is_observed)
        if is_observed:
            attempt.costs = await eviction_costs(cluster, found.pods)
        ready = self._queue.ready(now).get(key)
        attempt.is_limited = ready is not None and bool(ready.blocker)
        if ready is not None and not ready.blocker:
            attempt.record_tries(await try_evictions(cluster, found), self._now().mono)

    async def _carry_on(
        self, key: DrainId, action: NodeAction, attempt: DrainAttempt, cluster: DrainCluster
    ) -> None:
        """Carry a running drain on."""
        if not action.begun_at:
            await self._confirm(key, action, attempt, cluster)
            return
        try:
            # Before the first eviction, a pod that has joined the gang matters, too.
            pods = await (
                left_pods(cluster, action, attempt.remaining)
                if attempt.has_evicted
                else recorded_pods(cluster, action)
            )
        except PodReadError as error:
            self._read_failed(action, attempt, error)
            return
        if not attempt.is_confirmed:
            own = [pods.get(pod.uid) for pod in action.pods]
            attempt.has_evicted |= any(pod is None or pod.is_evicted for pod in own)
        if not attempt.has_evicted:
            if has_joined(action, pods.values()):
                attempt.assessment = None
            await self._confirm(key, action, attempt, cluster)
            if not (attempt.is_allowed(self._now().mono) and attempt.is_about(action)):
                return
        now = self._now()
        if attempt.remaining is None:
            attempt.running_since = now.mono
        finish_within = self._fleet.policy().finish_within
        running_time = self._running_time(action, attempt, now)
        step = next_step(action, pods, attempt.problems, running_time, finish_within)
        attempt.may_evict = bool(step.evict)
        if step.outcome is not None:
            attempt.outcome = step.outcome
            attempt.wait_for_pods(now.mono)
            return
        attempt.remaining = step.remaining
        is_repeated = not action.requested_by
        self.evicted += await attempt.evict(step, cluster, lambda: self._now().mono, is_repeated=is_repeated)
        self._note_takeover(action, attempt, finish_within, now)

    def _running_time(self, action: NodeAction, attempt: DrainAttempt, now: Instant) -> float:
        """Return the seconds since a drain has begun; for some time after the takeover, those since then."""
        own, ages = now.mono - attempt.running_since, self._queue.ages
        if max(own, ages.takeover_age(action, now)) < min(_TAKEOVER, self._fleet.policy().finish_within):
            return own
        return max(own, ages.age(action, now))

    def _note_takeover(self, action: NodeAction, attempt: DrainAttempt, last: float, now: Instant) -> None:
        """Have it recorded that a drain goes on after its time only for the leader that took it over. last:
        this time in seconds. Otherwise leaders that change often would put its end off for ever.
        """
        is_over = self._queue.ages.age(action, now) >= last and not action.taken_over_at
        is_going_on = attempt.is_about(action) and attempt.outcome is None and not attempt.is_refused
        if is_over and is_going_on:
            attempt.outcome = ActionOutcome(ActionState.RUNNING, is_taken_over=True)

    def _read_failed(self, action: NodeAction, attempt: DrainAttempt, error: PodReadError) -> None:
        """Handle that the pods of a drain that has begun cannot be read: it ends some time after its end."""
        now = self._now()
        attempt.reason, attempt.job_reasons = str(error), {}
        last = self._fleet.policy().finish_within + _LAST_READINGS
        if self._running_time(action, attempt, now) >= last:
            attempt.outcome = ActionOutcome(ActionState.UNKNOWN, 0, attempt.reason)
        self._note_takeover(action, attempt, last, now)
        attempt.wait_for_pods(now.mono, error.retry_after)

    async def _confirm(
        self, key: DrainId, action: NodeAction, attempt: DrainAttempt, cluster: DrainCluster
    ) -> None:
        """Let a drain evict its first pod if all of its set may leave now, else withdraw it."""
        policy, mono = self._fleet.policy(), self._now().mono
        earlier = attempt.assessment if attempt.is_allowed(mono) else None
        candidate = self._queue.candidate(key)
        if candidate is not None and not candidate.blocker and not (action.begun_at and earlier):
            found = await assess(cluster, candidate, policy.unknown_holders, self._fleet.node_restraint)
            if action.requested_by and not found.reason:
                # A request is not repeated with its pods of now: another drain may have evicted some of them.
                try:
                    attempt.gone = await gone_pods(cluster, action, found)
                except PodReadError as error:
                    found = Assessment(reason=str(error), retry_after=error.retry_after)
            attempt.record_assessment(found, self._now().mono)
            if earlier is not None and found.uids == earlier.uids:
                attempt.record_tries(found, mono)
            # Also if the pods of a large namespace were read too slowly for the earlier tries.
            if not (found.reason or attempt.is_allowed(self._now().mono)):
                attempt.record_tries(await try_evictions(cluster, found), self._now().mono)
        if not attempt.is_about(action):
            return  # what is stored has changed meanwhile
        candidate, found = self._queue.candidate(key), attempt.assessment or Assessment()
        blocker = candidate.blocker or self._queue.blocker(action) if candidate is not None else ""
        earlier_drain = self._queue.earlier_drain_reason(found, action)
        # A request by hand is not repeated, so it waits for the API server, and for another drain.
        awaited = found.reason if found.retry_after else "" if action.begun_at else earlier_drain
        if candidate is None or blocker:
            attempt.refuse(self._now().mono, blocker=blocker)
        elif action.requested_by and awaited:
            attempt.reason = awaited
        elif earlier_drain:
            attempt.refuse(self._now().mono, earlier_drain)
        else:
            attempt.confirm(action, self._now().mono)
