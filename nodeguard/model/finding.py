"""Findings and the verdict: what a check said of a slot, and what all of them say of the node."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct


class _Ordered(StrEnum):
    """Words with an order, least first."""

    @property
    def rank(self) -> int:
        """Place in the order, 0 for the least."""
        return list(type(self)).index(self)


class Health(_Ordered):
    """How bad: `warning` is told, `suspect` keeps gang work away, `fatal` keeps all work away."""

    OK = "ok"
    WARNING = "warning"
    SUSPECT = "suspect"
    FATAL = "fatal"


class DataStatus(_Ordered):
    """How well it is known, best first."""

    FRESH = "fresh"
    NOT_APPLICABLE = "not-applicable"
    STALE = "stale"
    UNKNOWN = "unknown"


class Action(_Ordered):
    """What to do, weakest first; the stronger wins. `restart-service`: start or restart a service of the
    node, or have it load a module.
    """

    NONE = "none"
    MONITOR = "watch"
    RESTART_WORKLOAD = "restart-workload"
    RESTART_SERVICE = "restart-service"
    RESET_GPU = "reset-gpu"
    REBOOT_NODE = "reboot-node"
    REPLACE_COMPONENT = "replace-part"
    CONTACT_SUPPORT = "contact-support"

    @property
    def phrase(self) -> str:
        """The action as an imperative: `reboot the node`."""
        return _ACTION_WORDS[self]


_ACTION_WORDS = {
    Action.NONE: "nothing",
    Action.MONITOR: "watch it",
    Action.RESTART_WORKLOAD: "restart the workload",
    Action.RESTART_SERVICE: "start or restart the service",
    Action.RESET_GPU: "reset the GPU",
    Action.REBOOT_NODE: "reboot the node",
    Action.REPLACE_COMPONENT: "replace the part",
    Action.CONTACT_SUPPORT: "contact support",
}


class Evidence(Struct, frozen=True):
    """One thing that was seen.

    source: who saw it. what: signal and value, or the machine's own line. at: seconds since the epoch. count:
    how often.
    """

    source: str
    text: str
    at: float
    count: int = 1


class Finding(Struct, frozen=True, omit_defaults=True):
    """A check's outcome on a slot.

    target: the slot; where many slots show one cause, their parent, with the slots themselves in slots. part:
    identity of what sits in the slot, empty where unknown. since, seconds since the epoch: when it was first
    seen. note: a limit of what is known, such as `seen once`.
    """

    check: str
    target: str
    component: str
    health: Health
    data_status: DataStatus
    action: Action
    since: float
    message: str
    evidence: tuple[Evidence, ...]
    family: str
    title: str
    remedy: str
    runbook: str
    targets: tuple[str, ...] = ()
    note: str = ""


class ReadFailure(Struct, frozen=True):
    """Something that applies to this machine and could not be read: of which slots, and why."""

    source: str
    targets: tuple[str, ...]
    subject: str
    reason: str


class PassedFamily(Struct, frozen=True):
    """What one family of checks found in order: how many checks, on how many slots of each kind."""

    family: str
    checks: int
    targets: dict[str, int]


class PassingChecks(Struct, frozen=True):
    """Checks that could tell, on each of some slots, that nothing is wrong: what a mark is given back for."""

    checks: tuple[str, ...]
    targets: tuple[str, ...]


class CounterTotal(Struct, frozen=True):
    """A counter whose increase is not known yet, because it was read once: its total so far."""

    target: str
    signal: str
    value: int | float


class Verdict(Struct, frozen=True):
    """What all checks say of the node: the worst health and the worst knowledge, with the reasons.

    findings: all that is not ok, worst first. noted: what was seen and is not held against the node. proven:
    what is in order for sure, each slot of a check once.
    """

    health: Health
    data_status: DataStatus
    findings: tuple[Finding, ...] = ()
    informational: tuple[Finding, ...] = ()
    read_failures: tuple[ReadFailure, ...] = ()
    passed: tuple[PassedFamily, ...] = ()
    passing: tuple[PassingChecks, ...] = ()
    counter_totals: tuple[CounterTotal, ...] = ()
    evaluated: int = 0
    platform: str = ""

    @property
    def known_health(self) -> Health | None:
        """The health that the checks come to; None where nothing could be judged, which is not healthy."""
        return self.health if self.evaluated or self.findings else None


def worst(*states: Any) -> Any:
    """The worst of some Health, Knowledge or Action words of one kind; they must not be empty."""
    return max(states, key=lambda state: state.rank)
