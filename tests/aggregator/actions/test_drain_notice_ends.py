"""The ends of notices in virtual time: no pod keeps one that no longer counts, and no other loses its own."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace

from nodeguard.model.action import ActionState
from nodeguard.model.drain import DrainMode
from nodeguard.model.instant import rfc3339
from nodeguard.model.pod import PodGroupKey
from tests.aggregator.actions.announced import AFTER, Announced
from tests.aggregator.actions.drain_replicas import GANG, NODE, OTHER, candidate
from tests.aggregator.actions.replicas import FAULTS, KilledError


def test_pods_that_end_by_themselves_end_the_notice() -> None:
    scene = Announced()
    scene.play(10.0)
    for uid in scene.gang_uids():
        del scene.pods[uid]
    scene.play(90.0)
    [notice] = scene.records
    assert (notice.state, notice.message) == (
        ActionState.SUCCEEDED,
        "no pod uses the faulty hardware any more",
    )
    scene.play_out()
    assert not scene.drains
    assert scene.replica.runner.reports() == ()


@pytest.mark.parametrize("end", ["fault", "release", "observe"])
def test_a_notice_that_ends_is_removed_from_all_pods(end: str) -> None:
    scene = Announced()
    scene.play(10.0)
    match end:
        case "fault":
            scene.candidates.clear()
        case "release":
            scene.candidates.clear()
            scene.quarantined.clear()
        case _:
            scene.mode = DrainMode.OBSERVE
    scene.play(5.0)
    assert scene.shown_times == {""}
    assert [record.state for record in scene.records] == [ActionState.SUPERSEDED]
    scene.play_out()
    assert not scene.evicted
    assert not scene.drains


def test_a_fault_that_comes_back_has_a_notice_of_its_own() -> None:
    scene = Announced()
    scene.play(10.0)
    present, scene.candidates = scene.candidates, {}
    scene.play(AFTER)
    scene.candidates = present
    scene.play(10.0)
    first, second = scene.records
    assert second.deadline - scene.now > AFTER
    scene.play_out()
    assert first.deadline < second.deadline <= scene.first_eviction


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("after", range(6))
def test_a_fault_at_any_request_leaves_no_notice_behind(fault: str, after: int) -> None:
    scene = Announced()
    scene.play(10.0)
    scene.candidates.clear()
    scene.replica.fault = (after, fault)
    with suppress(KilledError):
        scene.play(5.0)
    scene.lead()
    scene.play(30.0)
    assert scene.shown_times == {""}
    assert {record.state for record in scene.records} == {ActionState.SUPERSEDED}
    assert not scene.evicted


@pytest.mark.parametrize("ended", [NODE, OTHER])
def test_a_notice_of_the_same_time_on_another_node_keeps_no_notice_that_ends(ended: str) -> None:
    scene = Announced()
    scene.candidates[OTHER] = replace(candidate(OTHER, scene.now), after=AFTER)
    scene.play(10.0)
    [time] = {rfc3339(record.deadline) for record in scene.records}
    del scene.candidates[ended]
    scene.play(5.0)
    shown = {node: pod.drain_at for node, pod in scene.pods.values() if pod.key.name != "neighbour"}
    assert shown == {NODE: time, OTHER: time, ended: ""}


def test_a_notice_of_the_same_time_for_the_same_pods_keeps_the_notice() -> None:
    scene = Announced()
    scene.candidates["second"] = replace(scene.candidates[NODE], resource="gpu/0000:3b:00")
    scene.play(10.0)
    [time] = {rfc3339(record.deadline) for record in scene.records}
    del scene.candidates["second"]
    scene.create(NODE, "late", "GPU-0", GANG)
    scene.play(5.0)
    assert len([record for record in scene.records if record.state.is_finished]) == 1
    scene.play(60.0)
    assert scene.shown_times == {time}
    assert {shown for _, _, shown in scene.notices} == {time}


def test_a_conflict_with_another_write_leaves_no_notice_behind() -> None:
    scene = Announced()
    scene.play(10.0)
    scene.candidates.clear()
    scene.conflicts = 1
    scene.play(70.0)
    assert scene.shown_times == {""}
    assert [record.message for record in scene.records] == ["its fault, its quarantine or its rule has ended"]


def test_a_deleted_node_leaves_no_notice_on_the_pods_of_its_gang() -> None:
    scene = Announced()
    group = PodGroupKey("team-a", "gang")
    for uid in scene.gang_uids():
        scene.change(uid, group=group)
    scene.create(OTHER, "elsewhere", "GPU-0", GANG, group=group)
    scene.whole = {group}
    scene.play(10.0)
    [notice] = scene.records
    assert scene.shown_times == {rfc3339(notice.deadline)}
    scene.nodes.discard(NODE)
    scene.candidates.clear()
    scene.pods = {uid: place for uid, place in scene.pods.items() if place[0] == OTHER}
    scene.play(70.0)
    assert scene.shown_times == {""}


def test_pods_that_hold_the_gpu_no_more_lose_their_notice() -> None:
    """As with a kubelet that begins to report the GPUs, where unknown holders are all pods."""
    scene = Announced()
    scene.play(10.0)
    for uid in scene.gang_uids():
        scene.change(uid, gpu_ids=("GPU-1",))
    scene.play(70.0)
    assert scene.shown_times == {""}
    [notice] = scene.records
    assert (notice.state, notice.message) == (
        ActionState.SUCCEEDED,
        "no pod uses the faulty hardware any more",
    )
    scene.play_out()
    assert not scene.evicted


@pytest.mark.parametrize("is_new_leader", [False, True])
def test_a_pod_that_leaves_the_set_loses_its_notice_and_the_others_keep_theirs(is_new_leader: bool) -> None:
    scene = Announced()
    scene.play(10.0)
    [notice] = scene.records
    scene.create(NODE, "late", "GPU-0", GANG)
    scene.play(70.0)
    [late] = [uid for uid in scene.gang_uids() if uid.startswith("late")]
    first, *others = (uid for uid in scene.gang_uids() if uid != late)
    for uid in (first, *[late] * (not is_new_leader)):
        scene.change(uid, gpu_ids=("GPU-1",))
    if is_new_leader:
        scene.lead()
    scene.play(70.0)
    shown = {uid: scene.pods[uid][1].drain_at for uid in (first, *others)}
    assert shown == {first: "", **dict.fromkeys(others, rfc3339(notice.deadline))}
    assert scene.pods[late][1].drain_at == (rfc3339(notice.deadline) if is_new_leader else "")
    assert [record.state for record in scene.records] == [ActionState.RUNNING]
    written = len(scene.notices)
    scene.play(130.0)
    assert len(scene.notices) == written


@pytest.mark.parametrize("fault", ["conflict", "no right"])
def test_a_notice_that_cannot_be_removed_from_a_pod_that_left_is_removed_later(fault: str) -> None:
    scene = Announced()
    scene.play(10.0)
    first = scene.gang_uids()[0]
    scene.change(first, gpu_ids=("GPU-1",))
    scene.conflicts, scene.refusal = int(fault == "conflict"), "" if fault == "conflict" else fault
    scene.play(70.0)
    scene.refusal = ""
    scene.play(70.0)
    assert scene.pods[first][1].drain_at == ""


@pytest.mark.parametrize("gap", [0.0, 30.0])
def test_two_notices_that_end_together_leave_none_behind(gap: float) -> None:
    scene = Announced()
    scene.play(gap)
    scene.candidates["second"] = replace(scene.candidates[NODE], resource="gpu/0000:3b:00")
    scene.play(10.0)
    assert len(scene.records) == 2
    scene.candidates.clear()
    scene.play(70.0)
    assert {record.state for record in scene.records} == {ActionState.SUPERSEDED}
    assert scene.shown_times == {""}
