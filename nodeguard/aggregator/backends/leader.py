"""One term of leading a cluster: what writes while the lease is held, and is gone with it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

from nodeguard.fleet.incidents.events import Event
from nodeguard.fleet.plan import Plan
from nodeguard.kube import device_rule_object as rule_object
from nodeguard.kube import incident_object
from nodeguard.kube.client import ApiClient
from nodeguard.kube.device_rule_writer import DeviceRuleWriter
from nodeguard.kube.error_log import Log
from nodeguard.kube.event_correlator import EventContent
from nodeguard.kube.event_recorder import EventRecorder
from nodeguard.kube.executor import Executor, WriteOutcome
from nodeguard.kube.fenced_client import FencedClient
from nodeguard.kube.incident_object import API_VERSION, KIND
from nodeguard.kube.incident_writer import IncidentWriter
from nodeguard.kube.lease import Lease
from nodeguard.kube.write_queue import WriteQueue
from nodeguard.local.rate_limiter import TokenBucket
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


class Leader:
    """What writes while a lease is held under one epoch.

    pod: who says Events. node: the Node of a name as the watch has it. outcome: is told what marks become.
    tell: takes sentences, why nothing may be written any more among them.
    """

    def __init__(
        self,
        api: ApiClient,
        lease: Lease,
        pod: str,
        node: Callable[[str], Node | None],
        outcome: Callable[[WriteOutcome], None],
        tell: Log,
    ) -> None:
        self.epoch = lease.epoch
        permit = FencedClient(
            api,
            lease.epoch,
            may_write=lambda: lease.is_held(monotonic()),
            seconds_left=lambda: lease.seconds_left(monotonic()),
            on_fenced=tell,
        )
        marks = WriteQueue(permit, TokenBucket(*_MARKS), tell)
        later = WriteQueue(permit, TokenBucket(*_LATER), tell, after=marks)
        self.executor = Executor(permit, marks, later, observed_node=node, on_outcome=outcome)
        self.rules = DeviceRuleWriter(
            permit, marks, lambda rule, why: tell(f"DeviceTaintRule {rule.name}: {why}")
        )
        self.incidents = IncidentWriter(permit, later, lambda _: None)
        self._events = EventRecorder(permit, later, pod)
        # Of rules, by name: those that are to be, and names of those that a plan has said are to go.
        self._wanted: dict[str, DeviceRule] = {}
        self._away: set[str] = set()
        self._told: tuple[Callable[[], Iterable[Incident]], float] | None = None
        self._unsaid: deque[Event] = deque(maxlen=_UNSAID)
        self._lanes = [asyncio.create_task(lane.run()) for lane in (marks, later)]
        self._running = [*self._lanes, asyncio.create_task(self._tell_incidents())]

    def add_existing(
        self,
        rules: Iterable[rule_object.ObservedRule],
        incidents: Iterable[incident_object.ObservedIncident],
    ) -> None:
        """What the cluster has already; to be called once, at the beginning."""
        for rule in rules:
            self.rule_changed(rule)
        for incident in incidents:
            self.incidents.changed(incident)
        self.rules.set_desired(self._wanted.values())
        self.rules.synced()
        self.incidents.synced()

    def rule_changed(self, seen: rule_object.ObservedRule) -> None:
        """A rule is new or has changed. One that no plan has spoken of, as of a leader before, stands."""
        name = seen.rule.name
        if name not in self._wanted and name not in self._away:
            self._wanted[name] = seen.rule
            self.rules.add_desired(seen.rule)
        self.rules.changed(seen)

    def rule_gone(self, seen: rule_object.ObservedRule) -> None:
        """A rule is no more."""
        self._away.discard(seen.rule.name)
        self.rules.gone(seen.uid)

    def apply_plan(self, plan: Plan, incidents: Callable[[], Iterable[Incident]], wall: float) -> None:
        """Have a plan written. incidents: gives all there are. wall: seconds since the epoch."""
        for one in plan.nodes:
            self.executor.set_desired(one)
        if plan.rules or plan.rules_gone:
            self._wanted.update({rule.name: rule for rule in plan.rules})
            self._away -= {rule.name for rule in plan.rules}
            self._away.update(plan.rules_gone)
            for name in plan.rules_gone:
                self._wanted.pop(name, None)
            self.rules.set_desired(self._wanted.values())
        if plan.incidents:
            self._told = incidents, wall
        for event in plan.events:
            if event.node:
                self.send_event(
                    EventContent(event.node, event.uid, _kind(event), event.reason, event.message)
                )
            else:
                self._unsaid.append(event)
        self._say_of_incidents()

    def send_event(self, said: EventContent) -> None:
        """Have an Event sent."""
        self._events.record(said)

    def forget(self, uids: Iterable[str]) -> None:
        """Desire nothing any more of Nodes, and of their devices, of which a write has not begun."""
        these = frozenset(uids)
        for uid in these:
            self.executor.forget(uid)
        standing = {rule.name: rule for rule in self.rules.current_rules()}
        named = [name for name, rule in self._wanted.items() if rule.uid in these]
        for name in named:
            if name in standing:
                self._wanted[name] = standing[name]
            else:
                del self._wanted[name]
        if named:
            self.rules.set_desired(self._wanted.values())

    def is_writing(self, uid: str) -> bool:
        """Whether anything of a Node or its devices is being written."""
        return self.executor.is_in_flight(uid) or any(
            rule.uid == uid and self.rules.is_in_flight(name) for name, rule in self._wanted.items()
        )

    @property
    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        """What runs for as long as the term does."""
        return tuple(self._running)

    async def stop(self) -> None:
        """Write nothing any more."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _tell_incidents(self) -> None:
        while True:
            await asyncio.sleep(_INCIDENTS)
            if self._told is not None:
                (incidents, wall), self._told = self._told, None
                self.incidents.set_desired(incidents(), wall)
            self._say_of_incidents()

    def _say_of_incidents(self) -> None:
        """What is of no single Node is told beside its incident: `kubectl describe` asks by the uid, which
        one that is new has only once it is made.
        """
        for event in [self._unsaid.popleft() for _ in range(len(self._unsaid))]:
            uid = self.incidents.object_uid(event.incident)
            if uid:
                said = EventContent(
                    event.incident, uid, _kind(event), event.reason, event.message, KIND, API_VERSION
                )
                self.send_event(said)
            else:
                self._unsaid.append(event)


def _kind(event: Event) -> str:
    return "Warning" if event.warning else "Normal"


def monotonic() -> float:
    """Seconds of the clock that leases are counted by: one that goes on while a machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
