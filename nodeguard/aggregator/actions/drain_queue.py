"""The drains of a leader: its candidates, what it has found out about them, and which may begin now."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from msgspec import Struct

from nodeguard.aggregator.actions.drain_assessment import Assessment
from nodeguard.aggregator.actions.drain_attempt import DrainAttempt
from nodeguard.config.amounts import format_duration
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_limits import DrainUse, drain_use, earlier_drain_reason
from nodeguard.fleet.act.drain_progress import DrainAges, drain_action, stored_drain
from nodeguard.model.action import ActionKind, NodeAction
from nodeguard.model.action_store import ActionStore
from nodeguard.model.drain import DrainMode, DrainPolicy
from nodeguard.model.instant import Instant

# Seconds within which the drain that an operator requested must evict a pod: a later one would surprise.
_BEGIN_WITHIN = 600.0

# The uid of a Node and the request of a drain.
DrainId = tuple[str, str]

# Returns candidates, those beyond a limit with it as their blocker; with the ages of drains in seconds, and
# what a candidate would use.
_Limits = Callable[
    [Collection[DrainCandidate], Callable[[NodeAction], float], Callable[[DrainCandidate], DrainUse]],
    Collection[DrainCandidate],
]


class DrainFleet(Struct, frozen=True):
    """What the runner reads of the fleet, each as of now."""

    policy: Callable[[], DrainPolicy]
    """Returns the policy of drains."""
    candidates: Callable[[Instant], Collection[DrainCandidate]]
    """Returns the present candidates."""
    limits: _Limits = lambda ready, *_: ready
    """Returns the candidates with pods that may leave, those beyond a limit with it as their blocker."""
    node_restraint: Callable[[str], str] = lambda _: ""
    """Returns why the pods of a gang on a node stay, by the name of the node; empty for no reason."""
    is_unread: Callable[[NodeAction], bool] = lambda _: False
    """Returns whether the fault of an action without a candidate may go on, as it is not read now."""


class DrainQueue:
    """The drains of the present leader. The runner sets present and attempts, and follows the ages.

    present: the candidates as of the latest look. attempts: what was found out about each of them, and about
    each running drain. ages: of the stored drains. store: is only read here.
    """

    def __init__(self, fleet: DrainFleet, store: ActionStore, now: Callable[[], Instant]) -> None:
        self.present: Collection[DrainCandidate] = ()
        self.attempts: dict[DrainId, DrainAttempt] = {}
        self.ages = DrainAges()
        self._fleet = fleet
        self._store = store
        self._now = now

    def drains(self) -> list[NodeAction]:
        """Return the stored drains."""
        return [action for action in self._store.actions() if action.kind == ActionKind.DRAIN]

    def assessed(self, drains: Collection[NodeAction]) -> list[NodeAction]:
        """Return the drains that nothing forbids and that are not stored yet."""
        if not self.is_enforced():
            return []
        now, assessed = self._now(), list[NodeAction]()
        for key, candidate in self.ready(now).items():
            attempt = self.attempts[key]
            found = attempt.assessment
            if candidate.blocker or found is None or not attempt.is_allowed(now.mono):
                continue
            is_new = stored_drain(candidate, drains) is None
            if is_new and not self.earlier_drain_reason(found, None, assessed):
                assessed.append(drain_action(candidate, found.pods, now.wall, found.groups))
        return assessed

    def earlier_drain_reason(
        self, found: Assessment, own: NodeAction | None, requested: Collection[NodeAction] = ()
    ) -> str:
        """Return why a set waits for another drain; see earlier_drain_reason. requested: new drains."""
        others, confirmed = list(requested), set[str]()
        for drain in self.drains():
            attempt = self.attempt(drain)
            is_own = own is not None and drain.key == own.key
            is_followed = attempt.stored == (drain.key, drain.begun_at)
            is_over = is_followed and (attempt.is_refused or not attempt.may_evict)
            if not (is_own or is_over or drain.state.is_finished):
                others.append(drain)
            if is_followed and attempt.outcome is not None:
                confirmed.add(drain.key)
        return earlier_drain_reason(found.uids, found.namespaces, own, others, confirmed)

    def ready(self, now: Instant) -> dict[DrainId, DrainCandidate]:
        """Return the candidates with pods that may leave, by the limits. Any other uses no limit: a
        quarantined node without pods would keep all others from being drained.
        """
        ready = [
            candidate
            for candidate in self.present
            if not candidate.blocker
            and (attempt := self.attempts.get((candidate.uid, candidate.request))) is not None
            and attempt.may_leave
        ]
        limited = self._fleet.limits(ready, partial(self.ages.age, now=now), self._use)
        return {(candidate.uid, candidate.request): candidate for candidate in limited}

    def _use(self, candidate: DrainCandidate) -> DrainUse:
        """Return what a candidate would use of the limits, by its latest assessment."""
        found = self.attempts[candidate.uid, candidate.request].assessment or Assessment()
        return drain_use(candidate.uid, [pod.key for pod in found.pods], found.groups)

    def blocker(self, action: NodeAction) -> str:
        """Return why a stored drain may not evict its first pod whatever its pods do; empty for nothing."""
        if not action.requested_by:
            return "" if self.is_enforced() else "the policy does not enforce drains now"
        is_late = self.ages.age(action, self._now()) >= _BEGIN_WITHIN
        if not is_late:
            return ""
        awaited = self.attempt(action).reason
        late = f"the request is older than {format_duration(_BEGIN_WITHIN)}: repeat it"
        return f"{late}; it waited: {awaited}" if awaited else late

    def is_enforced(self) -> bool:
        """Return whether the policy begins drains."""
        return self._fleet.policy().mode == DrainMode.ENFORCE

    def attempt(self, action: NodeAction) -> DrainAttempt:
        """Return what was found out about a stored drain; an empty attempt before the first look."""
        return self.attempts.get((action.uid, action.request)) or DrainAttempt()

    def candidate(self, key: DrainId) -> DrainCandidate | None:
        """Return a candidate as it is now; None if it is gone."""
        return next((item for item in self.present if (item.uid, item.request) == key), None)
