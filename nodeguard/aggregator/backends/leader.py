"""The leader session: the writers of one lease epoch. They stop when the lease is lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from nodeguard.aggregator.clock import monotonic
from nodeguard.executors.kube.cluster import ClusterWrites, ObservedCluster
from nodeguard.executors.kube.desired import DeviceRule
from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.fleet.incidents.events import IncidentEvent
from nodeguard.fleet.plan import Plan
from nodeguard.fleet_api.text.job import drained_jobs_texts
from nodeguard.kube import incident_object
from nodeguard.kube.client import ApiClient
from nodeguard.kube.device_rules import DeviceRuleWriter, ObservedRule
from nodeguard.kube.drain_condition_writer import DrainConditionWriter
from nodeguard.kube.events import EventContent, EventRecorder
from nodeguard.kube.eviction import KubernetesDrainCluster
from nodeguard.kube.executor import Executor, WriteOutcome
from nodeguard.kube.fenced_client import FencedClient
from nodeguard.kube.incident_object import API_VERSION, KIND
from nodeguard.kube.incident_writer import IncidentWriter
from nodeguard.kube.lease import Lease
from nodeguard.kube.write_queue import WriteQueue
from nodeguard.local.rate_limiter import TokenBucket
from nodeguard.model.action import NodeAction
from nodeguard.model.incident import Incident
from nodeguard.model.instant import Instant

# Writes a second and burst: of marks, and of conditions, incidents and Events, which follow them.
_MARKS = (50.0, 50)
_LATER = (20.0, 20)

# Seconds between two comparisons of all incidents.
_INCIDENTS = 0.25

# Characters of the message of an Event: the API server accepts 1,024.
_MESSAGE = 1000

# Events that wait until their incident is created: the latest.
_WAITING_EVENTS = 100


class Leader:
    """The writers of one lease epoch.

    pod: source of Events. cluster: as the watches delivered it. outcome: receives the
    results of writes. on_rule_error: receives the name of a DeviceTaintRule and the error of its write.
    writes_conditions: returns whether the policy has conditions of drains written.
    """

    def __init__(
        self,
        api: ApiClient,
        lease: Lease,
        pod: str,
        cluster: ObservedCluster,
        outcome: Callable[[WriteOutcome], None],
        on_rule_error: Callable[[str, WriteError], None],
        *,
        writes_conditions: Callable[[], bool] = lambda: True,
    ) -> None:
        self.epoch = lease.epoch
        permit = FencedClient(
            api,
            lease.epoch,
            # The same process may lead again, in a later epoch: these writers have ended then.
            may_write=lambda: lease.epoch == self.epoch and lease.is_held(monotonic()),
            seconds_left=lambda: lease.seconds_left(monotonic()),
            renewals=lambda: lease.renewals,
        )
        marks = WriteQueue(permit, TokenBucket(*_MARKS))
        later = WriteQueue(permit, TokenBucket(*_LATER), after=marks)
        conditions = DrainConditionWriter(
            permit,
            later,
            all_nodes=cluster.nodes.values,
            observed_node=cluster.node_named,
            is_enabled=writes_conditions,
        )
        self.drains = KubernetesDrainCluster(permit, conditions.show, self.send_event)
        self.executor = Executor(permit, marks, later, observed_node=cluster.node_named, on_outcome=outcome)
        self.rules = DeviceRuleWriter(permit, marks, on_rule_error)
        self.incidents = IncidentWriter(permit, later)
        self._events = EventRecorder(permit, later, pod)
        # DeviceTaintRules by name that must exist, and names of those that a plan removes.
        self._wanted: dict[str, DeviceRule] = {}
        self._removed: set[str] = set()
        self._pending_incidents: tuple[Callable[[], Iterable[Incident]], float] | None = None
        self._waiting_events: deque[IncidentEvent] = deque(maxlen=_WAITING_EVENTS)
        # Events of Nodes that are sent after the incidents of their plan. If this process is killed between
        # the two writes, the next leader finds the open incident and reports its end. The Event of an end is
        # sent before the incident for the same reason.
        self._opening_events: list[IncidentEvent] = []
        self._lanes = [asyncio.create_task(lane.run()) for lane in (marks, later)]
        self._running = [*self._lanes, asyncio.create_task(self._write_incidents())]

    def add_existing(
        self,
        rules: Iterable[ObservedRule],
        incidents: Iterable[incident_object.ObservedIncident],
    ) -> None:
        """Add the objects that the cluster has. Call it once, at the start."""
        for rule in rules:
            self.rule_changed(rule)
        for incident in incidents:
            self.incidents.changed(incident)
        self.rules.set_desired(self._wanted.values())
        self.rules.synced()
        self.incidents.synced()

    def rule_changed(self, seen: ObservedRule) -> None:
        """Handle a new or changed rule. A rule of an earlier leader stays until a plan removes it."""
        name = seen.rule.name
        if name not in self._wanted and name not in self._removed:
            self._wanted[name] = seen.rule
            self.rules.add_desired(seen.rule)
        self.rules.changed(seen)

    def rule_gone(self, seen: ObservedRule) -> None:
        """Handle a deleted rule."""
        self._removed.discard(seen.rule.name)
        self.rules.gone(seen.uid)

    def write(self, writes: ClusterWrites) -> None:
        """Start to write marks."""
        for marks in writes.nodes:
            self.executor.set_desired(marks)
        if writes.rules or writes.rules_gone:
            self._wanted.update({rule.name: rule for rule in writes.rules})
            self._removed -= {rule.name for rule in writes.rules}
            self._removed.update(writes.rules_gone)
            for name in writes.rules_gone:
                self._wanted.pop(name, None)
            self.rules.set_desired(self._wanted.values())

    def record(self, plan: Plan, incidents: Callable[[], Iterable[Incident]], wall: float) -> None:
        """Start to record the incidents and Events of a plan. incidents: returns all incidents. wall: seconds
        since the epoch.
        """
        if plan.incidents:
            self._pending_incidents = incidents, wall
        for event in plan.events:
            if not event.node:
                self._waiting_events.append(event)
            elif event.ends and not self._opening_events:
                self.send_event(_about_node(event))
            else:
                self._opening_events.append(event)
        self._send_waiting_events()

    def send_event(self, event: EventContent) -> None:
        """Send an Event."""
        self._events.record(event)

    def forget(self, uids: Iterable[str]) -> None:
        """Withdraw the writes of Nodes and of their devices that have not begun."""
        nodes = frozenset(uids)
        for uid in nodes:
            self.executor.forget(uid)
        existing = {rule.name: rule for rule in self.rules.current_rules()}
        named = [name for name, rule in self._wanted.items() if rule.uid in nodes]
        for name in named:
            if name in existing:
                self._wanted[name] = existing[name]
            else:
                del self._wanted[name]
        if named:
            self.rules.set_desired(self._wanted.values())

    def is_in_flight(self, uid: str) -> bool:
        """Return whether a write of a Node or of its devices has begun."""
        return self.executor.is_in_flight(uid) or any(
            rule.uid == uid and self.rules.is_in_flight(name) for name, rule in self._wanted.items()
        )

    @property
    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        """Return the tasks of this session."""
        return tuple(self._running)

    async def stop(self) -> None:
        """Stop all writers."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _write_incidents(self) -> None:
        while True:
            await asyncio.sleep(_INCIDENTS)
            if self._pending_incidents is not None:
                (incidents, wall), self._pending_incidents = self._pending_incidents, None
                self.incidents.set_desired(incidents(), wall)
            events, self._opening_events = self._opening_events, []
            for event in events:
                self.send_event(_about_node(event))
            self._send_waiting_events()

    def _send_waiting_events(self) -> None:
        """Send the waiting Events of domains and checks. They are about the incident, and `kubectl describe`
        finds them by its uid, which it has only after it is created.
        """
        for event in [self._waiting_events.popleft() for _ in range(len(self._waiting_events))]:
            uid = self.incidents.object_uid(event.incident)
            if uid:
                about_incident = EventContent(
                    event.incident, uid, _kind(event), event.reason, event.message, KIND, API_VERSION
                )
                self.send_event(about_incident)
            else:
                self._waiting_events.append(event)


def with_job_outcomes(plan: Plan, actions: Collection[NodeAction], now: Instant) -> Plan:
    """Return a plan of which the Events of ended incidents name what drains did with the pods of the jobs.
    actions: all that are stored.
    """
    if not any(event.ends for event in plan.events):
        return plan
    incidents = {incident.name: incident for incident in plan.incidents}
    events = list[IncidentEvent]()
    for event in plan.events:
        incident = incidents.get(event.incident) if event.ends else None
        texts = drained_jobs_texts(incident, actions, now) if incident is not None else []
        message = "; ".join([event.message, *texts])[:_MESSAGE]
        events.append(replace(event, message=message))
    return replace(plan, events=tuple(events))


def _about_node(event: IncidentEvent) -> EventContent:
    return EventContent(event.node, event.uid, _kind(event), event.reason, event.message)


def _kind(event: IncidentEvent) -> str:
    return "Warning" if event.warning else "Normal"
