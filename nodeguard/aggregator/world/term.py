"""One term of leading a cluster: what writes while the lease is held, and is gone with it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

from nodeguard.fleet.plan import Event, Plan
from nodeguard.kube import incident_object, rule_object
from nodeguard.kube.bucket import Bucket
from nodeguard.kube.client import Api
from nodeguard.kube.device_rules import DeviceRules
from nodeguard.kube.event_filter import Said
from nodeguard.kube.events import Events
from nodeguard.kube.executor import Executor, Outcome
from nodeguard.kube.incident_object import KIND, VERSION
from nodeguard.kube.incidents import Incidents
from nodeguard.kube.lane import Lane
from nodeguard.kube.lease import Lease
from nodeguard.kube.permit import Permit
from nodeguard.kube.trouble import Tell
from nodeguard.model.incident import Incident
from nodeguard.model.mark import DeviceRule
from nodeguard.model.node import Node

# Writes a second, and how many may come at once: of marks, and of all that follows them.
_MARKS = (50.0, 50)
_LATER = (20.0, 20)

# Seconds between two comparisons of all incidents.
_INCIDENTS = 0.25

# Events of incidents that are not in the cluster yet: the latest few.
_UNSAID = 100


class Term:
    """What writes while a lease is held under one epoch.

    pod: who says Events. node: the Node of a name as the watch has it. outcome: is told what marks become.
    tell: takes sentences, why nothing may be written any more among them.
    """

    def __init__(
        self,
        api: Api,
        lease: Lease,
        pod: str,
        node: Callable[[str], Node | None],
        outcome: Callable[[Outcome], None],
        tell: Tell,
    ) -> None:
        self.epoch = lease.epoch
        permit = Permit(
            api,
            lease.epoch,
            may_write=lambda: lease.held(monotonic()),
            left=lambda: lease.left(monotonic()),
            fenced=tell,
        )
        marks = Lane(permit, Bucket(*_MARKS), tell)
        later = Lane(permit, Bucket(*_LATER), tell, after=marks)
        self.executor = Executor(permit, marks, later, observed=node, outcome=outcome)
        self.rules = DeviceRules(permit, marks, lambda rule, why: tell(f"DeviceTaintRule {rule.name}: {why}"))
        self.incidents = Incidents(permit, later, lambda _: None)
        self._events = Events(permit, later, pod)
        # Of rules, by name: those that are to be, and names of those that a plan has said are to go.
        self._wanted: dict[str, DeviceRule] = {}
        self._away: set[str] = set()
        self._told: tuple[Callable[[], Iterable[Incident]], float] | None = None
        self._unsaid: deque[Event] = deque(maxlen=_UNSAID)
        self._lanes = [asyncio.create_task(lane.run()) for lane in (marks, later)]
        self._running = [*self._lanes, asyncio.create_task(self._tell_incidents())]

    def know(
        self,
        rules: Iterable[rule_object.Seen],
        incidents: Iterable[incident_object.Seen],
    ) -> None:
        """What the cluster has already; to be called once, at the beginning."""
        for rule in rules:
            self.rule(rule)
        for incident in incidents:
            self.incidents.changed(incident)
        self.rules.want(self._wanted.values())
        self.rules.synced()
        self.incidents.synced()

    def rule(self, seen: rule_object.Seen) -> None:
        """A rule is new or has changed. One that no plan has spoken of, as of a leader before, stands."""
        name = seen.rule.name
        if name not in self._wanted and name not in self._away:
            self._wanted[name] = seen.rule
            self.rules.keep(seen.rule)
        self.rules.changed(seen)

    def rule_gone(self, seen: rule_object.Seen) -> None:
        """A rule is no more."""
        self._away.discard(seen.rule.name)
        self.rules.gone(seen.uid)

    def carry_out(self, plan: Plan, incidents: Callable[[], Iterable[Incident]], wall: float) -> None:
        """Have a plan written. incidents: gives all there are. wall: seconds since the epoch."""
        for one in plan.nodes:
            self.executor.want(one)
        if plan.rules or plan.rules_gone:
            self._wanted.update({rule.name: rule for rule in plan.rules})
            self._away -= {rule.name for rule in plan.rules}
            self._away.update(plan.rules_gone)
            for name in plan.rules_gone:
                self._wanted.pop(name, None)
            self.rules.want(self._wanted.values())
        if plan.incidents:
            self._told = incidents, wall
        for event in plan.events:
            if event.node:
                self.say(Said(event.node, event.uid, _kind(event), event.reason, event.message))
            else:
                self._unsaid.append(event)
        self._say_of_incidents()

    def say(self, said: Said) -> None:
        """Have an Event sent."""
        self._events.say(said)

    def forget(self, uids: Iterable[str]) -> None:
        """Desire nothing any more of Nodes, and of their devices, of which a write has not begun."""
        these = frozenset(uids)
        for uid in these:
            self.executor.forget(uid)
        standing = {rule.name: rule for rule in self.rules.standing()}
        named = [name for name, rule in self._wanted.items() if rule.uid in these]
        for name in named:
            if name in standing:
                self._wanted[name] = standing[name]
            else:
                del self._wanted[name]
        if named:
            self.rules.want(self._wanted.values())

    def is_under_way(self, uid: str) -> bool:
        """Whether anything of a Node or its devices is being written."""
        return self.executor.is_under_way(uid) or any(
            rule.uid == uid and self.rules.is_under_way(name) for name, rule in self._wanted.items()
        )

    @property
    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        """What runs for as long as the term does."""
        return tuple(self._running)

    async def end(self) -> None:
        """Write nothing any more."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _tell_incidents(self) -> None:
        while True:
            await asyncio.sleep(_INCIDENTS)
            if self._told is not None:
                (incidents, wall), self._told = self._told, None
                self.incidents.want(incidents(), wall)
            self._say_of_incidents()

    def _say_of_incidents(self) -> None:
        """What is of no single Node is told beside its incident: `kubectl describe` asks by the uid, which
        one that is new has only once it is made.
        """
        for event in [self._unsaid.popleft() for _ in range(len(self._unsaid))]:
            uid = self.incidents.uid(event.incident)
            if uid:
                said = Said(event.incident, uid, _kind(event), event.reason, event.message, KIND, VERSION)
                self.say(said)
            else:
                self._unsaid.append(event)


def _kind(event: Event) -> str:
    return "Warning" if event.warning else "Normal"


def monotonic() -> float:
    """Seconds of the clock that leases are counted by: one that goes on while a machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
