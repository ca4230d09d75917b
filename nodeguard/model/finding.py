"""Findings and the verdict: the result of a check on a target, and the result of all checks on the node."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from nodeguard.model.hardware import Hardware


class _Ordered(StrEnum):
    """Values with an order, least first. rank: the position in the order, 0 for the least."""

    rank: int

    def __init__(self, _: str) -> None:
        self.rank = len(type(self).__members__)


class Health(_Ordered):
    """Severity: `warning` is reported, `suspect` keeps gang work away, `fatal` keeps all work away."""

    OK = "ok"
    WARNING = "warning"
    SUSPECT = "suspect"
    FATAL = "fatal"


class DataStatus(_Ordered):
    """How current and complete the data behind a finding is, best first."""

    FRESH = "fresh"
    NOT_APPLICABLE = "not-applicable"
    STALE = "stale"
    UNKNOWN = "unknown"


class Action(_Ordered):
    """Recommended action, weakest first; the stronger one wins.

    `restart-service`: start or restart a service of the node, or load a kernel module.
    """

    NONE = "none"
    MONITOR = "monitor"
    RESTART_WORKLOAD = "restart-workload"
    RESTART_SERVICE = "restart-service"
    RESET_GPU = "reset-gpu"
    REBOOT_NODE = "reboot-node"
    REPLACE_COMPONENT = "replace-component"
    CONTACT_SUPPORT = "contact-support"

    @property
    def phrase(self) -> str:
        """Return the action as an imperative: `reboot the node`."""
        return _ACTION_WORDS[self]

    @property
    def sentence(self) -> str:
        """Return the action as a sentence, with its period: `Reboot the node`."""
        return f"{self.phrase[0].upper()}{self.phrase[1:]}."


_ACTION_WORDS = {
    Action.NONE: "nothing",
    Action.MONITOR: "monitor the fault",
    Action.RESTART_WORKLOAD: "restart the workload",
    Action.RESTART_SERVICE: "start or restart the service",
    Action.RESET_GPU: "reset the GPU",
    Action.REBOOT_NODE: "reboot the node",
    Action.REPLACE_COMPONENT: "replace the component",
    Action.CONTACT_SUPPORT: "contact support",
}


class Evidence(Struct, frozen=True, omit_defaults=True):
    """One observation that supports a finding.

    source: the source that read it. text: signal and value, or a line of the kernel log. at: seconds since
    the epoch of the latest occurrence. count: number of occurrences. meaning: the check's message for this
    event, empty for a reading. process, pid, workload: name and number of the process that the latest
    occurrence names, and the pod, job, container or service in which it ran; empty or 0 if unknown.
    """

    source: str
    text: str
    at: float
    count: int = 1
    meaning: str = ""
    process: str = ""
    pid: int = 0
    workload: str = ""


class Finding(Struct, frozen=True, omit_defaults=True):
    """The result of a check on a target.

    target: if several targets show one cause, their parent; targets then has them all. component: identity of
    the hardware in the target, empty if unknown. since: first seen, seconds since the epoch. note: a limit of
    the data, such as `seen once`. hardware: names of the GPU for a person who has to find it; None for
    another target, and for several GPUs.
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
    hardware: Hardware | None = None

    @property
    def is_application_error(self) -> bool:
        """Return whether an application caused it, so that the node is healthy and the workload is not."""
        return self.health == Health.OK and self.action == Action.RESTART_WORKLOAD


class ReadFailure(Struct, frozen=True):
    """Data that applies to this machine and could not be read: subject, its targets and the reason."""

    source: str
    targets: tuple[str, ...]
    subject: str
    reason: str


class PassedFamily(Struct, frozen=True):
    """Checks of a family that passed. targets: number of targets by kind."""

    family: str
    checks: int
    targets: dict[str, int]


class PassingChecks(Struct, frozen=True):
    """Checks that passed on fresh data, each with its targets: the proof that releases a mark."""

    checks: tuple[str, ...]
    targets: tuple[str, ...]


class CounterTotal(Struct, frozen=True):
    """A counter above zero; whether it rises needs a second reading."""

    signal: str
    target: str
    value: float


class Verdict(Struct, frozen=True):
    """The node's overall health and data status, the worst of all checks, with the reasons.

    findings: every finding that is not ok, worst first. informational: findings that do not affect the
    node's health. passing: checks that passed on fresh data, each target of a check once. evaluated: number
    of checks with a result.
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
        """Return the health; None if no check could be evaluated, which does not mean healthy."""
        return self.health if self.evaluated or self.findings else None


def worst(*states: Any) -> Any:
    """Return the worst of some values of Health, DataStatus or Action; there must be at least one."""
    return max(states, key=lambda state: state.rank)
