"""A model of the API server, the disruption controller and kubelets for pods, budgets, evictions and notices, in
virtual time.

test_model_pods.py compares it with the real ones. It has no pods that finished.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from nodeguard.model.eviction import DrainEvent, Eviction, EvictionState, NodeDrain, PodNotice
from nodeguard.model.job import JobRetries
from nodeguard.model.label_selector import LabelSelector, Requirement
from nodeguard.model.pod import DisruptionBudget, NodePod, PodGroupKey, PodKey

# Seconds from an eviction that a budget allowed until the controller counts a pod again that is still there.
_DISRUPTED_FOR = 120.0


class ModelBudget(Struct):
    """A PodDisruptionBudget. minimum: pods that stay. always_allows: its policy for pods that are not ready is
    AlwaysAllow, else IfHealthyBudget. allowed, healthy: of its status. disrupted: names of pods that the eviction
    API has counted and that the controller has not seen end, each with the time.
    """

    namespace: str
    name: str
    labels: dict[str, str]
    minimum: int
    always_allows: bool = False
    allowed: int = 0
    healthy: int = 0
    disrupted: dict[str, float] = field(default_factory=dict)

    def selects(self, pod: NodePod) -> bool:
        return self.namespace == pod.key.namespace and self.labels.items() <= pod.labels.items()

    @property
    def frees_unready(self) -> bool:
        return self.always_allows or self.healthy >= self.minimum > 0


class ModelPods:
    """The pods of a cluster by uid, each with its node; a DrainCluster. grace: seconds from an eviction until a
    pod is gone. evicted: uids of the pods that the eviction API ended, each with the time. whole: PodGroups with
    `disruptionMode: all`.
    """

    def __init__(self, now: float, grace: float) -> None:
        self.now, self.grace = now, grace
        self.pods: dict[str, tuple[str, NodePod]] = {}
        self.ends: dict[str, float] = {}
        self.evicted: dict[str, float] = {}
        self.budgets: list[ModelBudget] = []
        self.whole: set[PodGroupKey] = set()
        self._version = 0

    def create(self, node: str, namespace: str, name: str, **fields: Any) -> str:
        """Create a pod that runs and is ready, with a new uid, which is returned."""
        self._version += 1
        key = PodKey(namespace, name, f"{name}-{self._version}")
        self.pods[key.uid] = (node, NodePod(key, f"{self._version}", node, **fields))
        return key.uid

    def change(self, uid: str, **fields: Any) -> None:
        """Change a pod, which gets a new resourceVersion."""
        self._version += 1
        node, pod = self.pods[uid]
        self.pods[uid] = (node, replace(pod, version=f"{self._version}", **fields))

    def protect(
        self, namespace: str, name: str, labels: dict[str, str], minimum: int, *, always_allows: bool = False
    ) -> ModelBudget:
        """Create a disruption budget."""
        budget = ModelBudget(namespace, name, labels, minimum, always_allows)
        self.budgets.append(budget)
        return budget

    def sync(self) -> None:
        """Let the kubelets end pods, and the controller count those that are healthy."""
        for uid in [uid for uid, end in self.ends.items() if end <= self.now]:
            del self.ends[uid], self.pods[uid]
        running = {pod.key.name: pod for _, pod in self.pods.values() if not pod.is_terminating}
        for budget in self.budgets:
            budget.disrupted = {
                name: since
                for name, since in budget.disrupted.items()
                if name in running and self.now - since < _DISRUPTED_FOR
            }
            budget.healthy = sum(
                budget.selects(pod) and pod.is_ready and name not in budget.disrupted
                for name, pod in running.items()
            )
            budget.allowed = max(0, budget.healthy - budget.minimum)

    async def node_pods(self, node: str) -> tuple[NodePod, ...]:
        return tuple(pod for place, pod in self.pods.values() if place == node)

    async def with_claims(self, node: str, pods: Collection[NodePod]) -> tuple[NodePod, ...]:
        return tuple(pods)

    async def leaves_whole(self, group: PodGroupKey) -> bool:
        return group in self.whole

    async def group_pods(
        self, groups: Collection[PodGroupKey], recorded: Collection[PodKey] | None = None
    ) -> tuple[NodePod, ...]:
        found = (pod for _, pod in self.pods.values() if pod.group in groups)
        return tuple(pod for pod in found if recorded is None or pod.key in recorded)

    async def job_retries(self, namespace: str, name: str) -> JobRetries:
        raise AssertionError(namespace, name)

    async def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        return tuple(
            DisruptionBudget(
                namespace,
                budget.name,
                _selector(budget.labels),
                budget.allowed,
                frees_unready=budget.frees_unready,
            )
            for budget in self.budgets
            if budget.namespace == namespace
        )

    def record(self, event: DrainEvent) -> None:
        """Do nothing: there are no Nodes."""

    def show(self, drains: Collection[NodeDrain]) -> None:
        """Do nothing: there are no Nodes."""

    async def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        return self.answer_notice(pod, notice, is_dry_run=is_dry_run)

    async def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        return self.answer_eviction(pod, is_dry_run=is_dry_run)

    def answer_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        """Answer as the API server: a merge patch that names the uid."""
        stored = self._named(pod.key)
        if stored is None:
            return Eviction(EvictionState.GONE, "no such pod")
        if stored.key.uid != pod.key.uid:
            return Eviction(EvictionState.GONE, "another pod")
        if not is_dry_run and stored.drain_at != notice.drain_at:
            self.change(stored.key.uid, drain_at=notice.drain_at)
        return Eviction(EvictionState.ACCEPTED)

    def answer_eviction(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        """Answer as the API server: it judges and uses the budget before it compares the preconditions."""
        stored = self._named(pod.key)
        if stored is None:
            return Eviction(EvictionState.GONE, "no such pod")
        uid = stored.key.uid
        budgets = [budget for budget in self.budgets if budget.selects(stored)]
        if stored.is_terminating or not stored.has_started:
            budgets = []
        if len(budgets) > 1:
            return Eviction(EvictionState.FORBIDDEN, "more than one PodDisruptionBudget")
        version = stored.version
        for budget in budgets:
            if budget.frees_unready and not stored.is_ready:
                # The API server replaces the resourceVersion of the request with the stored one.
                version = pod.version
                continue
            if budget.allowed < 1:
                return Eviction(
                    EvictionState.REFUSED, f"the disruption budget {budget.name} does not allow it"
                )
            if not is_dry_run:
                budget.allowed -= 1
                budget.disrupted[stored.key.name] = self.now
        if uid != pod.key.uid or not (is_dry_run or version == pod.version):
            return Eviction(EvictionState.CHANGED, "the pod has changed")
        if not is_dry_run and not stored.is_terminating:
            self.evicted[uid] = self.now
            self.change(uid, is_terminating=True, is_evicted=True)
            self.ends[uid] = self.now + self.grace
        return Eviction(EvictionState.ACCEPTED)

    def _named(self, key: PodKey) -> NodePod | None:
        names = {(pod.key.namespace, pod.key.name): pod for _, pod in self.pods.values()}
        return names.get((key.namespace, key.name))


def _selector(labels: dict[str, str]) -> LabelSelector:
    return LabelSelector(tuple(Requirement(key, frozenset({value})) for key, value in labels.items()))
