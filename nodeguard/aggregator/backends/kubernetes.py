"""The Kubernetes backend: watches Nodes, devices, incidents and operators' decisions, and writes plans."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from nodeguard.aggregator.backends.kubernetes_actions import PAUSE, UNMARK, KubernetesOperatorActions
from nodeguard.aggregator.backends.leader import Leader
from nodeguard.aggregator.clock import current_instant, monotonic
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.kube import device_rules, incident_object, nodes
from nodeguard.kube import incident_writer as incidents
from nodeguard.kube.client import ApiClient, ApiError, version_number
from nodeguard.kube.devices import DeviceTracker, serves_device_rules
from nodeguard.kube.events import pod_warning
from nodeguard.kube.executor import WriteOutcome, WriteResult
from nodeguard.kube.kueue_topologies import KueueTopologyWatch
from nodeguard.kube.lease import Lease
from nodeguard.kube.node_patch import written_epoch
from nodeguard.model.incident import Incident, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.node import Device, Node
from nodeguard.model.policy import TopologyLabels
from nodeguard.wire.report import Report

Object = TypeVar("Object")

logger = logging.getLogger(__name__)


class WatchCallbacks(Generic[Object]):
    """Passes the events of a watch to functions; see kube.watching.Taker."""

    def __init__(
        self,
        changed: Callable[[Object], None],
        gone: Callable[[str], None],
        synced: Callable[[], None],
    ) -> None:
        self._changed, self._gone, self._synced = changed, gone, synced

    def changed(self, item: Object) -> None:
        """Handle an object that is new or has changed."""
        self._changed(item)

    def gone(self, uid: str) -> None:
        """Handle a deleted object."""
        self._gone(uid)

    def synced(self) -> None:
        """Handle the end of the first list."""
        self._synced()


LEASE_NAME = "nodeguard-aggregator"

# Seconds between two checks whether the server has DeviceTaintRules, and after a check that failed.
_RULES_PERIOD = 300.0
_RULES_RETRY = 1.0

# Seconds to wait for devices at the start: without them a whole Node is marked for one of its GPUs.
_DEVICES_TIMEOUT = 15.0


class KubernetesBackend:
    """The backend in Kubernetes. actions: carries out operators' actions.

    wake: is called when there is something to plan for.
    """

    def __init__(
        self,
        api: ApiClient,
        namespace: str,
        pod: str,
        planner: Planner,
        outbox: InstructionOutbox,
        *,
        wake: Callable[[], object],
    ) -> None:
        self._api = api
        self._pod = pod
        self._namespace = namespace
        self._planner = planner
        self._outbox = outbox
        self._wake = wake
        self._lease = Lease(api, namespace, LEASE_NAME, pod)
        self.actions = KubernetesOperatorActions(api, namespace, self._fleet_decided)
        self.on_written: Callable[[float], object] = lambda _: None
        self._leader: Leader | None = None
        # Seconds of the monotonic clock at which the marks of a Node were first issued, by uid.
        self._issued_at: dict[str, float] = {}
        self._rules: dict[str, device_rules.ObservedRule] = {}
        self._incidents: dict[str, incident_object.ObservedIncident] = {}
        self._cleared: dict[str, str] = {}
        self._missing = {"Nodes", "NodeIncidents", "decisions", "devices", "rules"}
        self._started_at = monotonic()
        self._unmark = ""
        self._watches: list[asyncio.Task[Any]] = []
        self._devices = DeviceTracker(api, self._publish)
        self._topologies = KueueTopologyWatch(api, self._import)

    def begin(self) -> None:
        """Start to watch the cluster."""
        api = self._api
        node_events = WatchCallbacks(self.node_changed, self.node_deleted, lambda: self.input_synced("Nodes"))
        incident_events = WatchCallbacks(
            self.incident_changed, self.incident_deleted, lambda: self.input_synced("NodeIncidents")
        )
        self._start(nodes.watch_nodes(api, node_events).run())
        self._start(incidents.watch_incidents(api, incident_events).run())
        self._start(self.actions.watch().run())
        self._start(self._follow_devices())
        self._start(self._topologies.run())

    # The interface of a backend.

    @property
    def leader(self) -> str:
        """Return the name of the aggregator that writes; empty for none."""
        return self._pod if self._lease.is_held(monotonic()) else self._lease.holder

    def missing_inputs(self) -> str:
        """Return the names of inputs that were not read yet; empty for none. See Backend."""
        if monotonic() - self._started_at > _DEVICES_TIMEOUT:
            self._missing.discard("devices")
        return ", ".join(sorted(self._missing))

    async def renew_leadership(self, now: float) -> bool:
        """Renew the lease, and begin or end the leader session. Returns whether this aggregator may write."""
        held = await self._lease.renew(now)
        leader = self._leader
        # An aggregator without its watches or writers must not lead.
        for task in (*self._watches, *(leader.tasks if leader is not None else ())):
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if leader is not None and (not held or leader.epoch != self._lease.epoch):
            await self._end_session(leader)
        if held and self._leader is None:
            self._begin_session()
        return held

    def node_reported(self, caller: Caller, report: Report) -> None:
        """Do nothing: Nodes are known by their objects."""

    def policy_changed(self) -> None:
        """Withdraw writes that have not begun. Writes that have begun stay: they may still succeed."""
        if self._planner.policy.pause or self._leader is None:
            self._drop()
            return
        waiting = [uid for uid in self._planner.state.pending_nodes() if not self._leader.is_writing(uid)]
        for uid in waiting:
            self._planner.record_failed(uid)
        self._leader.forget(waiting)

    def apply_plan(self, plan: Plan, now: Instant) -> None:
        """Start to write a plan."""
        if self._leader is None:
            return
        if self._unmark:
            away = self._planner.unmark_all()
            plan = replace(plan, nodes=away.nodes, rules=(), rules_gone=away.rules_gone)
            if not (plan.nodes or plan.rules_gone):
                done, self._unmark = self._unmark, ""
                self._start(self.actions.unmark_finished(done))
        else:
            self._planner.record_issued(plan)
            for desired in plan.nodes:
                self._issued_at.setdefault(desired.uid, now.mono)
        self._leader.apply_plan(plan, self._all_incidents, now.wall)

    def policy_rejected(self, message: str) -> None:
        """Send an Event on this aggregator's own pod, if it leads; all aggregators log it."""
        if self._leader is not None:
            self._start(self._send_rejected(self._leader, message))

    def decisions(self) -> dict[str, OperatorDecision]:
        """Return operators' decisions and their results, by name of the incident."""
        return {
            seen.name: self._outbox.with_answer(seen.decision)
            for seen in self._incidents.values()
            if seen.decision != OperatorDecision(seen.name)
        }

    async def close(self) -> None:
        """Stop the watches and the writers, and release the lease."""
        for task in self._watches:
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        if self._leader is not None:
            await self._end_session(self._leader)
        await self._lease.release()
        await self._api.close()

    # Events of the watches.

    def node_changed(self, node: Node) -> None:
        """Handle a Node that is new or has changed."""
        old = self._planner.state.nodes.get(node.uid)
        if old is not None and version_number(node.version) < version_number(old.version):
            return
        self._lease.raise_epoch_above(written_epoch(node.annotations))
        self._planner.update_node(node)
        # The watch repeats the response of a write, and a kubelet changes fields that are not used here.
        if old is None or replace(old, version=node.version) != node:
            self._wake()

    def node_deleted(self, uid: str) -> None:
        """Handle a deleted Node."""
        self._planner.remove_node(uid)
        self._outbox.forget(uid)
        if self._leader is not None:
            self._leader.forget([uid])
        self._wake()

    def rule_changed(self, seen: device_rules.ObservedRule) -> None:
        """Handle a DeviceTaintRule of nodeguard that is new or has changed."""
        self._lease.raise_epoch_above(written_epoch(seen.annotations))
        self._rules[seen.uid] = seen
        self._planner.state.update_rule(seen.rule)
        if self._leader is not None:
            self._leader.rule_changed(seen)
        self._wake()

    def rule_deleted(self, uid: str) -> None:
        """Handle a deleted DeviceTaintRule."""
        seen = self._rules.pop(uid, None)
        if seen is not None:
            self._planner.state.remove_rule(seen.rule.name)
            if self._leader is not None:
                self._leader.rule_gone(seen)
            self._wake()

    def incident_changed(self, seen: incident_object.ObservedIncident) -> None:
        """Handle an incident that is new or has changed: by an aggregator or an operator."""
        old = self._incidents.get(seen.uid)
        self._incidents[seen.uid] = seen
        if self._leader is not None:
            self._leader.incidents.changed(seen)
        if old is None or old.decision != seen.decision:
            self._decided(seen.decision)

    def incident_deleted(self, uid: str) -> None:
        """Handle a deleted incident."""
        seen = self._incidents.pop(uid, None)
        if seen is not None:
            self._cleared.pop(seen.name, None)
        if seen is not None and self._leader is not None:
            self._leader.incidents.gone(uid)

    def input_synced(self, name: str) -> None:
        """Note that all objects of a kind are read. name: of the input."""
        # Only the first list has incidents that this planner does not know.
        if name == "NodeIncidents" and name in self._missing:
            self._planner.restore_incidents(
                incident
                for incident in map(incident_object.to_incident, self._incidents.values())
                if incident is not None
            )
            for seen in self._incidents.values():
                self._decided(seen.decision)
        if name == "Nodes" and name in self._missing:
            self._planner.state.choose_topologies()
        self._missing.discard(name)
        self._wake()

    def _publish(self, node: str, devices: tuple[Device, ...]) -> None:
        self._planner.update_devices(node, devices)
        self._wake()

    def _import(self, topologies: tuple[TopologyLabels, ...]) -> None:
        self._planner.state.import_topologies(topologies)
        self._wake()

    def _fleet_decided(self, decisions: Mapping[str, str]) -> None:
        """Handle operators' decisions of the whole fleet."""
        self._missing.discard("decisions")
        self._unmark = decisions.get(UNMARK, "")
        paused = decisions.get(PAUSE, "")
        if paused and not self._planner.paused:
            self._drop()
        self._planner.paused = paused
        self._wake()

    def _drop(self) -> None:
        """Withdraw all writes that have not begun."""
        dropped = self._planner.drop_issued()
        if self._leader is not None:
            self._leader.forget(dropped)

    def _decided(self, decision: OperatorDecision) -> None:
        """Handle an operator's decision of one incident."""
        incident = self._planner.incident(decision.incident)
        if incident is not None and incident.is_open:
            self._outbox.clear(incident, decision)
        # Clears of domains and checks from before the start of this aggregator were applied.
        before, self._cleared[decision.incident] = self._cleared.get(decision.incident, ""), decision.clear
        is_new = decision.clear not in {"", before} and "NodeIncidents" not in self._missing
        if is_new and incident is not None and incident.is_open and not incident.node:
            self._planner.clear(incident, current_instant())
            self._wake()

    def _outcome(self, outcome: WriteOutcome) -> None:
        uid = outcome.desired.uid
        issued_at = None
        if outcome.result != WriteResult.FAILED:
            issued_at = self._issued_at.pop(uid, None)
        if outcome.result == WriteResult.WRITTEN:
            if issued_at is not None:
                self.on_written(monotonic() - issued_at)
            self._planner.record_written(uid, outcome.desired.state)
        elif outcome.result != WriteResult.FAILED:
            self._planner.record_failed(uid)
            logger.warning(
                "cannot mark the Node", extra={"node": outcome.desired.name, "reason": outcome.reason}
            )
        if outcome.node is not None and uid in self._planner.state.nodes:
            self.node_changed(outcome.node)
        self._wake()

    def _begin_session(self) -> None:
        leader = self._leader = Leader(self._api, self._lease, self._pod, self._node_named, self._outcome)
        leader.add_existing(self._rules.values(), self._incidents.values())
        leader.incidents.set_desired(self._all_incidents(), 0.0)

    async def _end_session(self, leader: Leader) -> None:
        self._leader = None
        self._planner.drop_issued()
        self._issued_at.clear()
        await leader.stop()
        logger.info("stopped all writes", extra={"epoch": leader.epoch})

    def _node_named(self, name: str) -> Node | None:
        state = self._planner.state
        return state.nodes.get(state.uid(name))

    def _all_incidents(self) -> list[Incident]:
        return [incident for by_name in self._planner.incidents.values() for incident in by_name.values()]

    async def _follow_devices(self) -> None:
        """Watch devices and DeviceTaintRules, as soon as the server has them."""
        while True:
            wait = _RULES_RETRY
            try:
                if await serves_device_rules(self._api):
                    break
                self._missing -= {"devices", "rules"}
                wait = _RULES_PERIOD
            except ApiError as error:
                logger.warning("cannot discover DeviceTaintRules", extra={"error": error.message})
            await asyncio.sleep(wait)
        rule_events = WatchCallbacks(self.rule_changed, self.rule_deleted, lambda: self.input_synced("rules"))
        self._start(device_rules.watch_rules(self._api, rule_events).run())
        devices = asyncio.create_task(self._devices.run())
        while not (self._devices.is_complete or devices.done()):
            await asyncio.sleep(0.05)
        self._missing.discard("devices")
        self._wake()
        await devices

    async def _send_rejected(self, leader: Leader, message: str) -> None:
        try:
            leader.send_event(
                await pod_warning(self._api, self._namespace, self._pod, "NodeguardPolicyInvalid", message)
            )
        except ApiError as error:
            logger.warning("cannot send the Event about the invalid policy", extra={"error": error.message})

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        # A failed task stays in the list: see renew_leadership.
        self._watches = [
            task for task in self._watches if not task.done() or task.cancelled() or task.exception()
        ]
        self._watches.append(asyncio.create_task(work))
