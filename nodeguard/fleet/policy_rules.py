"""Rules of the policy for one check or one node: modes, limits, holds, maintenance, pools, silences."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from functools import lru_cache

from nodeguard.model.drain import DrainMode, DrainRule, DrainWhen
from nodeguard.model.finding import Health
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.mark import DRAIN_MARKS, Mark
from nodeguard.model.policy import CheckLimit, Mode, Policy, Pool, check_patterns

# Labels in which NVIDIA's operators report the progress of a node's driver upgrade.
# Source: NVIDIA, GPU driver upgrades; network operator, life cycle management.
UPGRADE_LABELS = ("nvidia.com/gpu-driver-upgrade-state", "nvidia.com/ofed-driver-upgrade-state")

# No upgrade is in progress. `upgrade-required` is a queue: in a rollout, the whole fleet waits in it and
# works. A failed upgrade leaves the node as it is: its faults are real, and operators must see them.
_AT_REST = frozenset({"", "upgrade-required", "upgrade-done", "upgrade-failed"})

# From the cordon to the uncordon. Any other state, such as `node-maintenance-required`, may be a queue too:
# there the cordon decides.
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
    """Return the mode of a check's mark: of the last rule that matches, else of the policy."""
    for rule in reversed(policy.modes):
        if mark in rule.marks and matches_any(check_patterns(rule))(check):
            return rule.mode
    return policy.mode


def drain_when(policy: Policy, check: str) -> DrainWhen:
    """Return when the work of a check's nodes is evicted: by the last rule that matches, else when idle."""
    rule = _drain_rule(policy, check)
    return DrainWhen.WHEN_IDLE if rule is None else rule.when


def drain_after(policy: Policy, check: str) -> float | None:
    """Return for how many seconds pods have notice before they are evicted from a check's nodes; 0 for no
    notice, None if none is evicted.
    """
    rule = _drain_rule(policy, check)
    return None if rule is None else rule.notice_seconds


def _drain_rule(policy: Policy, check: str) -> DrainRule | None:
    rules = (rule for rule in reversed(policy.drain.rules) if matches_any(check_patterns(rule))(check))
    return next(rules, None)


def drained_checks(policy: Policy, checks: Mapping[str, Health]) -> list[str]:
    """Return the checks for which pods are evicted, or would be in a dry run: fatal ones with a rule to evict
    and an enforced quarantine, not on hold. checks: health by id.
    """
    if policy.drain.mode == DrainMode.DISABLED:
        return []
    return [
        check
        for check, health in checks.items()
        if health == Health.FATAL
        and drain_after(policy, check) is not None
        and any(mode_of(policy, check, mark) == Mode.ENFORCE for mark in DRAIN_MARKS)
        and hold_on_check(policy, check) is None
    ]


def observes_only(policy: Policy) -> bool:
    """Return whether a policy only observes: no rule and no topology is enforced."""
    modes = (policy.mode, *(rule.mode for rule in policy.modes))
    return Mode.ENFORCE not in modes and not policy.diagnosis.enforce


def check_limit(policy: Policy, check: str) -> CheckLimit:
    """Return the limit of the nodes that a check may mark."""
    for override in policy.budget.check_overrides:
        if matches_any(check_patterns(override))(check):
            return override.limit(policy.budget.check)
    return policy.budget.check


def hold_on_check(policy: Policy, check: str) -> str | None:
    """Return the reason of a hold on a check; None for no hold."""
    for hold in policy.holds:
        if matches_any(check_patterns(hold))(check):
            return hold.reason or "a hold of the policy"
    return None


def hold_on_node(policy: Policy, node: InventoryNode) -> str | None:
    """Return the reason of a hold on a node; None for no hold."""
    if node.hold:
        return node.hold
    for hold in policy.holds:
        is_of_nodes = hold.node or hold.labels
        if is_of_nodes and (not hold.node or _matcher(hold.node)(node.name)) and _has(node, hold.labels):
            return hold.reason or "a hold of the policy"
    return None


def maintenance_reason(node: InventoryNode, *, is_out: bool = False) -> str | None:
    """Return the reason of a node's maintenance; None for no maintenance. is_out: whether nodeguard keeps all
    new work away.
    """
    if node.maintenance:
        return node.maintenance
    for label in UPGRADE_LABELS:
        state = node.labels.get(label, "")
        if state in _AT_WORK or (state not in _AT_REST and (node.out_by_operator or is_out)):
            return f"{label} is {state}"
    return None


def pool_of(policy: Policy, node: InventoryNode) -> Pool | None:
    """Return the pool with the budget of a node; None if no pool matches."""
    return next((pool for pool in policy.pools if _has(node, pool.labels)), None)


def silence_end(policy: Policy, check: str, node: str, now: float) -> float:
    """Return when the silence of a check on a node, by its name, ends: infinity for one without an end, 0 if
    it is not silenced now. All times in seconds since the epoch.
    """
    ends = (
        silence.end
        for silence in policy.silences
        if matches_any(silence.patterns)(check) and _matcher(silence.node)(node)
    )
    return max((end for end in ends if now < end), default=0.0)


def _has(node: InventoryNode, labels: Mapping[str, str]) -> bool:
    return labels.items() <= node.labels.items()


@lru_cache(maxsize=4096)
def _matcher(pattern: str) -> Callable[[str], object]:
    """Return a matcher of names for a shell pattern."""
    return re.compile(translate(pattern)).match


@lru_cache(maxsize=4096)
def matches_any(patterns: tuple[str, ...]) -> Callable[[str], object]:
    """Return a matcher of names for several shell patterns. No pattern matches nothing."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)").match
