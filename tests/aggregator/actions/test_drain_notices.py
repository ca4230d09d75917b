"""Notices of drains in virtual time: what they show, and when the pods leave."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_limits import DrainUsage, drain_usage
from nodeguard.fleet.act.drain_notice import WRITE_WITHIN
from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.model.action import ActionState
from nodeguard.model.drain import DrainMode
from nodeguard.model.eviction import Eviction, EvictionState, PodNotice
from nodeguard.model.instant import rfc3339
from nodeguard.model.job import JobRetries
from nodeguard.model.pod import NodePod
from tests.aggregator.actions.announced import AFTER, Announced
from tests.aggregator.actions.drain_replicas import GANG, NODE, OTHER, candidate
from tests.aggregator.actions.drain_scene import GANG_NAMES
from tests.aggregator.actions.replicas import FAULTS, KilledError


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


def test_a_notice_reports_the_jobs_that_the_evictions_will_end() -> None:
    scene = Announced()
    job = JobRetries("team-a", "gang", failed=0, limit=3)
    scene.jobs["team-a", "gang"] = job
    for uid in scene.gang_uids():
        scene.change(uid, controller="Job", batch_job="gang")
    scene.play(10.0)
    [report] = scene.replica.runner.reports()
    cost = "Job team-a/gang would fail: 4 failed pods with the evictions, backoffLimit 3"
    assert (report.state, report.costs) == (DrainState.ANNOUNCED, (cost,))
    scene.lead()
    scene.play(10.0)
    assert [report.costs for report in scene.replica.runner.reports()] == [(cost,)]
    scene.jobs["team-a", "gang"] = replace(job, limit=4)
    scene.play(580.0)
    assert [report.costs for report in scene.replica.runner.reports()] == [(cost,)]
    scene.play(90.0)
    assert [report.costs for report in scene.replica.runner.reports()] == [()]


def test_a_notice_uses_no_limit() -> None:
    scene = Announced()
    scene.play(10.0)
    assert drain_usage(scene.stored(), lambda _: 0.0) == DrainUsage()


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


def test_the_notices_of_two_nodes_do_not_wait_for_each_other() -> None:
    scene = Announced()
    scene.candidates[OTHER] = replace(candidate(OTHER, scene.now), after=AFTER)
    scene.play(10.0)
    assert {record.node for record in scene.records} == {NODE, OTHER}
    asyncio.run(scene.advance(AFTER + 2 * WRITE_WITHIN))
    assert scene.evicted_names == [*GANG_NAMES, "single"]


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


@pytest.mark.parametrize("refuses_dry_runs", [True, False])
def test_a_notice_waits_as_long_as_the_api_server_asks(
    *, refuses_dry_runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Announced()
    write, times = scene.write_notice, list[float]()

    def overloaded(pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        if is_dry_run != refuses_dry_runs:
            return write(pod, notice, is_dry_run=is_dry_run)
        times.append(scene.now)
        return Eviction(EvictionState.FAILED, "too many requests", retry_after=40.0)

    monkeypatch.setattr(scene, "write_notice", overloaded)
    scene.play(39.0)
    assert times
    assert max(times) - min(times) < 1.0
    monkeypatch.setattr(scene, "write_notice", write)
    scene.play(10.0)
    [notice] = scene.records
    assert scene.shown_times == {rfc3339(notice.deadline)}


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
