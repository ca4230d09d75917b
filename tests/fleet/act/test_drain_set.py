"""The set of a drain: which pods leave together, and why none may."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_set import DrainSet, budget_reason, drain_set, pod_groups, with_gangs
from nodeguard.model.action import MAX_PODS
from nodeguard.model.drain import UnknownHolders
from nodeguard.model.label_selector import LabelSelector
from nodeguard.model.pod import DisruptionBudget, NodePod, PodGroupKey, PodKey

GPU = DrainCandidate("uid-0", "node-0", "gpu/0000:3b:00", 100.0, ("gpu-lost",), ("GPU-1",))
WITHOUT_ID = DrainCandidate("uid-0", "node-0", "gpu/0000:3b:00", 100.0, ("gpu-lost",))
NODE = DrainCandidate("uid-0", "node-0", "node", 100.0, ("driver-hung",))
ON_DEVICE = replace(GPU, is_on_device=True)
NONE, ALL = UnknownHolders.NONE, UnknownHolders.NODE


def pod(name: str, *gpu_ids: str, **more: Any) -> NodePod:
    """Return a pod of a Job with GPUs; without ids, the kubelet reports none."""
    values: dict[str, Any] = {"gpu_ids": gpu_ids or None, "controller": "Job", **more}
    return NodePod(PodKey("team-a", name, f"uid-{name}"), "1", **values)


def whole_set(found: DrainSet, groups: Collection[PodGroupKey], members: Collection[NodePod]) -> DrainSet:
    """Return a set with gangs. An operator holds gpu-9."""
    return with_gangs(found, groups, members, lambda name: "a hold" if name == "gpu-9" else "")


HOLDER, OTHER = pod("holder", "GPU-1"), pod("other", "GPU-2")


def names(found: DrainSet) -> list[str]:
    return [member.key.name for member in found.pods]


def test_the_holders_of_the_gpu_leave_and_all_pods_with_gpus_of_a_faulty_node() -> None:
    without_gpus = pod("web", gpu_ids=())
    claims = pod("claims", gpu_ids=(), claims=("gpu",))
    assert drain_set(GPU, (OTHER, HOLDER, without_gpus), NONE) == DrainSet((HOLDER,))
    assert drain_set(GPU, (OTHER, without_gpus), ALL) == DrainSet()
    assert names(drain_set(NODE, (OTHER, HOLDER, without_gpus, claims), NONE)) == [
        "claims",
        "holder",
        "other",
    ]


@pytest.mark.parametrize("ids", [("GPU-1::0",), ("GPU-2", "GPU-1::12")])
def test_all_pods_that_share_the_gpu_leave(ids: tuple[str, ...]) -> None:
    sharing = pod("sharing", *ids)
    assert drain_set(GPU, (sharing, pod("too", "GPU-1::3"), OTHER), NONE).pods == (
        sharing,
        pod("too", "GPU-1::3"),
    )


def test_the_id_of_another_gpu_that_begins_the_same_is_no_match() -> None:
    assert drain_set(GPU, (pod("ten", "GPU-10"), pod("shared", "GPU-10::1")), NONE) == DrainSet()


UNKNOWN = [
    pod("mig", "MIG-5"),
    pod("index", "0"),
    pod("unreported"),
    pod("claims", gpu_ids=(), claims=("gpu",)),
    pod("both", "GPU-2", claims=("gpu",)),
]


def test_a_set_that_no_record_has_room_for_stays() -> None:
    sharing = [pod(f"sharing-{number:03}", f"GPU-1::{number}") for number in range(MAX_PODS)]
    assert drain_set(GPU, sharing, NONE).reason == ""
    reason = "501 pods would leave: a drain evicts at most 500"
    for candidate in (GPU, NODE):
        assert drain_set(candidate, [*sharing, HOLDER], NONE).reason == reason


@pytest.mark.parametrize("unknown", UNKNOWN, ids=lambda item: item.key.name)
def test_a_pod_with_unknown_gpus_leaves_only_if_the_policy_says_all_pods(unknown: NodePod) -> None:
    found = drain_set(GPU, (unknown, OTHER), NONE)
    assert found.pods == ()
    assert f"pod team-a/{unknown.key.name} holds" in found.reason
    assert "drain.unknownHolders" in found.reason
    assert names(drain_set(GPU, (OTHER, unknown), ALL)) == sorted([unknown.key.name, "other"])
    assert drain_set(GPU, (unknown, HOLDER), NONE) == DrainSet((HOLDER,)), "it holds the GPU for itself"
    assert drain_set(GPU, (unknown, pod("sharing", "GPU-1::0")), NONE).reason


def test_a_holder_of_one_id_does_not_hide_the_holder_of_another() -> None:
    """Without an inventory, the findings of a location may name a GPU and the one that replaced it."""
    replaced, unknown = replace(GPU, gpu_ids=("GPU-1", "GPU-3")), pod("unknown")
    found = drain_set(replaced, (HOLDER, unknown), NONE)
    assert (found.pods, "which GPUs pod team-a/unknown holds" in found.reason) == ((), True)
    both = (HOLDER, pod("third", "GPU-3"))
    assert drain_set(replaced, (*both, unknown), NONE) == DrainSet(both)


def test_a_gpu_without_a_known_id_never_drains_the_node_by_itself() -> None:
    found = drain_set(WITHOUT_ID, (HOLDER, OTHER), NONE)
    assert found.pods == ()
    assert "the id of the GPU is not known" in found.reason
    assert drain_set(WITHOUT_ID, (HOLDER, OTHER), ALL).pods == (HOLDER, OTHER)
    assert drain_set(WITHOUT_ID, (), NONE) == DrainSet()


@pytest.mark.parametrize("holders", UnknownHolders)
def test_a_pod_that_holds_no_gpu_any_more_stays_and_hides_no_holder(holders: UnknownHolders) -> None:
    """Its init container had GPUs and has ended."""
    ended, sharing = pod("ended", gpu_ids=()), pod("sharing", "GPU-1::0")
    assert drain_set(GPU, (ended, sharing, OTHER), holders) == DrainSet((sharing,))
    assert drain_set(GPU, (ended, OTHER), holders) == DrainSet()
    assert drain_set(NODE, (ended, OTHER), holders) == DrainSet((OTHER,))


@pytest.mark.parametrize("more", [{"controller": "DaemonSet"}, {"controller": "Node"}, {"is_static": True}])
def test_pods_of_the_node_stay(more: dict[str, Any]) -> None:
    own = pod("own", "GPU-1", **more)
    assert drain_set(NODE, (own, OTHER), ALL).pods == (OTHER,)
    assert drain_set(GPU, (own,), NONE) == DrainSet()


def test_no_pod_leaves_if_one_would_be_lost_or_could_come_back() -> None:
    bare, tolerating = pod("bare", "GPU-1", controller=""), pod("fan", "GPU-1", tolerates_quarantine=True)
    assert drain_set(GPU, (HOLDER, bare), NONE).reason == (
        "pod team-a/bare has no controller that would create a new pod"
    )
    assert "pod team-a/fan tolerates the quarantine" in drain_set(NODE, (HOLDER, tolerating), NONE).reason
    assert drain_set(GPU, (HOLDER, pod("bare", controller="")), NONE).reason == "", "it is not of the set"


def test_where_only_the_gpu_has_the_mark_no_new_pod_may_get_it_again() -> None:
    keeping = pod("keeping", "GPU-1", keeps_gpus=True)
    tolerating = pod("fan", "GPU-1", tolerates_quarantine=True)
    found = drain_set(ON_DEVICE, (HOLDER, keeping, tolerating), NONE)
    assert found.reason.startswith("pod team-a/keeping uses a ResourceClaim")
    assert drain_set(ON_DEVICE, (HOLDER, tolerating), NONE).reason == "", "the Node takes new pods anyway"
    assert drain_set(GPU, (HOLDER, keeping), NONE).reason == "", "the mark keeps new pods off the Node"


def test_a_pod_that_ends_already_forbids_nothing_and_needs_no_drain() -> None:
    ending = pod("bare", "GPU-1", controller="", is_terminating=True)
    assert drain_set(GPU, (HOLDER, ending), NONE) == DrainSet((ending, HOLDER))
    assert drain_set(GPU, (ending, OTHER), NONE) == DrainSet(ending="pod team-a/bare is still ending")
    assert drain_set(GPU, (OTHER,), NONE) == DrainSet()


def budget(name: str = "b", allowed: int = 1, **more: Any) -> DisruptionBudget:
    values: dict[str, Any] = {"namespace": "team-a", "selector": LabelSelector(), **more}
    return DisruptionBudget(name=name, allowed=allowed, **values)


def test_a_budget_counts_all_pods_of_the_set_that_it_protects() -> None:
    assert budget_reason((HOLDER,), (budget(),)) == ""
    assert budget_reason((HOLDER, OTHER), (budget(),)) == (
        "PodDisruptionBudget team-a/b allows 1 of 2 evictions now"
    )
    assert "not of its present spec" in budget_reason((HOLDER,), (budget(allowed=9, is_current=False),))
    for unrelated in (budget(allowed=0, namespace="team-b"), budget(allowed=0, selector=None)):
        assert budget_reason((HOLDER,), (unrelated,)) == ""


def test_a_budget_counts_a_pod_that_is_not_ready_unless_the_eviction_api_does_not() -> None:
    unready = pod("unready", is_ready=False)
    assert budget_reason((HOLDER, unready), (budget(allowed=1, frees_unready=True),)) == ""
    assert budget_reason((unready,), (budget(allowed=0, frees_unready=True, is_current=False),)) == ""
    assert budget_reason((HOLDER, unready), (budget(allowed=1),)) == (
        "PodDisruptionBudget team-a/b allows 1 of 2 evictions now: pod team-a/unready is not ready, and counts "
        "unless unhealthyPodEvictionPolicy of the budget is AlwaysAllow"
    )
    assert budget_reason((HOLDER, unready), (budget(allowed=0, frees_unready=True),)) == (
        "PodDisruptionBudget team-a/b allows 0 of 1 evictions now"
    )


def test_budgets_do_not_protect_a_pod_that_has_not_started() -> None:
    pending = pod("pending", has_started=False, is_ready=False)
    assert budget_reason((pending,), (budget("b", 0), budget("c", 0))) == ""
    assert "allows 0 of 1" in budget_reason((pending, HOLDER), (budget(allowed=0),))


def test_two_budgets_of_a_pod_forbid_it_even_if_both_allow_it() -> None:
    reason = budget_reason((HOLDER,), (budget("b", 9), budget("c", 9)))
    assert "team-a/b and team-a/c both select pod team-a/holder" in reason


IDS = ("GPU-1", "GPU-2", "GPU-1::0", "GPU-2::1", "MIG-1", "0")

PODS = st.lists(
    st.builds(
        pod,
        st.sampled_from("abcdef"),
        gpu_ids=st.sampled_from([(), *((name,) for name in IDS), None]),
        claims=st.sampled_from([(), ("gpu",)]),
        keeps_gpus=st.booleans(),
        controller=st.sampled_from(["Job", "DaemonSet", ""]),
        is_static=st.booleans(),
        is_terminating=st.booleans(),
        tolerates_quarantine=st.booleans(),
    ),
    max_size=5,
    unique_by=lambda item: item.key.name,
)


@given(
    PODS, st.sampled_from([GPU, WITHOUT_ID, NODE, ON_DEVICE]), st.sampled_from(UnknownHolders), st.randoms()
)
def test_no_pod_leaves_that_may_stay(
    pods: list[NodePod], candidate: DrainCandidate, holders: UnknownHolders, random: Any
) -> None:
    found = drain_set(candidate, pods, holders)
    random.shuffle(pods)
    assert drain_set(candidate, pods, holders) == found, "the order of the pods does not matter"
    for member in found.pods:
        assert member.gpu_ids != () or member.claims
        assert not member.is_static
        assert member.controller != "DaemonSet"
        if not found.reason and not member.is_terminating:
            assert member.controller
            assert not (member.keeps_gpus if candidate is ON_DEVICE else member.tolerates_quarantine)
        if candidate is not NODE and holders == NONE:
            assert any(name in {"GPU-1", "GPU-1::0"} for name in member.gpu_ids or ())
    if candidate is WITHOUT_ID and holders == NONE:
        assert found.pods == ()


TRAIN, SERVE = PodGroupKey("team-a", "train"), PodGroupKey("team-a", "serve")
LOCAL = pod("train-0", "GPU-1", group=TRAIN)
REMOTE = pod("train-1", "GPU-9", group=TRAIN, tolerates_quarantine=True)
LAUNCHER = pod("train-launcher", gpu_ids=(), group=TRAIN)


def test_a_gang_leaves_with_its_pods_on_other_nodes_and_the_other_holders() -> None:
    found = drain_set(GPU, (LOCAL, HOLDER, OTHER), NONE)
    assert pod_groups(found.pods) == (TRAIN,)
    whole = whole_set(found, [TRAIN], [LAUNCHER, REMOTE, LOCAL])
    assert whole == DrainSet((HOLDER, LOCAL, REMOTE, LAUNCHER), groups=(TRAIN,))
    ending = replace(REMOTE, is_terminating=True)
    assert whole_set(found, [TRAIN], [ending, LOCAL]).pods == (HOLDER, LOCAL, ending)


def test_a_gang_stays_if_its_pod_on_the_node_has_ended_meanwhile() -> None:
    found = DrainSet((HOLDER, LOCAL))
    for members in ([REMOTE], [REMOTE, replace(LOCAL, is_terminating=True)]):
        assert whole_set(found, [TRAIN], members) == DrainSet((HOLDER,))
    assert whole_set(DrainSet((LOCAL,)), [TRAIN], [REMOTE]) == DrainSet()
    assert pod_groups([replace(LOCAL, is_terminating=True), HOLDER]) == ()


def test_two_gangs_leave_together() -> None:
    serve = [pod(f"serve-{number}", "GPU-1::0", group=SERVE) for number in range(2)]
    found = DrainSet((LOCAL, serve[0]))
    whole = whole_set(found, [SERVE, TRAIN], [*serve, LOCAL, REMOTE])
    assert (whole.pods, whole.groups) == ((*serve, LOCAL, REMOTE), (SERVE, TRAIN))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"controller": ""}, "pod team-a/train-1 has no controller that would create a new pod"),
        ({"node": "gpu-9"}, "pod team-a/train-1 of PodGroup team-a/train is on gpu-9: a hold"),
        (
            {"controller": "DaemonSet"},
            "pod team-a/train-1 belongs to its node, so that PodGroup team-a/train cannot leave whole",
        ),
        (
            {"is_static": True},
            "pod team-a/train-1 belongs to its node, so that PodGroup team-a/train cannot leave whole",
        ),
    ],
)
def test_a_pod_elsewhere_that_may_not_leave_keeps_its_gang(fields: dict[str, Any], reason: str) -> None:
    found = DrainSet((HOLDER, LOCAL))
    assert whole_set(found, [TRAIN], [LOCAL, replace(REMOTE, **fields)]).reason == reason
    ending = replace(REMOTE, is_terminating=True, **fields)
    assert whole_set(found, [TRAIN], [LOCAL, ending]).reason == ""


def test_a_gang_of_more_pods_than_a_drain_can_record_stays() -> None:
    members = [LOCAL, *(pod(f"train-{number}", "GPU-9", group=TRAIN) for number in range(1, MAX_PODS))]
    assert whole_set(DrainSet((LOCAL,)), [TRAIN], members).reason == ""
    assert whole_set(DrainSet((HOLDER, LOCAL)), [TRAIN], members).reason == (
        "501 pods would leave with PodGroup team-a/train: a drain evicts at most 500"
    )


GANG_PODS = st.lists(
    st.tuples(st.sampled_from([None, TRAIN, SERVE]), st.booleans(), st.booleans(), st.booleans()), max_size=8
)


@given(GANG_PODS, st.sets(st.sampled_from([TRAIN, SERVE])))
def test_a_set_has_all_running_pods_of_a_gang_or_none(
    drawn: list[tuple[PodGroupKey | None, bool, bool, bool]], whole: set[PodGroupKey]
) -> None:
    """Each pod has a group or none, is on the node or elsewhere, ends before or between the two lists, or not."""
    pods = [
        (pod(f"pod-{number}", "GPU-1", group=group, is_terminating=is_ending), is_local, is_gone)
        for number, (group, is_local, is_ending, is_gone) in enumerate(drawn)
    ]
    found = drain_set(GPU, [item for item, is_local, _ in pods if is_local], NONE)
    groups = [group for group in pod_groups(found.pods) if group in whole]
    members = [item for item, _, is_gone in pods if item.group in groups and not is_gone]
    result = whole_set(found, groups, members)
    assert result.reason == ""
    assert any(not item.is_terminating for item in result.pods) or not (result.pods or result.groups)
    for group in whole:
        running = {item.key for item in members if item.group == group and not item.is_terminating}
        leaving = {item.key for item in result.pods if item.group == group and not item.is_terminating}
        assert leaving in (set(), running)
        assert bool(leaving) == (group in result.groups)
    others = {item.key for item in found.pods if item.group not in groups}
    assert {item.key for item in result.pods if item.group not in groups} in (set(), others)
