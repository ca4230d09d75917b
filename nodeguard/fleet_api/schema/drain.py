"""Schema of drains that are not finished."""

from __future__ import annotations

from msgspec import Struct


class PodView(Struct, frozen=True):
    """A pod."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its uid: a later pod of the same name has another one."""


class DrainView(Struct, frozen=True):
    """A quarantined resource from which work is to leave."""

    node: str
    resource: str
    """The faulty target, a GPU or `node`; empty for a running drain with a fault that has ended."""
    checks: tuple[str, ...]
    """The checks of its findings, worst first."""
    state: str
    """`would-drain`: the policy only observes; `waits`; or `running`."""
    reason: str
    """Why it waits, or what a running drain waits for; empty for nothing."""
    pods: tuple[PodView, ...]
    """The pods that leave, as far as they are known."""
    since: str
    """When its quarantine began."""
    age: float
    """Seconds since then."""
