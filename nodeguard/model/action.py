"""Actions: durable records of what is done beyond marks; `nodeactions.nodeguard.dev` in Kubernetes."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

from msgspec import Struct

from nodeguard.model.pod import PodGroupKey, PodKey

# Pods that one drain evicts at most.
MAX_PODS = 500


class ActionKind(StrEnum):
    """What an action does. `Clear`: the node's agent clears findings. `DetachGpus`: it closes its handles of
    GPUs for a time, or reads them again. `Drain`: the aggregator evicts the pods that use faulty hardware.
    `DrainNotice`: it announces that to the pods.
    """

    CLEAR = "Clear"
    DETACH_GPUS = "DetachGpus"
    DRAIN = "Drain"
    DRAIN_NOTICE = "DrainNotice"

    @property
    def slug(self) -> str:
        """Return the kind as in options and tables: `detach-gpus`."""
        return "".join(f"-{sign.lower()}" if sign.isupper() else sign for sign in self.value).lstrip("-")

    @property
    def is_for_agent(self) -> bool:
        """Return whether the agent of the node carries it out, else the aggregator."""
        return self in {ActionKind.CLEAR, ActionKind.DETACH_GPUS}


class ActionState(StrEnum):
    """The state of an action.

    `Reserved`: recorded; nothing was started. `Running`: it may have been started. `Succeeded`: carried out.
    `Failed`: not carried out, or only a part. `Superseded`: a later request replaced it, or its incident
    ended, while it was running. `Cancelled`: the same before it was started. `Unknown`: it may have been
    carried out, and no answer comes.
    """

    RESERVED = "Reserved"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUPERSEDED = "Superseded"
    CANCELLED = "Cancelled"
    UNKNOWN = "Unknown"

    @property
    def is_finished(self) -> bool:
        """Return whether nothing more happens."""
        return self not in {ActionState.RESERVED, ActionState.RUNNING}

    @property
    def is_withdrawn(self) -> bool:
        """Return whether it ended because it was no longer requested."""
        return self in {ActionState.SUPERSEDED, ActionState.CANCELLED}


class FindingKey(Struct, frozen=True, order=True):
    """A finding of a node: its check and target."""

    check: str
    target: str


class NodeAction(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One attempt to do one thing. Its content never changes; its progress (the last fields) does."""

    kind: ActionKind
    node: str

    uid: str
    """Of the Node."""

    request: str
    """Who requested it, and when. Another text is another request."""

    created_at: int
    """Seconds since the epoch."""

    incident: str = ""
    """Name of the incident; empty for none."""

    occurrence: int = 0
    """Of the incident, from the second one, for a request without a time: it may have the same text again."""

    attempt: int = 1

    deadline: int = 0
    """Seconds since the epoch until which it waits for an answer; 0 for no limit. Of a notice, the time
    before which its pods are not evicted."""

    findings: tuple[FindingKey, ...] = ()
    """To clear."""

    gpus: tuple[str, ...] = ()
    """To detach; empty for all."""

    seconds: int = 0
    """For which GPUs are detached; 0 to read them again."""

    pods: tuple[PodKey, ...] = ()
    """To evict: all of them or none."""

    pod_groups: tuple[PodGroupKey, ...] = ()
    """PodGroups of which all pods are evicted, also those on other nodes."""

    requested_by: str = ""
    """Name of the operator who requested a drain; empty for one that the policy requests, and for other
    kinds."""

    state: ActionState = ActionState.RESERVED

    carried_out: int = 0
    """How many of the findings were cleared, how many of the pods are gone, or 1 for another kind."""

    message: str = ""
    """The answer of the agent, or why there is none; of a drain, what it waits for or how it ended."""

    remaining: tuple[str, ...] = ()
    """Uids of the pods that were left when a drain failed."""

    begun_at: int = 0
    """When the first eviction may have been sent, or when all pods of a notice had it, in seconds since the
    epoch; 0 before, and for other kinds."""

    released_at: int = 0
    """When the quarantine of a drain was observed as released, in seconds since the epoch; 0 before, and for
    other kinds."""

    taken_over_at: int = 0
    """When a leader that took a drain over after its time had tried to evict what was left, in seconds since
    the epoch; 0 for a drain without that, and for other kinds. The leaders after it have no further time."""

    changed_at: int = 0
    """When the state changed last, in seconds since the epoch; 0 for never."""

    @property
    def key(self) -> str:
        """Return its name: the same for each process that would make this attempt, so that one makes it."""
        parts = (self.incident, f"{self.occurrence}", self.kind, self.uid, self.request, f"{self.attempt}")
        digest = blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
        return f"{self.kind.lower()}-{digest}"

    @property
    def is_closed(self) -> bool:
        """Return whether its request may be carried out again: it was withdrawn, or it is a drain with a
        released quarantine, or a notice.
        """
        is_final = self.kind == ActionKind.DRAIN_NOTICE or bool(self.released_at)
        return self.state.is_withdrawn or (self.state.is_finished and is_final)

    @property
    def ended_at(self) -> int:
        """Return when it ended, in seconds since the epoch."""
        return self.changed_at or self.created_at

    @property
    def parts(self) -> int:
        """Return of how many parts `carried_out` counts those that are done."""
        return len(self.findings) or len(self.pods) or 1
