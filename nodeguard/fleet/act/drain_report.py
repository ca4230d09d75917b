"""Reports of drains: what each candidate and each running drain waits for, for views and metrics. Pure."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.model.pod import PodGroupKey, PodKey


class DrainState(StrEnum):
    """The state of a drain that is not finished. `would-drain`: the policy only observes. `waits`: its reason
    forbids it for now. `announced`: its pods have notice. `running`: it is recorded, and its pods leave.
    """

    WOULD_DRAIN = "would-drain"
    WAITS = "waits"
    ANNOUNCED = "announced"
    RUNNING = "running"


class DrainReport(Struct, frozen=True):
    """A candidate or a running drain of one node."""

    node: str
    uid: str
    """Of the Node."""
    resource: str
    """The faulty target, a GPU or `node`; empty for a running drain with a fault that has ended."""
    checks: tuple[str, ...]
    """The checks of its findings, worst first."""
    since: float
    """When its quarantine began; of a drain with a fault that has ended, when it was recorded. In seconds
    since the epoch."""
    state: DrainState
    reason: str = ""
    """Why it waits, or what a running drain waits for; empty for nothing. Of a dry run, the notice that the
    pods would get first."""
    pods: tuple[PodKey, ...] = ()
    """The pods that leave, as far as they are known."""
    pod_groups: tuple[PodGroupKey, ...] = ()
    """PodGroups of which all pods leave, also those on other nodes."""
    remaining: tuple[str, ...] | None = None
    """Uids of the pods of a running drain that are not gone; None if they were not read."""
    evict_at: float = 0.0
    """The time of the notice, in seconds since the epoch; 0 without one."""
    limited_until: float = 0.0
    """When the limit of an hour that is its reason allows it, if no other drain begins, in seconds since the
    epoch; 0 for another reason."""
    job_reasons: tuple[tuple[str, str], ...] = ()
    """What the pods of a running drain that are left wait for, by job; empty if they are of one job."""
    costs: tuple[str, ...] = ()
    """Of a dry run and of a notice: the Jobs that would fail with the evictions, each with its reason."""

    @property
    def left(self) -> int | None:
        """Return how many of the pods of a running drain are not gone; None if they were not read."""
        return None if self.remaining is None else len(self.remaining)
