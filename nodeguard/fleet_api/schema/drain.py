"""Schema of drains that are not finished, and of the preview of a drain."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class PodView(Struct, frozen=True):
    """A pod."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its uid: a later pod of the same name has another one."""
    job: str = ""
    """Its job, `NAMESPACE/NAME`; empty if that is not known."""


class PodGroupView(Struct, frozen=True):
    """A PodGroup."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""


class DrainView(Struct, frozen=True):
    """A quarantined resource from which work is to leave."""

    node: str
    resource: str
    """The faulty target, a GPU or `node`; empty for a running drain with a fault that has ended."""
    checks: tuple[str, ...]
    """The checks of its findings, worst first."""
    state: str
    """`would-drain`: nothing forbids it, and nothing is evicted; `waits`; `announced`: its pods have notice;
    or `running`."""
    reason: str
    """Why it waits, or what a running drain waits for; empty for nothing. Of a dry run, the notice that the
    pods would get first."""
    pods: tuple[PodView, ...]
    """The pods that leave, as far as they are known."""
    since: str
    """When its quarantine began."""
    age: float
    """Seconds since then."""
    pod_groups: tuple[PodGroupView, ...] = ()
    """PodGroups of which all pods leave, also those on other nodes."""
    left: int | None = None
    """How many of the pods of a running drain are not gone; null before they were read."""
    evict_at: str = ""
    """Time before which no pod is evicted that does not agree; empty without a notice."""
    limited_until: str = ""
    """When the limit of an hour that is its reason allows it, if no other drain begins; empty for another
    reason."""
    costs: tuple[str, ...] = ()
    """Of a dry run and of a notice: the Jobs that would fail with the evictions, each with its reason."""


class DrainPreview(Struct, frozen=True):
    """What a drain of a node would evict now. Rules and limits of the policy do not count; nothing is
    evicted.
    """

    version: Literal[1]
    at: str
    node: str
    drains: tuple[DrainView, ...]
    """The quarantined resources of the node, each with its pods, or why these stay."""
    reason: str
    """Why there is nothing to drain; empty if there is."""
