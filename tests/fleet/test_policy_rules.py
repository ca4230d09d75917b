"""What the policy and people say of one check or one node."""

from __future__ import annotations

from datetime import UTC, datetime
from fnmatch import fnmatchcase
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.fleet.policy_rules import (
    check_limit,
    hold_on_check,
    hold_on_node,
    maintenance_reason,
    mode_of,
    pool_of,
    silence_end,
)
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION, Mark
from nodeguard.model.node import Node
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    CheckOverride,
    Hold,
    Mode,
    ModeRule,
    Policy,
    Pool,
    Silence,
)
from tests.fleet.cluster_planner import inventory

GPU = "nvidia.com/gpu-driver-upgrade-state"
OFED = "nvidia.com/ofed-driver-upgrade-state"


def node(
    name: str = "gpu-1", *, cordoned: bool = False, notes: dict[str, str] | None = None, **labels: str
) -> InventoryNode:
    annotated = Node(name, "uid-1", labels=labels, annotations=notes or {}, unschedulable=cordoned)
    return inventory(annotated)


def labelled(label: str, value: str, *, cordoned: bool = False) -> InventoryNode:
    return inventory(Node("gpu-1", "uid-1", labels={label: value}, unschedulable=cordoned))


def test_without_a_rule_the_policys_mode_is_used() -> None:
    assert mode_of(Policy(), "gpu-lost", Mark.QUARANTINE) == Mode.OBSERVE
    assert mode_of(Policy(mode=Mode.ENFORCE), "gpu-lost", Mark.SUSPECT) == Mode.ENFORCE


def test_the_last_matching_mode_rule_is_used_for_its_marks() -> None:
    policy = Policy(
        modes=(
            ModeRule(Mode.ENFORCE, checks=("gpu-*", "disk-full"), marks=("quarantine",)),
            ModeRule(Mode.OBSERVE, checks=("gpu-lost",)),
        )
    )
    assert mode_of(policy, "gpu-ecc", Mark.QUARANTINE) == Mode.ENFORCE
    assert mode_of(policy, "disk-full", Mark.QUARANTINE) == Mode.ENFORCE
    assert mode_of(policy, "gpu-ecc", Mark.SUSPECT) == Mode.OBSERVE
    assert mode_of(policy, "gpu-lost", Mark.QUARANTINE) == Mode.OBSERVE
    assert mode_of(policy, "clock-drift", Mark.QUARANTINE) == Mode.OBSERVE


def test_a_rule_without_patterns_fits_nothing() -> None:
    assert mode_of(Policy(modes=(ModeRule(Mode.ENFORCE, checks=()),)), "", Mark.SUSPECT) == Mode.OBSERVE


def test_the_first_matching_limit_is_used() -> None:
    few, more, most = (
        CheckOverride(checks=("gpu-lost",), new=1),
        CheckOverride(checks=("gpu-*",), new=2),
        CheckLimit(new=3),
    )
    policy = Policy(budget=Budget(check=most, check_overrides=(few, more)))
    assert check_limit(policy, "gpu-lost") == CheckLimit(new=1)
    assert check_limit(policy, "gpu-ecc") == CheckLimit(new=2)
    assert check_limit(policy, "disk-full") is most


def test_the_policy_holds_a_check() -> None:
    policy = Policy(
        holds=(Hold(node="gpu-1"), Hold(checks=("gpu-*",), reason="driver bug"), Hold(checks=("x",)))
    )
    assert hold_on_check(policy, "gpu-lost") == "driver bug"
    assert hold_on_check(policy, "x") == "a hold of the policy"
    assert hold_on_check(policy, "disk-full") is None


def test_a_policy_holds_a_node_by_name_labels_or_both() -> None:
    policy = Policy(
        holds=(
            Hold(checks=("*",), reason="of no node"),
            Hold(node="login-*", reason="no GPUs"),
            Hold(labels={"team": "alpha"}, reason="alpha's own"),
            Hold(node="gpu-*", labels={"tier": "test"}),
        )
    )
    assert hold_on_node(policy, node("login-3")) == "no GPUs"
    assert hold_on_node(policy, node(team="alpha", tier="prod")) == "alpha's own"
    assert hold_on_node(policy, node(tier="test")) == "a hold of the policy"
    assert hold_on_node(policy, node("cpu-1", tier="test")) is None
    assert hold_on_node(policy, node(tier="prod")) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [("RMA 4711", "RMA 4711"), ("true", "true"), ("", "annotation nodeguard.dev/hold"), ("false", None)],
)
def test_an_annotation_holds_a_node(value: str, reason: str | None) -> None:
    assert hold_on_node(Policy(), node(notes={HOLD_ANNOTATION: value})) == reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [("new cables", "new cables"), ("", "annotation nodeguard.dev/maintenance"), ("false", None)],
)
def test_a_node_is_in_maintenance_by_its_annotation(value: str, reason: str | None) -> None:
    assert maintenance_reason(node(notes={MAINTENANCE_ANNOTATION: value})) == reason


@pytest.mark.parametrize("state", ["", "upgrade-required", "upgrade-done", "upgrade-failed"])
@pytest.mark.parametrize("label", [GPU, OFED])
def test_a_node_before_or_after_its_upgrade_is_not_in_maintenance(label: str, state: str) -> None:
    assert maintenance_reason(labelled(label, state)) is None
    assert maintenance_reason(labelled(label, state, cordoned=True)) is None


@pytest.mark.parametrize("state", ["cordon-required", "wait-for-jobs-required", "validation-required"])
@pytest.mark.parametrize("label", [GPU, OFED])
def test_from_cordon_to_uncordon_an_upgrade_is_maintenance(label: str, state: str) -> None:
    assert maintenance_reason(labelled(label, state)) == f"{label} is {state}"


@pytest.mark.parametrize("state", ["node-maintenance-required", "a-word-to-come"])
def test_a_cordon_decides_whether_a_queued_upgrade_is_maintenance(state: str) -> None:
    assert maintenance_reason(labelled(GPU, state)) is None
    assert maintenance_reason(labelled(GPU, state, cordoned=True)) == f"{GPU} is {state}"


def test_a_node_without_annotations_is_not_on_hold_and_not_in_maintenance() -> None:
    assert (hold_on_node(Policy(), node()), maintenance_reason(node())) == (None, None)


def test_the_first_matching_pool_is_used() -> None:
    small, all_of = Pool("small", {"pool": "a", "zone": "z"}), Pool("rest", {})
    policy = Policy(pools=(small, all_of))
    assert pool_of(policy, node(pool="a", zone="z", more="x")) is small
    assert pool_of(policy, node(pool="a")) is all_of
    assert pool_of(Policy(pools=(small,)), node(pool="a")) is None


def test_a_silence_applies_to_checks_on_nodes_until_its_end() -> None:
    policy = Policy(
        silences=(
            Silence(checks=("gpu-*",), node="gpu-1*", until=datetime.fromtimestamp(100, UTC)),
            Silence(checks=("disk-full",)),
        )
    )
    assert silence_end(policy, "gpu-lost", "gpu-12", 99.9)
    assert not silence_end(policy, "gpu-lost", "gpu-12", 100.0)
    assert not silence_end(policy, "gpu-lost", "gpu-2", 0.0)
    assert not silence_end(policy, "clock", "gpu-12", 0.0)
    assert silence_end(policy, "disk-full", "any", 1e12)


PATTERNS = st.lists(st.text("ab-*?[]!", max_size=8), max_size=4)


@given(PATTERNS, st.text("ab-[]!", max_size=8))
def test_patterns_are_shell_patterns(patterns: list[str], name: str) -> None:
    fits = any(fnmatchcase(name, pattern) for pattern in patterns)
    policy = Policy(modes=(ModeRule(Mode.ENFORCE, checks=tuple(patterns)),))
    assert (mode_of(policy, name, Mark.SUSPECT) == Mode.ENFORCE) == fits


def test_the_rules_of_the_policy_are_fast() -> None:
    policy = Policy(
        pools=tuple(Pool(f"p{at}", {"pool": str(at)}) for at in range(10)),
        holds=tuple(Hold(node=f"login-{at}-*") for at in range(10)),
        silences=tuple(Silence(checks=("gpu-*",), node=f"row-{at}-*") for at in range(10)),
    )
    nodes = [node(f"gpu-{at}", pool=str(at % 11)) for at in range(7_500)]
    began = process_time()
    for node_ in nodes:
        hold_on_node(policy, node_)
        maintenance_reason(node_)
        pool_of(policy, node_)
        silence_end(policy, "gpu-lost", node_.name, 0.0)
    assert process_time() - began < 2.0
