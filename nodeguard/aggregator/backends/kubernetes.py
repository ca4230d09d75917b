"""The Kubernetes backend: observes the cluster, holds the lease, and writes plans while it leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from nodeguard.aggregator.backends.backend import ApiProblem
from nodeguard.aggregator.backends.cluster_watches import ClusterWatches
from nodeguard.aggregator.backends.job_reader import JobReader
from nodeguard.aggregator.backends.kubernetes_actions import (
    PAUSE,
    RESUMED,
    UNMARK,
    KubernetesOperatorActions,
)
from nodeguard.aggregator.backends.leader import Leader, with_job_outcomes
from nodeguard.aggregator.backends.lease_keeper import LeaseKeeper
from nodeguard.aggregator.backends.rejected_pod_reader import RejectedPodReader
from nodeguard.aggregator.clock import monotonic
from nodeguard.aggregator.fleet_inputs import FleetInputs, FleetView
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.leadership import Candidacy
from nodeguard.executors.kube.cluster import ClusterWrites, ObservedCluster
from nodeguard.fleet.plan import Plan
from nodeguard.kube.action_store import KubernetesActionStore
from nodeguard.kube.client import ApiClient, ApiError
from nodeguard.kube.events import pod_warning
from nodeguard.kube.executor import WriteOutcome, WriteResult
from nodeguard.kube.lease import Lease
from nodeguard.kube.write_queue import MAX_DELAY
from nodeguard.model.decision import NodeDecision
from nodeguard.model.eviction import DrainCluster
from nodeguard.model.incident import IncidentState, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.pod import RejectedPods
from nodeguard.model.refused_request import RefusedRequest
from nodeguard.wire.report import Report

logger = logging.getLogger(__name__)

LEASE_NAME = "nodeguard-aggregator"

# The HTTP status of a refused request: a right is missing, or an admission policy denies it.
_FORBIDDEN = 403

# Nodes of which an admission webhook or policy denies the writes, until it may deny those of all.
_MANY_DENIED = 2

# Seconds after the latest refusal until the problem counts as over: a write is repeated within half of this,
# except if its mark is not wanted any more.
_REFUSAL_LASTS = 2.0 * MAX_DELAY


class KubernetesBackend:
    """The backend in Kubernetes; see Backend. actions: carries out operators' actions.

    fleet: what the planner knows. inputs: receives what is observed, decided and written. cluster: the
    objects of the cluster. on_written: receives the seconds from the plan to the response of the Kubernetes
    API for each Node with written marks.
    """

    def __init__(
        self,
        api: ApiClient,
        namespace: str,
        pod: str,
        fleet: FleetView,
        inputs: FleetInputs,
        cluster: ObservedCluster,
        *,
        on_written: Callable[[float], object] = lambda _: None,
    ) -> None:
        self._api = api
        self._pod = pod
        self._namespace = namespace
        self._fleet = fleet
        self._inputs = inputs
        self._cluster = cluster
        self._lease = Lease(api, namespace, LEASE_NAME, pod)
        self._keeper = LeaseKeeper(self._lease)
        self._write_problem: ApiProblem | None = None
        self._refused_at = 0.0
        # When the latest write of a Node was denied, by uid.
        self._denied: dict[str, float] = {}
        self.watches = ClusterWatches(api, cluster, inputs, self._lease.raise_epoch_above)
        self.action_store = KubernetesActionStore(api, namespace, inputs.actions_changed)
        self.actions = KubernetesOperatorActions(
            api,
            namespace,
            self._fleet_decided,
            self.watches.rules_of,
            clear_problem=self._clear_problem,
            refused_record=cluster.refused_record,
        )
        self._on_written = on_written
        self._jobs = JobReader(api, fleet, inputs)
        self.state_problem = ""  # the cluster has the state
        self._rejected = RejectedPodReader(api, fleet)
        # Seconds of the monotonic clock at which the marks of a Node were first issued, by uid.
        self._issued_at: dict[str, float] = {}
        # Decisions about nodes that webhooks own, by uid, until their Nodes show them.
        self._unaccepted: dict[str, NodeDecision] = {}
        self._tasks = _BackgroundTasks()

    def begin(self, *, read_jobs: bool) -> None:
        """Start to watch the cluster. read_jobs: also the pods of nodes that vote or have a fatal
        incident, which needs a right.
        """
        for work in (*self.watches.work(), self.actions.watch().run(), self.action_store.run()):
            self._tasks.start(work)
        if read_jobs:
            self._tasks.start(self._jobs.run())
            self._tasks.start(self._rejected.run())

    @property
    def job_reads(self) -> Mapping[str, int]:
        """Return the number of readings of a node's jobs, by result. See Backend."""
        return self._jobs.results

    @property
    def rejected_pods(self) -> Mapping[str, RejectedPods]:
        """Return the pods that kubelets rejected, by uid of the Node. See Backend."""
        return self._rejected.pods

    @property
    def drain_cluster(self) -> DrainCluster | None:
        """Return what a drain reads and does in the cluster; None while this aggregator does not lead."""
        return self.watches.leader.drains if self.watches.leader is not None else None

    @property
    def leader(self) -> str:
        """Return the name of the aggregator that writes; empty for none."""
        return self._lease.holder(monotonic())

    def missing_inputs(self) -> str:
        """Return the names of inputs that were not read yet; empty for none. See Backend."""
        return self.watches.missing_inputs()

    @property
    def epoch(self) -> int:
        """Return the epoch of the lease."""
        return self._lease.epoch

    async def renew_leadership(self, now: float, candidacy: Candidacy) -> bool:
        """Renew the lease, and begin or end the leader session. Returns whether this aggregator may write."""
        if not candidacy.wanted and self.watches.leader is not None:
            # The writers end before the lease is released.
            await self._end_session(self.watches.leader)
        held = await self._keeper.renew(now, wanted=candidacy.wanted)
        if self._lease.earlier_term is not None:
            self._inputs.earlier_term_read(*self._lease.earlier_term)
            self._lease.earlier_term = None
        leader = self.watches.leader
        # An aggregator without its watches or writers must not lead.
        self._tasks.raise_failure()
        _raise_failure(leader.tasks if leader is not None else ())
        if leader is not None and (not held or leader.epoch != self._lease.epoch):
            await self._end_session(leader)
        if held and self.watches.leader is None:
            self._begin_session()
        return held

    def vacant_since(self) -> float | None:
        """Return since when the lease has had no holder; None while it has one. See Backend."""
        return self._lease.vacant_since

    def lease_problem(self, now: float) -> ApiProblem | None:
        """Return why the lease cannot be read or renewed; None while the API server answers."""
        return self._keeper.problem(now)

    def write_problem(self) -> ApiProblem | None:
        """Return why the API server refuses all writes of Nodes; None if it does not."""
        if monotonic() - self._refused_at > _REFUSAL_LASTS:
            self._write_problem = None
        return self._write_problem

    def refused_requests(self) -> tuple[RefusedRequest, ...]:
        """Return the requests that the API server refuses for lack of a right or of the resource."""
        return self._api.refused.current()

    def node_reported(self, caller: Caller, report: Report) -> None:
        """Do nothing: Nodes are known by their objects."""

    def desired(self, decisions: Iterable[NodeDecision]) -> None:
        """Start to write some decisions. See MarkExecutor."""
        latest = {decision.node: decision for decision in decisions}
        for uid, decision in latest.items():
            node = self._fleet.node(uid)
            if node is not None and node.owner:
                self._unaccepted[uid] = decision
        self._write(self._cluster.writes(latest.values(), self._fleet.policy.marks))

    def marks_accepted(self, node: str) -> None:
        """Write what the receiver of a node's owner has accepted, if the Node does not show it."""
        decision = self._unaccepted.get(node)
        if decision is not None:
            self._write(self._cluster.writes((decision,), self._fleet.policy.marks))

    def withdraw(self, nodes: Iterable[str]) -> None:
        """Withdraw the writes of Nodes that have not begun."""
        nodes = tuple(nodes)
        for uid in nodes:
            self._unaccepted.pop(uid, None)
        if self.watches.leader is not None:
            self.watches.leader.forget(nodes)

    def is_in_flight(self, node: str) -> bool:
        """Return whether a write of a Node has begun: it may still succeed."""
        leader = self.watches.leader
        return leader is not None and leader.is_in_flight(node)

    def remove_marks(self) -> bool:
        """Start to remove every mark. Returns whether there were any."""
        self._unaccepted.clear()
        writes = self._cluster.removal()
        self._write(writes)
        return bool(writes)

    def publish(self, plan: Plan, now: Instant) -> None:
        """Start to record the incidents and Events of a plan."""
        if self.watches.leader is not None:
            recorded = with_job_outcomes(plan, self.action_store.actions(), now)
            self.watches.leader.record(recorded, self._fleet.all_incidents, now.wall)

    def _write(self, writes: ClusterWrites) -> None:
        if self.watches.leader is not None:
            for desired in writes.nodes:
                self._issued_at.setdefault(desired.uid, monotonic())
                if desired.is_final:
                    self._unaccepted.pop(desired.uid, None)
            self._cluster.record_issued(writes)
            self.watches.leader.write(writes)

    def marks_removed(self, by: str) -> None:
        """Delete an operator's request to remove all marks. by: the operator."""
        self._tasks.start(self.actions.unmark_finished(by))

    def policy_rejected(self, message: str) -> None:
        """Send an Event on this aggregator's own pod, if it leads; all aggregators log it."""
        if self.watches.leader is not None:
            self._tasks.start(self._send_rejected(self.watches.leader, message))

    def decisions(self) -> dict[str, OperatorDecision]:
        """Return operators' decisions, by name of the incident."""
        return {
            seen.name: seen.decision
            for seen in self.watches.incidents.values()
            if seen.decision != OperatorDecision(seen.name)
        }

    def open_decisions(self) -> dict[str, OperatorDecision]:
        """Return operators' decisions of incidents that are recorded as open. See Backend."""
        return {
            seen.name: seen.decision
            for seen in self.watches.incidents.values()
            if seen.decision.clear and seen.status.state != IncidentState.RESOLVED
        }

    async def close(self) -> None:
        """Stop the watches and the writers, and release the lease."""
        await self._tasks.stop()
        if self.watches.leader is not None:
            await self._end_session(self.watches.leader)
        await self._keeper.stop()
        await self._lease.release()
        await self._api.close()

    def _fleet_decided(self, decisions: Mapping[str, str]) -> None:
        """Handle operators' decisions of the whole fleet."""
        self.watches.synced("decisions")
        pause, unmark, resumed = (decisions.get(key, "") for key in (PAUSE, UNMARK, RESUMED))
        self.withdraw(self._inputs.fleet_decided(pause, unmark, resumed))

    def _clear_problem(self, name: str) -> str:
        """Return why an incident cannot be cleared; empty if it can. Only one of a node needs an action."""
        incident = self._fleet.incident(name)
        return self.action_store.problem() if incident is not None and incident.node else ""

    def _marks_written(self, outcome: WriteOutcome) -> None:
        """Handle the result of a write."""
        uid = outcome.desired.uid
        is_other_record = outcome.is_record_refused
        self._track_refusals(outcome)
        if outcome.error is not None:
            self._inputs.write_failed(uid, outcome.error)
        if outcome.result != WriteResult.FAILED:
            issued_at = self._issued_at.pop(uid, None)
            if outcome.result in {WriteResult.WRITTEN, WriteResult.UNCHANGED}:
                if issued_at is not None and outcome.result == WriteResult.WRITTEN:
                    self._on_written(monotonic() - issued_at)
                self._inputs.marks_written(uid, outcome.desired.record)
                is_other_record = self._cluster.record_accepted(uid)
            else:
                self._inputs.marks_failed(uid)
                logger.warning(
                    "cannot mark the Node", extra={"node": outcome.desired.name, "reason": outcome.reason}
                )
        if outcome.is_record_refused and uid in self._cluster.nodes:
            self._cluster.record_refused(uid, outcome.desired.record, outcome.reason)
        if outcome.node is not None and uid in self._cluster.nodes:
            self.watches.node_changed(outcome.node)
        # The watch may have delivered the Node before the response did: then nothing of it has changed.
        if is_other_record and uid in self._cluster.nodes:
            self._inputs.marks_observed(uid, self._cluster.observe_again(uid))

    def _track_refusals(self, outcome: WriteOutcome) -> None:
        """Record since when the API server forbids writes of Nodes. Other errors concern one Node or pass,
        and so may a denial by an admission webhook or policy.
        """
        now = monotonic()
        if outcome.result == WriteResult.WRITTEN:
            self._write_problem = None
            self._denied.clear()
        elif outcome.status == _FORBIDDEN:
            recent = {uid: at for uid, at in self._denied.items() if now - at < _REFUSAL_LASTS}
            self._denied = recent | {outcome.desired.uid: now}
            if not outcome.lacks_right and len(self._denied) < _MANY_DENIED:
                return
            self._refused_at = now
            since = self._refused_at if self._write_problem is None else self._write_problem.since
            self._write_problem = ApiProblem(since, outcome.reason)

    def _begin_session(self) -> None:
        leader = Leader(
            self._api,
            self._lease,
            self._pod,
            self._cluster,
            self._marks_written,
            self._inputs.write_failed,
            writes_conditions=lambda: self._fleet.policy.marks.condition,
        )
        leader.add_existing(self.watches.rules.values(), self.watches.incidents.values())
        leader.incidents.set_desired(self._fleet.all_incidents(), 0.0)
        self.watches.leader = leader

    async def _end_session(self, leader: Leader) -> None:
        self.watches.leader = None
        self._write_problem = None
        self._denied.clear()
        self._cluster.drop_issued()
        self._inputs.leadership_lost()
        self._issued_at.clear()
        self._unaccepted.clear()
        await leader.stop()
        logger.info("stopped all writes", extra={"epoch": leader.epoch})

    async def _send_rejected(self, leader: Leader, message: str) -> None:
        try:
            leader.send_event(
                await pod_warning(self._api, self._namespace, self._pod, "NodeguardPolicyInvalid", message)
            )
        except ApiError as error:
            logger.warning("cannot send the Event about the invalid policy", extra={"error": error.message})


def _raise_failure(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Raise the exception of the first task that failed."""
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error


class _BackgroundTasks:
    """The tasks that run. A failed task stays in the list until its exception is raised."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a task."""
        self._tasks = [
            task for task in self._tasks if not task.done() or task.cancelled() or task.exception()
        ]
        self._tasks.append(asyncio.create_task(work))

    def raise_failure(self) -> None:
        """Raise the exception of the first task that failed."""
        _raise_failure(self._tasks)

    async def stop(self) -> None:
        """Cancel all tasks, and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
