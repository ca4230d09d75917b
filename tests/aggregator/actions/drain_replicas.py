"""A cluster with pods, disruption budgets and stored actions, and replicas of the aggregator that drain it: what
random histories of drains are made of.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_queue import DrainFleet
from nodeguard.aggregator.actions.drains import DrainRunner
from nodeguard.aggregator.actions.loop import ActionBackend, ActionLoop
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.drains import limited_drains
from nodeguard.fleet.planner import Planner
from nodeguard.kube.action_object import decode_action
from nodeguard.model.action import NodeAction
from nodeguard.model.action_store import ActionStoreError
from nodeguard.model.drain import DrainMode, DrainPolicy
from nodeguard.model.eviction import Eviction, EvictionState, NodeDrain, PodNotice, PodReadError
from nodeguard.model.instant import Instant
from nodeguard.model.label_selector import LabelSelector, Requirement
from nodeguard.model.pod import DisruptionBudget, NodePod, PodGroupKey, PodKey
from tests.aggregator.actions.replicas import ActionReader, FleetDouble, KilledError
from tests.kube.model_api import ModelApi

NODE, OTHER = "uid-0", "uid-1"
GANG = {"app": "gang"}
GRACE = 20.0
LIMIT = 120.0


class PodCluster:
    """Pods, one disruption budget, and the stored actions. evicted: uids of the pods that the eviction API ended,
    each with the time. minimum: of the budget; allowed: of its status, which a controller updates. nodes: uids of the
    Nodes. whole: PodGroups with `disruptionMode: all`. holds: the reasons, by node. quarantined: those with a recorded quarantine, also without a candidate.
    unread: those of which the latest report does not show whether a fault goes on.
    notices: the writes of notices, with time, name of the pod, and the time in it.
    """

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.api = ModelApi()
        self.pods: dict[str, tuple[str, NodePod]] = {}
        self.ends: dict[str, float] = {}
        self.evicted: dict[str, float] = {}
        self.notices: list[tuple[float, str, str]] = []
        self.minimum = 0
        self.allowed = 0
        self.whole: set[PodGroupKey] = set()
        self.holds: dict[str, str] = {}
        self.shown: tuple[NodeDrain, ...] = ()
        self.mode = DrainMode.ENFORCE
        self.candidates: dict[str, DrainCandidate] = {}
        self.nodes = {NODE, OTHER}
        self.quarantined = {NODE, OTHER}
        self.unread: set[str] = set()
        self._version = 0
        for number in range(4):
            self.create(NODE, f"gang-{number}", "GPU-0", GANG)
        self.create(NODE, "neighbour", "GPU-1", {})
        self.create(OTHER, "single", "GPU-0", {})
        self.sync()

    def create(self, node: str, name: str, gpu: str, labels: dict[str, str], **more: Any) -> None:
        """Create a pod that runs, with a new uid."""
        self._version += 1
        key = PodKey("team-a", name, f"{name}-{self._version}")
        pod = NodePod(
            key, f"{self._version}", node, gpu_ids=(gpu,), labels=labels, controller="ReplicaSet", **more
        )
        self.pods[key.uid] = (node, pod)

    def change(self, uid: str, **fields: Any) -> None:
        """Change a pod, which gets a new resourceVersion."""
        self._version += 1
        node, pod = self.pods[uid]
        self.pods[uid] = (node, replace(pod, version=f"{self._version}", **fields))

    def sync(self) -> None:
        """Let the controller of budgets and the kubelets work."""
        for uid in [uid for uid, end in self.ends.items() if end <= self.now]:
            del self.ends[uid], self.pods[uid]
        healthy = [pod for _, pod in self.pods.values() if pod.labels and not pod.is_terminating]
        self.allowed = max(0, len(healthy) - self.minimum)

    def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        """Answer as the API server: it judges the budget before the preconditions."""
        stored = next((item for _, item in self.pods.values() if item.key.name == pod.key.name), None)
        if stored is None:
            return Eviction(EvictionState.GONE)
        if stored.labels and not stored.is_terminating and self.allowed < 1:
            return Eviction(EvictionState.REFUSED, "the budget does not allow it")
        if (stored.key.uid, stored.version) != (pod.key.uid, pod.version):
            return Eviction(EvictionState.CHANGED, "the pod has changed")
        if not is_dry_run and not stored.is_terminating:
            self.allowed -= bool(stored.labels)
            self.evicted[stored.key.uid] = self.now
            self.change(stored.key.uid, is_terminating=True, is_evicted=True)
            self.ends[stored.key.uid] = self.now + GRACE
        return Eviction(EvictionState.ACCEPTED)

    def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        """Answer as the API server: a merge patch that names the uid."""
        if pod.key.uid not in self.pods:
            return Eviction(EvictionState.GONE)
        if not is_dry_run:
            self.notices.append((self.now, pod.key.name, notice.drain_at))
            if self.pods[pod.key.uid][1].drain_at != notice.drain_at:
                self.change(pod.key.uid, drain_at=notice.drain_at)
        return Eviction(EvictionState.ACCEPTED)

    def stored(self) -> list[NodeAction]:
        decoded = [decode_action(msgspec.json.encode(item)).action for item in self.api.objects.values()]
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

    async def group_pods(self, groups: Collection[PodGroupKey]) -> tuple[NodePod, ...]:
        return await self._replica.group_pods(groups)

    async def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        return await self._replica.disruption_budgets(namespace)

    async def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        return await self._replica.evict(pod, is_dry_run=is_dry_run)

    async def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        return await self._replica.write_notice(pod, notice, is_dry_run=is_dry_run)

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
                lambda: DrainPolicy(mode=world.mode, finish_within=LIMIT),
                lambda _: list(self.candidates.values()),
                lambda ready, age: (
                    limited_drains(planner, self.action_store.actions(), ready, age)
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

    async def group_pods(self, groups: Collection[PodGroupKey]) -> tuple[NodePod, ...]:
        if groups and self._fault() in {"lost request", "lost response"}:
            raise PodReadError("no response")
        return tuple(pod for _, pod in self.world.pods.values() if pod.group in groups)

    async def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        if self._fault() in {"lost request", "lost response"}:
            raise PodReadError("no response")
        selector = LabelSelector((Requirement("app", frozenset({"gang"})),))
        return (DisruptionBudget(namespace, "gang", selector, self.world.allowed),)

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
