"""Schema of what became of the jobs that a fault hit."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class JobState(StrEnum):
    """What a drain does with the pods of a job. `stays`: it evicts none of them for now. `leaves`: it evicts
    them. `evicted`: all of them are gone. `partly-evicted`: the drain failed, and some of them were left.
    `unknown`: the drain ended, and it is not known how many of them are gone.
    """

    STAYS = "stays"
    LEAVES = "leaves"
    EVICTED = "evicted"
    PARTLY_EVICTED = "partly-evicted"
    UNKNOWN = "unknown"


class RejectedPodsView(Struct, frozen=True):
    """Pods that the kubelet of a node rejected since a fatal fault began (`UnexpectedAdmissionError`), as its
    device plugin could not give them their devices.
    """

    count: int
    """Number of the pods; 500 for 500 or more."""
    latest: str
    """When the latest one was created; empty if that was not read."""
    age: float
    """Seconds since then; 0 if it was not read."""
    message: str
    """The message of the kubelet about it; empty if that was not read."""


class JobOutcomeView(Struct, frozen=True):
    """What one drain does with the pods of a job."""

    job: str
    """Name of the job."""
    node: str
    """Node of the drain: a gang that leaves whole loses its pods on other nodes, too."""
    state: JobState
    pods: int
    """Its pods that the drain evicts, or would evict; 0 if these were not read."""
    gone: int | None
    """How many of them are gone; null if that is not known, as on a replica that does not lead."""
    since: str
    """When the first pod of the drain was evicted; empty before."""
    age: float
    """Seconds since then; 0 before."""
    reason: str
    """Why its pods stay, what a running drain waits for, or how a failed one ended; empty for none."""
    action: str
    """Name of the NodeAction of the drain; empty for none."""
