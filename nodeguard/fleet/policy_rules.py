"""What the policy and people say of one check or one node: called for each of thousands of nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from functools import lru_cache

from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION, Mark
from nodeguard.model.node import Node
from nodeguard.model.policy import CheckLimit, Mode, Policy, Pool

# Labels by which NVIDIA's operators tell how far the driver upgrade of a node has come.
# Source: NVIDIA, GPU driver upgrades; network operator, life cycle management.
UPGRADE_LABELS = ("nvidia.com/gpu-driver-upgrade-state", "nvidia.com/ofed-driver-upgrade-state")

# Nobody is at the node. `upgrade-required` is a queue: in a roll-out the whole fleet stands in it and works.
# What failed is left as it is: its faults are real, and somebody has to hear of them.
_AT_REST = frozenset({"", "upgrade-required", "upgrade-done", "upgrade-failed"})

# From the cordon to the uncordon. What is neither, such as `node-maintenance-required`, may be a queue, too:
# there the cordon tells.
_AT_WORK = frozenset(
    {
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "pod-restart-required",
        "validation-required",
        "post-maintenance-required",
        "uncordon-required",
    }
)


def mode_of(policy: Policy, check: str, mark: Mark) -> Mode:
    """Whether a mark is written for a check: as the last rule says that fits, else as the policy does."""
    for rule in reversed(policy.modes):
        if mark in rule.marks and matches_any(rule.checks)(check):
            return rule.mode
    return policy.mode


def observes_only(policy: Policy) -> bool:
    """Whether a policy only observes: no rule and no view of failure domains is enforced."""
    modes = (policy.mode, *(rule.mode for rule in policy.modes))
    return Mode.ENFORCE not in modes and not policy.diagnosis.enforce


def check_limit(policy: Policy, check: str) -> CheckLimit:
    """How many nodes a check may take out."""
    for limit in policy.budget.check_overrides:
        if matches_any(limit.checks)(check):
            return limit
    return policy.budget.check


def hold_on_check(policy: Policy, check: str) -> str | None:
    """Why nothing is marked for a check; None where it is not held."""
    for hold in policy.holds:
        if hold.checks and matches_any(hold.checks)(check):
            return hold.reason or "a hold of the policy"
    return None


def hold_on_node(policy: Policy, node: Node) -> str | None:
    """Why a node is not touched; None where it is not held."""
    by_hand = _by_hand(node, HOLD_ANNOTATION)
    if by_hand is not None:
        return by_hand
    for hold in policy.holds:
        of_nodes = hold.node or hold.labels
        if of_nodes and (not hold.node or _as(hold.node)(node.name)) and _has(node, hold.labels):
            return hold.reason or "a hold of the policy"
    return None


def maintenance_reason(node: Node) -> str | None:
    """Who is at work on a node; None for nobody."""
    by_hand = _by_hand(node, MAINTENANCE_ANNOTATION)
    if by_hand is not None:
        return by_hand
    for label in UPGRADE_LABELS:
        state = node.labels.get(label, "")
        if state in _AT_WORK or (state not in _AT_REST and node.unschedulable):
            return f"{label} is {state}"
    return None


def pool_of(policy: Policy, node: Node) -> Pool | None:
    """The pool whose budget a node shares; None where no pool fits."""
    return next((pool for pool in policy.pools if _has(node, pool.labels)), None)


def is_silenced(policy: Policy, check: str, node: str, now: float) -> bool:
    """Whether nobody is to be told of a check on a node, by its name. now: seconds since the epoch."""
    return any(
        (not one.until or now < one.until) and matches_any(one.checks)(check) and _as(one.node)(node)
        for one in policy.silences
    )


def _by_hand(node: Node, annotation: str) -> str | None:
    """What people say in an annotation of theirs, which counts without words, too, but not as `false`."""
    said = node.annotations.get(annotation)
    if said is None or said == "false":
        return None
    return said or f"annotation {annotation}"


def _has(node: Node, labels: Mapping[str, str]) -> bool:
    return labels.items() <= node.labels.items()


@lru_cache(maxsize=4096)
def _as(pattern: str) -> Callable[[str], object]:
    """Whether a name is as a pattern, as of a shell."""
    return re.compile(translate(pattern)).match


@lru_cache(maxsize=4096)
def matches_any(patterns: tuple[str, ...]) -> Callable[[str], object]:
    """The same of several patterns. None at all fit nothing."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)").match
