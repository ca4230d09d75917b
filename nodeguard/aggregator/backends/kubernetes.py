"""A cluster of Kubernetes: Nodes, devices, incidents and people's decisions followed, plans written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from nodeguard.aggregator.backends.kubernetes_actions import PAUSE, UNMARK, KubernetesOperatorActions
from nodeguard.aggregator.backends.leader import Leader, monotonic
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.service import current_instant
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.kube import device_rule_object as rule_object
from nodeguard.kube import device_rule_writer as device_rules
from nodeguard.kube import incident_object, nodes
from nodeguard.kube import incident_writer as incidents
from nodeguard.kube.client import ApiClient, ApiError, version_number
from nodeguard.kube.device_tracker import DeviceTracker, serves_device_rules
from nodeguard.kube.error_log import ErrorLog, Log
from nodeguard.kube.event_recorder import pod_warning
from nodeguard.kube.executor import WriteOutcome, WriteResult
from nodeguard.kube.kueue_topologies import KueueTopologyWatch
from nodeguard.kube.lease import Lease
from nodeguard.kube.node_patch import written_epoch
from nodeguard.model.incident import Incident, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.node import Device, Node
from nodeguard.model.policy import TopologyLabels
from nodeguard.wire.report import Report

Thing = TypeVar("Thing")


class WatchCallbacks(Generic[Thing]):
    """Takes what a watch tells of things of one kind; see kube.watching.Taker."""

    def __init__(
        self,
        changed: Callable[[Thing], None],
        gone: Callable[[str], None],
        synced: Callable[[], None],
    ) -> None:
        self._changed, self._gone, self._synced = changed, gone, synced

    def changed(self, thing: Thing) -> None:
        """A thing is new or has changed."""
        self._changed(thing)

    def gone(self, uid: str) -> None:
        """A thing is no more."""
        self._gone(uid)

    def synced(self) -> None:
        """All things of the kind are known."""
        self._synced()


LEASE_NAME = "nodeguard-aggregator"

# Seconds between two questions whether the server has rules for devices, and until the next where it did not
# answer.
_RULES = 300.0
_SOON = 1.0

# Seconds for which devices are waited for: without them a Node is marked where one of its GPUs would do.
_DEVICES = 15.0


class KubernetesBackend:
    """The world of an aggregator in Kubernetes. people: who carries out what people decide.

    news: is called where there is something to plan for. tell: takes sentences for the log.
    """

    def __init__(
        self,
        api: ApiClient,
        namespace: str,
        pod: str,
        planner: Planner,
        outbox: InstructionOutbox,
        *,
        news: Callable[[], object],
        tell: Log,
    ) -> None:
        self._api = api
        self._pod = pod
        self._namespace = namespace
        self._planner = planner
        self._outbox = outbox
        self._news = news
        self._tell = tell
        self._lease = Lease(api, namespace, LEASE_NAME, pod, tell)
        self.actions = KubernetesOperatorActions(api, namespace, self._decide, tell)
        self._term: Leader | None = None
        self._rules: dict[str, rule_object.ObservedRule] = {}
        self._incidents: dict[str, incident_object.ObservedIncident] = {}
        self._cleared: dict[str, str] = {}
        self._unknown = {"Nodes", "NodeIncidents", "decisions", "devices", "rules"}
        self._began = monotonic()
        self._unmark = ""
        self._following: list[asyncio.Task[Any]] = []
        self._devices = DeviceTracker(api, self._publish, tell)
        self._topologies = KueueTopologyWatch(api, self._import, tell)

    def begin(self) -> None:
        """Follow the cluster from now on."""
        api, tell = self._api, self._tell
        of_nodes = WatchCallbacks(self.node_changed, self.node_deleted, lambda: self.input_synced("Nodes"))
        of_incidents = WatchCallbacks(
            self.incident_changed, self.incident_deleted, lambda: self.input_synced("NodeIncidents")
        )
        self._start(nodes.watch_nodes(api, of_nodes, tell).run())
        self._start(incidents.watch_incidents(api, of_incidents, tell).run())
        self._start(self.actions.watch().run())
        self._start(self._follow_devices())
        self._start(self._topologies.run())

    # What the service asks.

    @property
    def leader(self) -> str:
        """Return the name of the aggregator that writes; empty for none."""
        return self._pod if self._lease.is_held(monotonic()) else self._lease.holder

    def missing_inputs(self) -> str:
        """What is not known yet without which nothing may be planned; empty where all is."""
        if monotonic() - self._began > _DEVICES:
            self._unknown.discard("devices")
        return ", ".join(sorted(self._unknown))

    async def renew_leadership(self, now: float) -> bool:
        """Whether this aggregator may have anything written."""
        held = await self._lease.renew(now)
        term = self._term
        # Who follows or writes no more must not go on leading.
        for task in (*self._following, *(term.tasks if term is not None else ())):
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if term is not None and (not held or term.epoch != self._lease.epoch):
            await self._end_term(term)
        if held and self._term is None:
            self._begin_term()
        return held

    def node_reported(self, caller: Caller, report: Report) -> None:
        """A Node's own object is what tells of it here."""

    def policy_changed(self) -> None:
        """What waits is planned anew; what is under way still counts, as it may land beside what comes."""
        if self._planner.policy.pause or self._term is None:
            self._drop()
            return
        waiting = [uid for uid in self._planner.state.pending_nodes() if not self._term.is_writing(uid)]
        for uid in waiting:
            self._planner.record_failed(uid)
        self._term.forget(waiting)

    def apply_plan(self, plan: Plan, now: Instant) -> None:
        """Have a plan written."""
        if self._term is None:
            return
        if self._unmark:
            away = self._planner.unmark_all()
            plan = replace(plan, nodes=away.nodes, rules=(), rules_gone=away.rules_gone)
            if not (plan.nodes or plan.rules_gone):
                done, self._unmark = self._unmark, ""
                self._start(self.actions.unmark_finished(done))
        else:
            self._planner.record_issued(plan)
        self._term.apply_plan(plan, self._all_incidents, now.wall)

    def policy_rejected(self, why: str) -> None:
        """An Event on this aggregator's own pod, if it leads; all say it in their logs."""
        if self._term is not None:
            self._start(self._say_refused(self._term, why))

    def decisions(self) -> dict[str, OperatorDecision]:
        """Return what people decided, by the incident's name, and what became of it."""
        return {
            one.name: self._outbox.with_answer(one.decision)
            for one in self._incidents.values()
            if one.decision != OperatorDecision(one.name)
        }

    async def close(self) -> None:
        """Give the lease back, and follow nothing any more."""
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        if self._term is not None:
            await self._end_term(self._term)
        await self._lease.release()
        await self._api.close()

    # What the cluster tells.

    def node_changed(self, node: Node) -> None:
        """A Node is new or has changed."""
        old = self._planner.state.nodes.get(node.uid)
        if old is not None and version_number(node.version) < version_number(old.version):
            return
        self._lease.raise_epoch_above(written_epoch(node.annotations))
        self._planner.update_node(node)
        # What an answer told is told by the watch again, and a kubelet changes much that is not kept.
        if old is None or replace(old, version=node.version) != node:
            self._news()

    def node_deleted(self, uid: str) -> None:
        """A Node is no more."""
        self._planner.remove_node(uid)
        self._outbox.forget(uid)
        if self._term is not None:
            self._term.forget([uid])
        self._news()

    def rule_changed(self, seen: rule_object.ObservedRule) -> None:
        """A rule of nodeguard's is new or has changed."""
        self._lease.raise_epoch_above(written_epoch(seen.annotations))
        self._rules[seen.uid] = seen
        self._planner.state.update_rule(seen.rule)
        if self._term is not None:
            self._term.rule_changed(seen)
        self._news()

    def rule_deleted(self, uid: str) -> None:
        """A rule is no more."""
        seen = self._rules.pop(uid, None)
        if seen is not None:
            self._planner.state.remove_rule(seen.rule.name)
            if self._term is not None:
                self._term.rule_gone(seen)
            self._news()

    def incident_changed(self, seen: incident_object.ObservedIncident) -> None:
        """An incident is new or has changed: by this aggregator, another, or a person."""
        old = self._incidents.get(seen.uid)
        self._incidents[seen.uid] = seen
        if self._term is not None:
            self._term.incidents.changed(seen)
        if old is None or old.decision != seen.decision:
            self._decided(seen.decision)

    def incident_deleted(self, uid: str) -> None:
        """An incident is no more."""
        seen = self._incidents.pop(uid, None)
        if seen is not None:
            self._cleared.pop(seen.name, None)
        if seen is not None and self._term is not None:
            self._term.incidents.gone(uid)

    def input_synced(self, what: str) -> None:
        """All of something is known now."""
        # A list that is read anew tells nothing of what this planner has not told itself.
        if what == "NodeIncidents" and what in self._unknown:
            self._planner.restore_incidents(
                one for one in map(incident_object.to_incident, self._incidents.values()) if one is not None
            )
            for seen in self._incidents.values():
                self._decided(seen.decision)
        if what == "Nodes" and what in self._unknown:
            self._planner.state.choose_topologies()
        self._unknown.discard(what)
        self._news()

    def _publish(self, node: str, devices: tuple[Device, ...]) -> None:
        self._planner.update_devices(node, devices)
        self._news()

    def _import(self, ways: tuple[TopologyLabels, ...]) -> None:
        self._planner.state.import_topologies(ways)
        self._news()

    def _decide(self, told: Mapping[str, str]) -> None:
        """What people decided of the whole fleet."""
        self._unknown.discard("decisions")
        self._unmark = told.get(UNMARK, "")
        paused = told.get(PAUSE, "")
        if paused and not self._planner.paused:
            self._drop()
        self._planner.paused = paused
        self._news()

    def _drop(self) -> None:
        """Have nothing written any more that has not begun."""
        dropped = self._planner.drop_issued()
        if self._term is not None:
            self._term.forget(dropped)

    def _decided(self, decision: OperatorDecision) -> None:
        """What people decided of one incident."""
        incident = self._planner.incident(decision.incident)
        if incident is not None and incident.is_open:
            self._outbox.clear(incident, decision)
        # What was said of a domain or check before this aggregator began is done.
        before, self._cleared[decision.incident] = self._cleared.get(decision.incident, ""), decision.clear
        is_new = decision.clear not in {"", before} and "NodeIncidents" not in self._unknown
        if is_new and incident is not None and incident.is_open and not incident.node:
            self._planner.clear(incident, current_instant())
            self._news()

    def _outcome(self, outcome: WriteOutcome) -> None:
        uid = outcome.desired.uid
        if outcome.result == WriteResult.WRITTEN:
            self._planner.record_written(uid, outcome.desired.state)
        elif outcome.result != WriteResult.FAILED:
            self._planner.record_failed(uid)
            self._tell(f"Node {outcome.desired.name}: {outcome.reason}")
        if outcome.node is not None and uid in self._planner.state.nodes:
            self.node_changed(outcome.node)
        self._news()

    def _begin_term(self) -> None:
        self._tell(f"leading, epoch {self._lease.epoch}")
        term = self._term = Leader(
            self._api, self._lease, self._pod, self._node_named, self._outcome, self._tell
        )
        term.add_existing(self._rules.values(), self._incidents.values())
        term.incidents.set_desired(self._all_incidents(), 0.0)

    async def _end_term(self, term: Leader) -> None:
        self._term = None
        self._planner.drop_issued()
        await term.stop()
        self._tell("another leads from now on, or nobody: nothing is written")

    def _node_named(self, name: str) -> Node | None:
        roster = self._planner.state
        return roster.nodes.get(roster.uid(name))

    def _all_incidents(self) -> list[Incident]:
        return [one for told in self._planner.incidents.values() for one in told.values()]

    async def _follow_devices(self) -> None:
        """Follow devices and rules, once the server knows what these are."""
        trouble = ErrorLog("DeviceTaintRules", self._tell)
        while True:
            wait = _SOON
            try:
                if await serves_device_rules(self._api):
                    break
                trouble.recovered()
                self._unknown -= {"devices", "rules"}
                wait = _RULES
            except ApiError as error:
                trouble.failed(error)
            await asyncio.sleep(wait)
        trouble.recovered()
        of_rules = WatchCallbacks(self.rule_changed, self.rule_deleted, lambda: self.input_synced("rules"))
        self._start(device_rules.watch_rules(self._api, of_rules, self._tell).run())
        devices = asyncio.create_task(self._devices.run())
        while not (self._devices.is_complete or devices.done()):
            await asyncio.sleep(0.05)
        self._unknown.discard("devices")
        self._news()
        await devices

    async def _say_refused(self, term: Leader, why: str) -> None:
        try:
            term.send_event(
                await pod_warning(self._api, self._namespace, self._pod, "NodeguardPolicyWrong", why)
            )
        except ApiError as error:
            self._tell(f"no Event says that the policy is wrong: {error}")

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        # One that has failed is kept: see lead.
        self._following = [
            task for task in self._following if not task.done() or task.cancelled() or task.exception()
        ]
        self._following.append(asyncio.create_task(work))
