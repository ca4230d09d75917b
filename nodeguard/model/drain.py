"""The drain: which work leaves a quarantined node, as the policy allows it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from nodeguard.model.amounts import CheckPattern, CheckPatterns, Count, Duration, Share


class DrainMode(StrEnum):
    """`disabled`: nodeguard evicts nothing and reads no pods for it; `observe`: it reports what it would
    evict; `enforce`: it evicts.
    """

    DISABLED = "disabled"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class DrainWhen(StrEnum):
    """When the pods that use faulty hardware are evicted. `immediately`: as soon as the mark is observed, for
    faults with work that is dead or hangs; `deadline`: some time after a notice to the pods, for faults with
    work that goes on; `when-idle`: never, the pods end by themselves.
    """

    IMMEDIATELY = "immediately"
    DEADLINE = "deadline"
    WHEN_IDLE = "when-idle"


# Seconds of a notice for which the policy has no other time. Most training jobs save a checkpoint more often,
# so that the next one falls in it.
DEFAULT_NOTICE = 7200.0


class UnknownHolders(StrEnum):
    """Which pods are evicted if it is not known which pods hold the faulty GPU. `none`: none; `node`: all
    pods of the node that use GPUs.
    """

    NONE = "none"
    NODE = "node"


class DrainRule(Struct, frozen=True, forbid_unknown_fields=True):
    """When the work of some checks' nodes is evicted. The last rule that matches applies."""

    when: DrainWhen
    """`immediately` evicts as soon as the quarantine is observed; `deadline` after a notice to the pods;
    `when-idle` evicts nothing."""
    check: CheckPattern | UnsetType = UNSET
    """The check that the rule is for, as a name or a pattern. Write `check` or `checks`, not both."""
    checks: CheckPatterns | UnsetType = UNSET
    """The same for several checks: names or patterns."""
    after: Duration | UnsetType = UNSET
    """Only with `deadline`: the time from the notice until the eviction. Without it 2 hours: most training
    jobs save a checkpoint more often."""

    @property
    def notice_seconds(self) -> float | None:
        """Return for how long pods have notice; 0 for no notice, None if none is evicted."""
        match self.when:
            case DrainWhen.DEADLINE:
                return DEFAULT_NOTICE if self.after is UNSET else self.after
            case DrainWhen.IMMEDIATELY:
                return 0.0
        return None


class DrainLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes are drained, and of how much work. The tightest limit applies; budgets of marks do not
    count drains. The defaults for pods, gangs and namespaces allow any set of a node with eight GPUs at a
    time, and two of them in an hour.
    """

    nodes: Share = 0.01
    """Part of all nodes that may be drained at a time, rounded down, at least one node."""
    hourly: Count = field(name="newPerHour", default=5)
    """Drains that may begin within an hour."""
    domain: Count = field(name="perDomain", default=1)
    """Nodes of one failure domain that may be drained at a time. Domains with more than a quarter of all
    nodes do not count."""
    pods: Count = 500
    """Pods of the drains that run at a time. A set with more pods is never evicted."""
    pods_hourly: Count = field(name="podsPerHour", default=1000)
    """Pods of the drains that begin within an hour. A set with more pods is never evicted."""
    gangs: Count = 8
    """Gangs that leave whole by the drains that run at a time."""
    gangs_hourly: Count = field(name="gangsPerHour", default=16)
    """Gangs that leave whole by the drains that begin within an hour."""
    namespaces: Count = 8
    """Namespaces with pods of the drains that run at a time."""
    namespaces_hourly: Count = field(name="namespacesPerHour", default=16)
    """Namespaces with pods of the drains that begin within an hour."""

    @property
    def at_once(self) -> dict[str, int]:
        """Return the limits of the work of the drains that run at a time."""
        return {"pods": self.pods, "gangs": self.gangs, "namespaces": self.namespaces}

    @property
    def in_an_hour(self) -> dict[str, int]:
        """Return the same of the drains that begin within an hour."""
        return {"pods": self.pods_hourly, "gangs": self.gangs_hourly, "namespaces": self.namespaces_hourly}


class DrainPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the pods that use faulty hardware are evicted from quarantined nodes, which, and how many."""

    mode: DrainMode = DrainMode.DISABLED
    """`observe` reports what `enforce` would evict. `disabled` reads no pods."""
    rules: Annotated[tuple[DrainRule, ...], Meta(max_length=100)] = ()
    """When the work of a check's nodes is evicted. A check without a rule is `when-idle`."""
    unknown_holders: UnknownHolders = field(name="unknownHolders", default=UnknownHolders.NONE)
    """Which pods are evicted if it is not known which pods hold the faulty GPU."""
    finish_within: Duration = field(name="finishWithin", default=1800.0)
    """Time from the first eviction until a drain ends as failed, and a person decides. A leader that takes
    over at its end has two minutes more, so that it evicts what an earlier one has left."""
    limits: DrainLimits = DrainLimits()
    """How many nodes are drained at a time and in an hour, and of how many pods, gangs and namespaces."""
