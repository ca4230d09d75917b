"""A cluster with pods, disruption budgets and stored actions, and replicas of the aggregator that drain it: what
random histories of drains are made of.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any, cast

from nodeguard.aggregator.actions.drain_queue import DrainFleet
from nodeguard.aggregator.actions.drains import DrainRunner
from nodeguard.aggregator.actions.loop import ActionBackend, ActionLoop
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.drains import limited_drains
from nodeguard.fleet.planner import Planner
from nodeguard.model.action import NodeAction
from nodeguard.model.action_store import ActionStoreError
from nodeguard.model.drain import DrainMode, DrainPolicy
from nodeguard.model.eviction import DrainEvent, Eviction, EvictionState, NodeDrain, PodNotice, PodReadError
from nodeguard.model.instant import Instant
from nodeguard.model.job import JobRetries
from nodeguard.model.pod import DisruptionBudget, NodePod, PodGroupKey, PodKey
from tests.aggregator.actions.replicas import ActionReader, FleetDouble, KilledError, observed_action
from tests.kube.model_api import ModelApi
from tests.kube.model_pods import ModelPods

NODE, OTHER = "uid-0", "uid-1"
GANG = {"app": "gang"}
GRACE = 20.0
LIMIT = 120.0


class PodCluster:
    """Pods and one disruption budget in the compared model of a control plane, and the stored actions.

    evicted: uids of the pods that the eviction API ended, each with the time. minimum: of the budget; allowed: of its
    status, which a controller updates. nodes: uids of the Nodes. whole: PodGroups with `disruptionMode: all`. holds:
    the reasons, by node. quarantined: those with a recorded quarantine, also without a candidate. unread: those of
    which the latest report does not show whether a fault goes on. notices: the writes of notices, with time, name of
    the pod, and the time in it. objects_of_events: Events on Nodes, by key. jobs: those of which the costs are asked, by namespace and name.
    """

    def __init__(self) -> None:
        self.model = ModelPods(1_800_000_000.0, GRACE)
        self.budget = self.model.protect("team-a", "gang", GANG, 0)
        self.api = ModelApi()
        self.notices: list[tuple[float, str, str]] = []
        self.holds: dict[str, str] = {}
        self.shown: tuple[NodeDrain, ...] = ()
        self.objects_of_events: dict[str, DrainEvent] = {}
        self.mode = DrainMode.ENFORCE
        self.finish_within = LIMIT
        self.candidates: dict[str, DrainCandidate] = {}
        self.nodes = {NODE, OTHER}
        self.quarantined = {NODE, OTHER}
        self.unread: set[str] = set()
        self.jobs: dict[tuple[str, str], JobRetries] = {}
        for number in range(4):
            self.create(NODE, f"gang-{number}", "GPU-0", GANG)
        self.create(NODE, "neighbour", "GPU-1", {})
        self.create(OTHER, "single", "GPU-0", {})
        self.sync()

    @property
    def now(self) -> float:
        return self.model.now

    @now.setter
    def now(self, now: float) -> None:
        self.model.now = now

    @property
    def pods(self) -> dict[str, tuple[str, NodePod]]:
        return self.model.pods

    @pods.setter
    def pods(self, pods: dict[str, tuple[str, NodePod]]) -> None:
        self.model.pods = pods

    @property
    def ends(self) -> dict[str, float]:
        return self.model.ends

    @property
    def evicted(self) -> dict[str, float]:
        return self.model.evicted

    @property
    def whole(self) -> set[PodGroupKey]:
        return self.model.whole

    @whole.setter
    def whole(self, whole: set[PodGroupKey]) -> None:
        self.model.whole = whole

    @property
    def minimum(self) -> int:
        return self.budget.minimum

    @minimum.setter
    def minimum(self, minimum: int) -> None:
        self.budget.minimum = minimum

    @property
    def allowed(self) -> int:
        return self.budget.allowed

    @allowed.setter
    def allowed(self, allowed: int) -> None:
        self.budget.allowed = allowed

    def create(
        self, node: str, name: str, gpu: str, labels: dict[str, str], namespace: str = "team-a", **more: Any
    ) -> None:
        """Create a pod that runs, with a new uid."""
        fields = {"gpu_ids": (gpu,), "labels": labels, "controller": "ReplicaSet", **more}
        self.model.create(node, namespace, name, **fields)

    def change(self, uid: str, **fields: Any) -> None:
        """Change a pod, which gets a new resourceVersion."""
        self.model.change(uid, **fields)

    def sync(self) -> None:
        """Let the controller of budgets and the kubelets work."""
        self.model.sync()

    def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        """Answer as the API server."""
        return self.model.answer_eviction(pod, is_dry_run=is_dry_run)

    def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        """Answer as the API server."""
        response = self.model.answer_notice(pod, notice, is_dry_run=is_dry_run)
        if response.state == EvictionState.ACCEPTED and not is_dry_run:
            self.notices.append((self.now, pod.key.name, notice.drain_at))
        return response

    @property
    def events(self) -> list[DrainEvent]:
        """The Events on Nodes, of which the API server has one of each name."""
        return list(self.objects_of_events.values())

    def stored(self) -> list[NodeAction]:
        decoded = [observed_action(stored).action for stored in self.api.objects.values()]
        return [action for action in decoded if action is not None]


class _Session:
    """The DrainCluster of one term of a leader."""

    def __init__(self, replica: DrainReplica) -> None:
        self._replica = replica

    async def node_pods(self, node: str) -> tuple[NodePod, ...]:
        return await self._replica.node_pods(node)

    async def with_claims(self, node: str, pods: Collection[NodePod]) -> tuple[NodePod, ...]:
        return await self._replica.with_claims(node, pods)

    async def leaves_whole(self, group: PodGroupKey) -> bool:
        return await self._replica.leaves_whole(group)

    async def group_pods(
        self, groups: Collection[PodGroupKey], recorded: Collection[PodKey] | None = None
    ) -> tuple[NodePod, ...]:
        return await self._replica.group_pods(groups, recorded)

    async def job_retries(self, namespace: str, name: str) -> JobRetries:
        return await self._replica.job_retries(namespace, name)

    async def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        return await self._replica.disruption_budgets(namespace)

    async def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        return await self._replica.evict(pod, is_dry_run=is_dry_run)

    async def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        return await self._replica.write_notice(pod, notice, is_dry_run=is_dry_run)

    def record(self, event: DrainEvent) -> None:
        self._replica.record(event)

    def show(self, drains: Collection[NodeDrain]) -> None:
        self._replica.show(drains)


class DrainReplica(ActionReader):
    """One process of an aggregator: it reads actions and candidates as late as the history wants. Its lists of
    pods are as new as their requests.
    """

    def __init__(self, world: PodCluster, planner: Planner | None = None, ahead: float = 0.0) -> None:
        """planner: the limits of drains are those of its fleet; None for no limits. ahead: seconds by which the
        wall clock of the replica is ahead.
        """
        super().__init__(world.api)
        self.world = world
        self.ahead = ahead
        self.fault: tuple[int, str] = (-1, "")
        self.is_killed = False
        self._session: _Session | None = None
        self.candidates: dict[str, DrainCandidate] = {}
        self._fleet = FleetDouble(world.nodes)
        self.read()
        self.runner = DrainRunner(
            DrainFleet(
                lambda: DrainPolicy(mode=world.mode, finish_within=world.finish_within),
                lambda _: list(self.candidates.values()),
                lambda ready, age, use: (
                    limited_drains(planner, self.action_store.actions(), ready, age, use)
                    if planner is not None
                    else ready
                ),
                lambda name: world.holds.get(name, ""),
                lambda action: action.uid in world.unread,
            ),
            self.action_store,
            lambda: self._session,
            now=self._now,
        )
        self.loop = ActionLoop(
            cast("ActionBackend", self),
            InstructionOutbox(),
            cast("Planner", self._fleet),
            self.runner,
            may_write=lambda: self.is_leader,
            now=self._now,
        )

    def _now(self) -> Instant:
        return Instant(self.world.now + self.ahead, self.world.now, "")

    @property
    def wall(self) -> float:
        """The time by its clock."""
        return self._now().wall

    @property
    def is_leader(self) -> bool:
        return self._session is not None

    @is_leader.setter
    def is_leader(self, is_leader: bool) -> None:
        self._session = (self._session or _Session(self)) if is_leader else None

    def decisions(self) -> dict[str, Any]:
        return {}

    open_decisions = decisions

    def read(self) -> None:
        """Read the candidates and the marks as they are now."""
        self.candidates = dict(self.world.candidates)
        self._fleet.quarantined = set(self.world.quarantined)

    def catch_up(self) -> None:
        self.read()
        self.watch(len(self.world.api.history))

    async def loop_turn(self) -> None:
        """Store what is due. Raises KilledError."""
        with suppress(ActionStoreError):
            await self.loop.turn()

    async def node_pods(self, node: str) -> tuple[NodePod, ...]:
        if self._fault() in {"lost request", "lost response"}:
            raise PodReadError("no response")
        return tuple(pod for place, pod in self.world.pods.values() if place == node)

    async def with_claims(self, node: str, pods: Collection[NodePod]) -> tuple[NodePod, ...]:
        return tuple(pods)

    async def leaves_whole(self, group: PodGroupKey) -> bool:
        if self._fault() in {"lost request", "lost response"}:
            raise PodReadError("no response")
        return group in self.world.whole

    async def group_pods(
        self, groups: Collection[PodGroupKey], recorded: Collection[PodKey] | None = None
    ) -> tuple[NodePod, ...]:
        if groups and self._fault() in {"lost request", "lost response"}:
            raise PodReadError("no response")
        return await self.world.model.group_pods(groups, recorded)

    async def job_retries(self, namespace: str, name: str) -> JobRetries:
        return self.world.jobs[namespace, name]

    async def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        if self._fault() in {"lost request", "lost response"}:
            raise PodReadError("no response")
        return await self.world.model.disruption_budgets(namespace)

    async def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        fault = self._fault()
        if fault == "lost request":
            return Eviction(EvictionState.UNKNOWN, "no response")
        if not is_dry_run:
            self._check_recorded(pod)
        response = self.world.evict(pod, is_dry_run=is_dry_run)
        if fault == "killed after":
            self.is_killed = True
            raise KilledError
        return Eviction(EvictionState.UNKNOWN, "no response") if fault == "lost response" else response

    async def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        fault = self._fault()
        if fault == "lost request":
            return Eviction(EvictionState.UNKNOWN, "no response")
        response = self.world.write_notice(pod, notice, is_dry_run=is_dry_run)
        if fault == "killed after":
            self.is_killed = True
            raise KilledError
        return Eviction(EvictionState.UNKNOWN, "no response") if fault == "lost response" else response

    def record(self, event: DrainEvent) -> None:
        self.world.objects_of_events.setdefault(event.key, event)

    def show(self, drains: Collection[NodeDrain]) -> None:
        self.world.shown = tuple(drains)

    def _check_recorded(self, pod: NodePod) -> None:
        """Check that the pod belongs to a drain of which the begin is stored."""
        recorded = {key.uid for action in self.world.stored() if action.begun_at for key in action.pods}
        assert pod.key.uid in recorded, "an eviction without a record of its begin"
        assert pod.key.name != "neighbour", "a pod that holds no faulty GPU"

    def _fault(self) -> str:
        if self.is_killed:
            raise KilledError
        left, fault = self.fault
        self.fault = (left - 1, fault)
        if left == 0 and fault == "killed before":
            self.is_killed = True
            raise KilledError
        return fault if left == 0 else ""


def candidate(node: str, since: float) -> DrainCandidate:
    """Return the candidate of the first GPU of a node. The world names nodes by their uid."""
    return DrainCandidate(node, node, "gpu/0000:1b:00", since, ("gpu-lost",), ("GPU-0",))


def unfinished(actions: Collection[NodeAction]) -> list[NodeAction]:
    return [action for action in actions if not action.state.is_finished]
