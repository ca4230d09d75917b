"""The pods of a node for the command drain, and the runs of the command."""

from __future__ import annotations

from collections.abc import Callable, Collection

from nodeguard.model.eviction import DrainEvent, Eviction, EvictionState, NodeDrain, PodNotice, PodReadError
from nodeguard.model.job import JobRetries
from nodeguard.model.pod import DisruptionBudget, NodePod, PodGroupKey, PodKey

Command = Callable[..., str]


class Pods:
    """The pods of each node, as the leader reads and evicts them. refusal: of each dry run; empty for none. busy: the
    seconds after which the API server accepts a dry run; 0 for now.
    """

    def __init__(self) -> None:
        keys = (PodKey("team-a", f"train-{number}", f"uid-{number}") for number in range(3))
        ids = (("GPU-1",), ("GPU-1",), ("GPU-2",))
        self.pods = tuple(
            NodePod(key, "1", gpu_ids=gpus, controller="Job", batch_job="train")
            for key, gpus in zip(keys, ids, strict=True)
        )
        self.budgets: tuple[DisruptionBudget, ...] = ()
        self.job = JobRetries("team-a", "train", failed=0, limit=6)
        self.refusal = self.error = self.job_error = ""
        self.busy = 0.0

    async def node_pods(self, node: str) -> tuple[NodePod, ...]:
        assert node == "node-0"
        if self.error:
            raise PodReadError(self.error)
        return self.pods

    async def with_claims(self, node: str, pods: Collection[NodePod]) -> tuple[NodePod, ...]:
        return tuple(pods)

    async def leaves_whole(self, group: PodGroupKey) -> bool:
        raise AssertionError(group)

    async def group_pods(
        self, groups: Collection[PodGroupKey], recorded: Collection[PodKey] | None = None
    ) -> tuple[NodePod, ...]:
        raise AssertionError(groups)

    async def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        assert namespace == "team-a"
        return self.budgets

    async def job_retries(self, namespace: str, name: str) -> JobRetries:
        assert (namespace, name) == (self.job.namespace, self.job.name)
        if self.job_error:
            raise PodReadError(self.job_error)
        return self.job

    async def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        assert is_dry_run
        if self.busy:
            return Eviction(EvictionState.FAILED, "too many requests", self.busy)
        state = EvictionState.REFUSED if self.refusal else EvictionState.ACCEPTED
        return Eviction(state, self.refusal)

    async def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        raise AssertionError(pod, notice, is_dry_run)

    def record(self, event: DrainEvent) -> None:
        raise AssertionError(event)

    def show(self, drains: Collection[NodeDrain]) -> None:
        raise AssertionError(drains)
