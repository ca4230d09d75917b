"""Evictions: the interface between a drain and the pods of a cluster."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from nodeguard.model.job import JobRetries
from nodeguard.model.pod import DisruptionBudget, NodePod, PodGroupKey, PodKey


class EvictionState(StrEnum):
    """The response to an eviction.

    `accepted`: the pod ends; of a dry run, it would. `gone`: there is no such pod. `changed`: it is another
    pod of that name, or changed since it was read. `refused`: a disruption budget forbids it now. `failed`:
    the request failed, and a later one may succeed. `unknown`: the response was lost or is an error of the
    server, so the pod may have been evicted. `forbidden`: no later request will succeed, such as without the
    right, or with two budgets.
    """

    ACCEPTED = "accepted"
    GONE = "gone"
    CHANGED = "changed"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"
    FORBIDDEN = "forbidden"


class Eviction(Struct, frozen=True):
    """The response to an eviction, with its reason for people."""

    state: EvictionState
    message: str = ""
    retry_after: float = 0.0
    """Seconds after which the request may be sent again, as the API server asks for it, or did not answer; 0
    for a lasting answer."""


class PodNotice(Struct, frozen=True):
    """The notice that a pod is to have."""

    drain_at: str
    """RFC 3339 time before which it is not evicted; empty to remove the notice."""
    message: str
    """Of the Event that reports the change to the owner of the pod."""


class NodeDrain(Struct, frozen=True):
    """A drain of all pods of a Node that use GPUs, as the Node shows it."""

    uid: str
    """Of the Node."""
    node: str
    pods: int
    """How many pods it evicts."""
    left: int | None
    """How many of them are left; None if they were not read yet."""
    is_done: bool


class DrainEvent(Struct, frozen=True):
    """An Event about a drain, for its Node."""

    node: str
    uid: str
    """Of the Node."""
    key: str
    """Identifies it: a leader that does not know whether an earlier one sent it sends it again."""
    at: int
    """When the drain began or ended, in seconds since the epoch."""
    reason: str
    message: str
    is_warning: bool


class PodReadError(Exception):
    """Pods, claims, PodGroups or disruption budgets cannot be read. The message has the reason and remedy.
    retry_after: as of an Eviction.
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DrainCluster(Protocol):
    """What a drain reads and does in a cluster. Each request needs the lease of the leader."""

    async def node_pods(self, node: str) -> tuple[NodePod, ...]:
        """Return the pods of a Node, by its name, that are not finished, as they are stored now: one that is
        missing has ended. Raises PodReadError.
        """

    async def with_claims(self, node: str, pods: Collection[NodePod]) -> tuple[NodePod, ...]:
        """Return some pods of a Node with the GPUs of their ResourceClaims, as far as these can be known.
        Raises PodReadError.
        """

    async def leaves_whole(self, group: PodGroupKey) -> bool:
        """Return whether the pods of a PodGroup may be disrupted only together: its `disruptionMode` is
        `all`. Raises PodReadError.
        """

    async def group_pods(
        self, groups: Collection[PodGroupKey], recorded: Collection[PodKey] | None = None
    ) -> tuple[NodePod, ...]:
        """Return the pods of some PodGroups that are not finished, on all nodes, as they are stored now.
        recorded: the only ones that are needed, others may be missing; None for all. Raises PodReadError.
        """

    async def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        """Return the disruption budgets of a namespace as they are stored now. Raises PodReadError."""

    async def job_retries(self, namespace: str, name: str) -> JobRetries:
        """Return the failures that a Job survives. Raises PodReadError."""

    async def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        """Evict a pod, if it has not changed since it was read. is_dry_run: only ask whether the pod of its
        uid may be evicted.
        """

    async def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        """Write or remove the notice of a pod, if it is still the one of its uid. is_dry_run: only ask
        whether it is allowed. Returns the response as for an eviction, `gone` for another pod of its name.
        """

    def record(self, event: DrainEvent) -> None:
        """Record an Event on the Node of a drain."""

    def show(self, drains: Collection[NodeDrain]) -> None:
        """Show some drains on their Nodes, and no other drain on any Node."""
