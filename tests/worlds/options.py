"""Options of a world's policy, by name: a failing world prints the names, and its options are removed singly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from nodeguard.model.diagnosis import LOCATION_TOPOLOGIES
from nodeguard.model.drain import DrainMode, DrainPolicy, DrainRule, DrainWhen
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    GracePeriods,
    Hold,
    InjectionPolicy,
    MarkWrites,
    Mode,
    ModeRule,
    Policy,
    Pool,
    SoakPeriod,
    TopologyLabels,
)
from tests.policies import diagnosis_policy

BASE = Policy(
    mode=Mode.ENFORCE,
    topologies=(
        TopologyLabels("fabric", ("pod", "leaf")),
        TopologyLabels("rack", ("rack",)),
        TopologyLabels("power", ("feed",)),
    ),
    diagnosis=diagnosis_policy(),
    injection=InjectionPolicy(allowed=True),
    drain=DrainPolicy(DrainMode.ENFORCE, (DrainRule(DrainWhen.IMMEDIATELY, check="*"),)),
)
_WIDE = Budget(1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 20, check=CheckLimit(1000, 600.0, 1000))
_MEDIUM = Budget(0.3, 0.2, 0.5, 0.5, 0.3, 0.5, 0.5, check=CheckLimit(9, 600.0, 12))


def _enforce(policy: Policy, topologies: tuple[str, ...]) -> Policy:
    return replace(policy, diagnosis=replace(policy.diagnosis, enforce=topologies))


# In the order in which they are applied.
OPTIONS: Mapping[str, Callable[[Policy], Policy]] = {
    "wide budgets": lambda policy: replace(policy, budget=_WIDE),
    "medium budgets": lambda policy: replace(policy, budget=_MEDIUM),
    "no reserve": lambda policy: replace(policy, budget=replace(policy.budget, reserve=0.0)),
    "pools": lambda policy: replace(policy, pools=(Pool("a", {"pool": "a"}), Pool("b", {"pool": "b"}, 0.5))),
    "marks of leaves": lambda policy: _enforce(policy, ("fabric",)),
    "marks of domains": lambda policy: _enforce(policy, LOCATION_TOPOLOGIES),
    "no grace": lambda policy: replace(policy, grace=GracePeriods(0.0, 0.0, 0.0)),
    "short soak": lambda policy: replace(policy, soak=SoakPeriod(60.0, 600.0, 3600.0)),
    "cordons": lambda policy: replace(policy, marks=MarkWrites(cordon=True)),
    "no conditions": lambda policy: replace(policy, marks=replace(policy.marks, condition=False)),
    "hold on gpu-ecc": lambda policy: replace(policy, holds=(Hold(checks=("gpu-ecc",)),)),
    "observe gpu-hot": lambda policy: replace(policy, modes=(ModeRule(Mode.OBSERVE, checks=("gpu-hot",)),)),
    "observe suspect": lambda policy: replace(
        policy, modes=(*policy.modes, ModeRule(Mode.OBSERVE, checks=("*",), marks=("suspect",)))
    ),
    "observe": lambda policy: replace(policy, mode=Mode.OBSERVE),
    "paused": lambda policy: replace(policy, pause=True),
}


def policy_of(options: Iterable[str]) -> Policy:
    """Return the policy with some options."""
    chosen, policy = frozenset(options), BASE
    for name, apply in OPTIONS.items():
        if name in chosen:
            policy = apply(policy)
    return policy
