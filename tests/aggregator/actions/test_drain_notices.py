"""Notices of drains in virtual time: the rule of the candidate has a deadline ten minutes after the notice."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_limits import drain_usage
from nodeguard.fleet.act.drain_notice import WRITE_WITHIN
from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.drain import DrainMode
from nodeguard.model.eviction import Eviction, EvictionState, PodNotice
from nodeguard.model.instant import rfc3339
from nodeguard.model.pod import NodePod, PodGroupKey
from tests.aggregator.actions.drain_replicas import GANG, NODE, OTHER, candidate
from tests.aggregator.actions.replicas import FAULTS, KilledError
from tests.aggregator.actions.test_drains import GANG_NAMES, Scene

AFTER = 600.0


class Announced(Scene):
    """A faulty GPU with the four pods of a gang, which are evicted some time after a notice."""

    def __init__(self, minimum: int = 0) -> None:
        super().__init__(minimum)
        self.candidates[NODE] = replace(self.candidates[NODE], after=AFTER)
        self.began = self.now
        self.refusal = ""
        self.conflicts = self.asked = 0

    def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        self.asked += is_dry_run
        if self.conflicts and not is_dry_run:
            self.conflicts -= 1
            return Eviction(EvictionState.CHANGED, "the pod has been modified")
        if self.refusal:
            return Eviction(EvictionState.FORBIDDEN, self.refusal)
        return super().write_notice(pod, notice, is_dry_run=is_dry_run)

    @property
    def records(self) -> list[NodeAction]:
        """Return the notices, in the order of their attempts."""
        found = [action for action in self.stored() if action.kind == ActionKind.DRAIN_NOTICE]
        return sorted(found, key=lambda action: action.attempt)

    @property
    def drains(self) -> list[NodeAction]:
        return [action for action in self.stored() if action.kind == ActionKind.DRAIN]

    @property
    def shown_times(self) -> set[str]:
        """Return what the pods of the gang show that are not terminating."""
        return {pod.drain_at for _, pod in self.pods.values() if pod.labels and not pod.is_terminating}

    def gang_uids(self) -> list[str]:
        return [uid for uid, (_, pod) in self.pods.items() if pod.labels]

    @property
    def first_eviction(self) -> float:
        return min(self.evicted.values(), default=0.0)

    def agree(self, *names: str) -> None:
        for uid, (_, pod) in tuple(self.pods.items()):
            if pod.key.name in names:
                self.change(uid, agrees_to_leave=True)

    def play_out(self) -> None:
        """Play until well after the deadline of a notice that was recorded just now."""
        self.play(AFTER + WRITE_WITHIN + 120.0)


def test_all_pods_have_notice_before_the_drain_is_recorded_at_its_time() -> None:
    scene = Announced()
    scene.play(10.0)
    [notice] = scene.records
    assert scene.shown_times == {rfc3339(notice.deadline)}
    assert notice.deadline - notice.begun_at >= AFTER
    assert ([pod.name for pod in notice.pods], scene.drains) == (GANG_NAMES, [])
    [report] = scene.replica.runner.reports()
    assert (report.state, report.evict_at, len(report.pods)) == (DrainState.ANNOUNCED, notice.deadline, 4)
    scene.play_out()
    assert scene.evicted_names == GANG_NAMES
    assert notice.deadline <= scene.first_eviction < notice.deadline + 60.0
    [drain] = scene.drains
    assert (drain.state, drain.carried_out) == (ActionState.SUCCEEDED, 4)
    assert [record.state for record in scene.records] == [ActionState.SUPERSEDED]
    assert len(scene.notices) == 4


def test_a_notice_uses_no_limit() -> None:
    scene = Announced()
    scene.play(10.0)
    usage = drain_usage(scene.stored(), lambda _: 0.0)
    assert (usage.running, usage.recent) == (set(), 0)


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


def test_a_set_leaves_early_only_if_all_its_pods_agree() -> None:
    scene = Announced()
    scene.play(10.0)
    scene.agree(*GANG_NAMES[:3])
    scene.play(90.0)
    assert not scene.evicted
    scene.agree(GANG_NAMES[3])
    scene.play(70.0)
    assert scene.evicted_names == GANG_NAMES
    assert scene.first_eviction < scene.records[0].begun_at + AFTER


def test_a_pod_that_comes_after_the_others_agreed_does_not_leave_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Announced()
    scene.play(10.0)
    scene.agree(*GANG_NAMES)
    evict = scene.evict

    def late(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if all(stored.key.name != "late" for _, stored in scene.pods.values()):
            scene.create(NODE, "late", "GPU-0", GANG)
        return evict(pod, is_dry_run=is_dry_run)

    monkeypatch.setattr(scene, "evict", late)
    scene.play(120.0)
    assert not scene.evicted
    [notice] = scene.records
    assert scene.shown_times == {rfc3339(notice.deadline)}
    scene.play_out()
    assert scene.evicted_names == [*GANG_NAMES, "late"]
    assert scene.first_eviction >= notice.deadline


@pytest.mark.parametrize("forged", ["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "soon", ""])
def test_what_owners_write_changes_no_time(forged: str) -> None:
    scene = Announced()
    scene.play(10.0)
    [notice] = scene.records
    while scene.now < notice.deadline + 60.0 and not scene.evicted:
        for uid in scene.gang_uids():
            if scene.pods[uid][1].drain_at != forged:
                scene.change(uid, drain_at=forged)
        scene.play(20.0)
    assert notice.deadline <= scene.first_eviction < notice.deadline + 60.0
    assert {time for _, _, time in scene.notices} == {rfc3339(notice.deadline)}


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


def test_observe_touches_no_pod() -> None:
    scene = Announced()
    scene.mode = DrainMode.OBSERVE
    scene.play_out()
    assert (scene.notices, scene.stored()) == ([], [])
    [report] = scene.replica.runner.reports()
    assert (report.state, report.reason) == (DrainState.WOULD_DRAIN, "after a notice of 10m")


def test_without_the_right_no_pod_is_evicted_and_the_reason_is_shown() -> None:
    scene = Announced()
    scene.refusal = "no right"
    scene.play_out()
    assert not scene.stored()
    [report] = scene.replica.runner.reports()
    assert (report.state, report.reason) == (DrainState.WAITS, "pod team-a/gang-0: no right")
    scene.refusal = ""
    scene.play(70.0)
    [notice] = scene.records
    assert scene.shown_times == {rfc3339(notice.deadline)}


def test_a_right_that_is_lost_ends_no_notice_early_or_late() -> None:
    scene = Announced()
    scene.play(10.0)
    scene.refusal = "no right"
    scene.play_out()
    [notice] = scene.records
    assert notice.deadline <= scene.first_eviction < notice.deadline + 60.0


def test_a_set_that_cannot_leave_gets_no_notice() -> None:
    scene = Announced()
    for uid in scene.gang_uids():
        scene.change(uid, controller="")
    scene.play(90.0)
    assert (scene.notices, scene.stored()) == ([], [])
    assert "no controller" in scene.reason


def test_a_pause_begins_no_notice_and_stops_no_clock() -> None:
    scene = Announced()
    present = scene.candidates[NODE]
    scene.candidates[NODE] = replace(present, blocker="paused")
    scene.play(60.0)
    assert not scene.notices
    scene.candidates[NODE] = present
    scene.play(10.0)
    scene.candidates[NODE] = replace(present, blocker="paused")
    scene.play_out()
    assert not scene.evicted
    assert scene.shown_times == {rfc3339(scene.records[0].deadline)}
    scene.candidates[NODE] = present
    scene.play(10.0)
    assert scene.evicted_names == GANG_NAMES


def test_a_worse_fault_evicts_at_once() -> None:
    scene = Announced()
    scene.play(60.0)
    scene.candidates[NODE] = replace(scene.candidates[NODE], after=0.0)
    scene.play(5.0)
    assert scene.evicted_names == GANG_NAMES


def test_a_pod_of_two_notices_shows_the_earlier_time_and_keeps_the_later_one() -> None:
    scene = Announced()
    scene.play(30.0)
    later = replace(scene.candidates[NODE], resource="gpu/0000:3b:00")
    present = scene.candidates[NODE]
    scene.candidates["second"] = later
    scene.play(90.0)
    first, second = sorted(scene.records, key=lambda action: action.deadline)
    assert first.request != second.request
    assert scene.shown_times == {rfc3339(first.deadline)}
    del scene.candidates[NODE]
    scene.play(70.0)
    assert scene.shown_times == {rfc3339(second.deadline)}
    assert "" not in {shown for _, _, shown in scene.notices}, "no pod is reported as safe in between"
    scene.candidates[NODE] = present


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_a_successor_keeps_the_recorded_time(ahead: float) -> None:
    """It counts by its own clock; one that is behind never reads a later time into the record."""
    scene = Announced()
    scene.play(10.0)
    [notice] = scene.records
    scene.lead(ahead)
    scene.play(30.0)
    assert [record.deadline for record in scene.records] == [notice.deadline]
    assert scene.shown_times in ({rfc3339(notice.deadline)}, set())
    scene.play_out()
    assert scene.evicted_names == (GANG_NAMES if ahead >= 0.0 else scene.evicted_names)
    assert [drain.attempt for drain in scene.drains] in ([1], [])


def test_a_jump_of_the_clock_moves_no_time() -> None:
    scene = Announced()
    scene.play(10.0)
    [notice] = scene.records
    scene.replica.ahead = 7200.0
    scene.play(60.0)
    assert not scene.evicted
    scene.play_out()
    assert notice.deadline <= scene.first_eviction < notice.deadline + 60.0


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("after", range(0, 14, 2))
def test_a_fault_at_any_request_shortens_no_notice(fault: str, after: int) -> None:
    scene = Announced()
    scene.replica.fault = (after, fault)
    with suppress(KilledError):
        scene.play(30.0)
    scene.lead()
    scene.play(30.0)
    [*_, notice] = scene.records
    written: dict[str, float] = {}
    for time, name, shown in scene.notices:
        if shown == rfc3339(notice.deadline):
            written.setdefault(name, time)
    assert sorted(written) == GANG_NAMES
    scene.play(2 * (AFTER + WRITE_WITHIN))
    assert scene.evicted_names == GANG_NAMES
    for name, time in written.items():
        [left] = [at for uid, at in scene.evicted.items() if uid.startswith(name)]
        assert left - time >= AFTER


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


def test_the_notices_of_two_nodes_do_not_wait_for_each_other() -> None:
    scene = Announced()
    scene.candidates[OTHER] = replace(candidate(OTHER, scene.now), after=AFTER)
    scene.play(10.0)
    assert {record.node for record in scene.records} == {NODE, OTHER}
    asyncio.run(scene.advance(AFTER + 2 * WRITE_WITHIN))
    assert scene.evicted_names == [*GANG_NAMES, "single"]


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


@pytest.mark.parametrize("is_new_leader", [False, True])
def test_a_fault_that_is_not_read_for_a_while_puts_no_eviction_off(*, is_new_leader: bool) -> None:
    """As after a restart, until the agent reports to the new process."""
    scene = Announced()
    scene.play(10.0)
    [notice] = scene.records
    present, scene.candidates = scene.candidates, {}
    scene.unread = {NODE}
    if is_new_leader:
        scene.lead()
    scene.play(60.0)
    assert scene.shown_times == {rfc3339(notice.deadline)}
    scene.candidates, scene.unread = present, set()
    scene.play_out()
    assert [record.key for record in scene.records] == [notice.key]
    assert notice.deadline <= scene.first_eviction < notice.deadline + 60.0


def test_a_fault_that_is_not_read_at_the_time_of_its_notice_evicts_nothing() -> None:
    scene = Announced()
    scene.play(10.0)
    scene.candidates.clear()
    scene.unread = {NODE}
    scene.play_out()
    assert not scene.evicted
    scene.unread.clear()
    scene.play(70.0)
    assert scene.shown_times == {""}


def test_a_conflict_with_another_write_leaves_no_pod_without_its_notice() -> None:
    scene = Announced()
    scene.conflicts = 1
    scene.play(2.0)
    [notice] = scene.records
    assert not notice.begun_at
    scene.play(20.0)
    [notice] = scene.records
    assert notice.begun_at
    assert scene.shown_times == {rfc3339(notice.deadline)}


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


def test_a_refusal_costs_few_requests_for_many_pods() -> None:
    scene = Announced()
    for number in range(100):
        scene.create(NODE, f"more-{number}", "GPU-0", GANG)
    scene.sync()
    scene.refusal = "no right"
    scene.play(1.0)
    assert 0 < scene.asked <= 8
    scene.refusal = ""
    scene.play(70.0)
    assert scene.records[0].begun_at
    assert len(scene.notices) == 104


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


def test_a_pod_that_agrees_no_more_stays_while_no_pod_was_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a leader that is killed between the record of the begin and the first eviction."""
    scene = Announced()
    scene.play(10.0)
    scene.agree(*GANG_NAMES)
    evict = scene.evict

    def changed(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        return evict(pod, is_dry_run=True) if is_dry_run else Eviction(EvictionState.CHANGED)

    monkeypatch.setattr(scene, "evict", changed)
    while not any(drain.begun_at for drain in scene.drains):
        scene.play(1.0)
    for uid in scene.gang_uids():
        scene.change(uid, agrees_to_leave=False)
    monkeypatch.setattr(scene, "evict", evict)
    scene.lead()
    scene.play(60.0)
    assert not scene.evicted
    scene.play_out()
    assert scene.evicted_names == GANG_NAMES
    assert scene.first_eviction >= scene.records[0].deadline
