"""nodeguard drain --dry-run: what would leave, or why not."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.model.eviction import Eviction
from nodeguard.model.label_selector import LabelSelector
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.pod import DisruptionBudget, NodePod, PodKey
from nodeguard.model.policy import InjectionPolicy, SoakPeriod
from tests.aggregator.api.service import RecordingActions
from tests.cli.commands.drain.pods import Command, Pods
from tests.cli.fleet_commands import refused
from tests.fleet.scene import Fleet, finding


def test_the_pods_of_the_faulty_gpu_are_shown_whatever_the_rules_of_the_policy(preview: Command) -> None:
    assert preview("node-0") == (
        "Dry run: nothing is evicted. "
        "GPU 0000:3b:00 gpu-lost: 2 pods would be evicted team-a/train-0 team-a/train-1"
    )
    [drain] = json.loads(preview("node-0", "-o", "json"))["drains"]
    assert drain["state"] == "would-drain"
    assert [pod["name"] for pod in drain["pods"]] == ["train-0", "train-1"]


def test_a_job_that_the_evictions_would_end_is_named(preview: Command, pods: Pods) -> None:
    pods.job = replace(pods.job, limit=1)
    cost = "cost Job team-a/train would fail: 2 failed pods with the evictions, backoffLimit 1"
    assert preview("node-0").endswith(f"team-a/train-1 {cost}")
    pods.job_error = "jobs is forbidden"
    unknown = "cost it is not known whether Job team-a/train would fail: jobs is forbidden"
    assert preview("node-0").endswith(unknown)
    pods.refusal = "a webhook refuses"
    assert "cost" not in preview("node-0")


def test_a_budget_that_allows_a_part_keeps_all(preview: Command, pods: Pods) -> None:
    pods.budgets = (DisruptionBudget("team-a", "gang", LabelSelector(()), allowed=1),)
    reason = "PodDisruptionBudget team-a/gang allows 1 of 2 evictions now"
    assert f"gpu-lost: 2 pods would stay: {reason}" in preview("node-0")


def test_the_answers_of_the_api_server_are_shown(preview: Command, pods: Pods) -> None:
    pods.refusal = "a webhook refuses"
    assert "2 pods would stay: pod team-a/train-0: a webhook refuses" in preview("node-0")
    pods.error = "pods is forbidden"
    assert preview("node-0").endswith("gpu-lost: pods is forbidden")


def test_a_hold_keeps_the_pods_and_they_are_shown(preview: Command, fleet: Fleet) -> None:
    fleet.change(0, annotations={**fleet.nodes["uid-0"].annotations, HOLD_ANNOTATION: "alice debugs"})
    assert "2 pods would stay: the node is on hold: alice debugs team-a/train-0 team-a/train-1" in preview(
        "node-0"
    )


def test_a_running_drain_is_shown_as_it_is(preview: Command, fleet: Fleet, actions: RecordingActions) -> None:
    keys = (PodKey("team-a", "train-0", "uid-0"),)
    running = DrainReport(
        "node-0", "uid-0", "gpu/0000:3b:00", ("gpu-lost",), fleet.wall, DrainState.RUNNING, "it ends", keys
    )
    actions.drains = (running,)
    assert "gpu-lost: 1 pod is being evicted: it ends team-a/train-0" in preview("node-0")


def test_a_node_without_pods_on_the_gpu_has_nothing_to_evict(preview: Command, pods: Pods) -> None:
    pods.pods = pods.pods[2:]
    assert preview("node-0").endswith("gpu-lost: no pod to evict")


def test_a_pod_that_does_not_end_is_shown(preview: Command, drain: Command, pods: Pods) -> None:
    """It hangs on the GPU that was lost: no eviction helps, and the hardware still has work."""
    pods.pods = tuple(replace(pod, is_terminating=True) for pod in pods.pods)
    ending = "pods team-a/train-0, team-a/train-1 are still ending"
    assert preview("node-0").endswith(f"gpu-lost: {ending}")
    text = drain("node-0", "--yes", ask=refused)
    assert text.endswith(f"nothing is evicted: {ending}")


def test_a_node_without_a_quarantine_is_for_kubectl(preview: Command) -> None:
    text = "node-1 no quarantine of a fatal fault is observed on it: kubectl drain node-1 empties any node"
    assert text in preview("node-1")


def test_a_quarantine_that_drains_nothing_is_named(preview: Command, fleet: Fleet) -> None:
    fleet.planner.set_policy(replace(fleet.policy, soak=SoakPeriod()))
    fleet.report(0)
    fleet.carry_out()
    text = "node-0 its quarantine has no fault that is fatal now: kubectl drain node-0 empties any node"
    assert text in preview("node-0")
    fleet.planner.set_policy(replace(fleet.policy, injection=InjectionPolicy(allowed=True)))
    fleet.report(1, injected=(finding(),))
    fleet.after(10.0)
    fleet.carry_out()
    assert "node-1 its quarantine is of an injected fault: kubectl drain node-1" in preview("node-1")


def test_what_cannot_be_shown_is_refused(preview: Command, actions: RecordingActions) -> None:
    assert "node 'node-9' not found: " in preview("node-9", ask=refused)
    actions.drain_cluster = None
    assert "only the leader reads pods: run the command in its pod, replica-0, as" in preview(
        "node-0", ask=refused
    )


def test_a_preview_has_the_time_that_many_dry_runs_take(
    preview: Command, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict = pods.evict

    async def slowly(pod: NodePod, *, is_dry_run: bool) -> Eviction:
        await asyncio.sleep(0.4)
        return await evict(pod, is_dry_run=is_dry_run)

    monkeypatch.setattr("nodeguard.cli.aggregator_client._QUERY_TIMEOUT", 0.2)
    monkeypatch.setattr(pods, "evict", slowly)
    assert "2 pods would be evicted" in preview("node-0")
