"""Tests for nodeguard.cli.commands.drain, and drain_preview and drain_requests of an aggregator."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from threading import Timer

import pytest
from msgspec.structs import replace

from nodeguard.cli.main import main
from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.model.action import ActionKind, ActionState
from nodeguard.model.drain import DrainMode, DrainPolicy
from nodeguard.model.eviction import DrainEvent, Eviction, EvictionState, NodeDrain, PodNotice, PodReadError
from nodeguard.model.job import JobRetries
from nodeguard.model.label_selector import LabelSelector
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.pod import DisruptionBudget, NodePod, PodGroupKey, PodKey
from nodeguard.model.policy import InjectionPolicy, SoakPeriod
from tests.aggregator.api.service import RecordingActions, running_api
from tests.cli.fleet_commands import printed, refused
from tests.fleet.scene import Fleet, finding

Command = Callable[..., str]


class Pods:
    """The pods of each node, as the leader reads and evicts them. refusal: of each dry run; empty for none. busy: the
    seconds after which the API server accepts a dry run; 0 for now.
    """

    def __init__(self) -> None:
        keys = (PodKey("team-a", f"train-{number}", f"uid-{number}") for number in range(3))
        ids = (("GPU-1",), ("GPU-1",), ("GPU-2",))
        self.pods = tuple(
            NodePod(key, "1", gpu_ids=gpus, controller="Job", controller_name="train")
            for key, gpus in zip(keys, ids, strict=True)
        )
        self.budgets: tuple[DisruptionBudget, ...] = ()
        self.job = JobRetries("team-a", "train", failed=0, limit=6)
        self.refusal = self.error = self.job_error = ""
        self.busy = 0.0

    async def node_pods(self, node: str) -> tuple[NodePod, ...]:
        assert node == "node-0"
        if self.error:
            raise PodReadError(self.error)
        return self.pods

    async def with_claims(self, node: str, pods: Collection[NodePod]) -> tuple[NodePod, ...]:
        return tuple(pods)

    async def leaves_whole(self, group: PodGroupKey) -> bool:
        raise AssertionError(group)

    async def group_pods(
        self, groups: Collection[PodGroupKey], recorded: Collection[PodKey] | None = None
    ) -> tuple[NodePod, ...]:
        raise AssertionError(groups)

    async def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        assert namespace == "team-a"
        return self.budgets

    async def job_retries(self, namespace: str, name: str) -> JobRetries:
        assert (namespace, name) == (self.job.namespace, self.job.name)
        if self.job_error:
            raise PodReadError(self.job_error)
        return self.job

    async def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        assert is_dry_run
        if self.busy:
            return Eviction(EvictionState.FAILED, "too many requests", self.busy)
        state = EvictionState.REFUSED if self.refusal else EvictionState.ACCEPTED
        return Eviction(state, self.refusal)

    async def write_notice(self, pod: NodePod, notice: PodNotice, *, is_dry_run: bool) -> Eviction:
        raise AssertionError(pod, notice, is_dry_run)

    def record(self, event: DrainEvent) -> None:
        raise AssertionError(event)

    def show(self, drains: Collection[NodeDrain]) -> None:
        raise AssertionError(drains)


@pytest.fixture
def pods() -> Pods:
    return Pods()


@pytest.fixture
def actions(pods: Pods) -> RecordingActions:
    recorded = RecordingActions()
    recorded.drain_cluster = pods
    return recorded


@pytest.fixture
def fleet() -> Fleet:
    """Three nodes of which the first has a lost GPU, and is quarantined; the policy disables drains."""
    fleet = Fleet(3)
    fleet.report(0, finding())
    fleet.after(10.0)
    fleet.carry_out()
    return fleet


@pytest.fixture
def preview(
    fleet: Fleet, actions: RecordingActions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Run the command for a node; returns its output on one line."""
    with running_api(tmp_path, fleet, actions) as address:

        def run(node: str, *words: str, ask: Command = printed, request: bool = False) -> str:
            dry_run = () if request else ("--dry-run",)
            text = ask(capsys, "drain", "node", node, *dry_run, "--socket", address, *words)
            return " ".join(text.split())

        yield run


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
    assert "2 pods would stay: hold on the node: alice debugs team-a/train-0 team-a/train-1" in preview(
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


def test_a_request_waits_for_an_api_server_that_limits_requests(
    preview: Command, drain: Command, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) % 3 == 0:
            pods.busy = 0.0

    def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
        assert main(words) == 0
        output = capsys.readouterr()
        return output.err + output.out

    monkeypatch.setattr("nodeguard.cli.commands.drain.time.sleep", sleep)
    pods.busy = 7.0
    waits = "waits for the API server: pod team-a/train-0: too many requests"
    assert preview("node-0", ask=shown).startswith(f"{waits} Dry run: nothing is evicted.")
    pods.busy = 7.0
    text = drain("node-0", "--yes", ask=shown)
    assert text.count(waits) == 1
    assert "2 pods of node-0 will be evicted: NodeAction drain-" in text
    assert slept == [7.0] * 6


def test_a_request_ends_if_the_api_server_limits_requests_for_long(preview: Command, pods: Pods) -> None:
    pods.busy = 120.0
    text = preview("node-0", ask=refused)
    assert text.endswith("nodeguard drain: nothing is evicted: pod team-a/train-0: too many requests")


def test_what_cannot_be_shown_is_refused(preview: Command, actions: RecordingActions) -> None:
    assert "node 'node-9' not found: " in preview("node-9", ask=refused)
    actions.drain_cluster = None
    assert "leads reads pods: run the command in its pod, replica-0, as" in preview("node-0", ask=refused)


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


@pytest.fixture
def drain(preview: Command, fleet: Fleet) -> Command:
    """Request the drain of a node under a policy that only observes; returns the output on one line."""
    fleet.planner.set_policy(replace(fleet.policy, drain=DrainPolicy(DrainMode.OBSERVE)))
    fleet.after(10.0)

    def run(node: str, *words: str, ask: Command = printed) -> str:
        return preview(node, *words, ask=ask, request=True)

    return run


def test_a_requested_drain_is_recorded_with_its_pods_and_the_name_of_its_operator(
    drain: Command, actions: RecordingActions
) -> None:
    text = drain("node-0", "--yes", "--by", "alice")
    [action] = actions.reserved
    assert text == f"2 pods of node-0 will be evicted: NodeAction {action.key}"
    assert (action.kind, action.uid, action.requested_by) == (ActionKind.DRAIN, "uid-0", "alice")
    assert [str(pod) for pod in action.pods] == ["team-a/train-0", "team-a/train-1"]
    # The same again is the drain that runs already.
    assert json.loads(drain("node-0", "--yes", "-o", "json"))["actions"] == [action.key]
    assert actions.reserved == [action]


def test_a_name_that_is_too_long_is_named(drain: Command, actions: RecordingActions) -> None:
    assert main(["drain", "node", "node-0", "--yes", "--by", "a" * 128, "--socket", "/none"]) == 3

    def invalid(capsys: pytest.CaptureFixture[str], *words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 3
        return capsys.readouterr().err

    text = drain("node-0", "--yes", "--by", "a" * 129, ask=invalid)
    assert "argument --by: a name has at most 128 characters: this one has 129" in text
    assert not actions.reserved


def test_without_a_terminal_a_drain_needs_yes(drain: Command, actions: RecordingActions) -> None:
    text = drain("node-0", ask=refused)
    assert "gpu-lost: 2 pods would be evicted" in text
    assert text.endswith("nodeguard drain: this evicts 2 pods of node-0: add --yes without a terminal")
    assert not actions.reserved


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_question_has_the_number_of_pods_and_no_answer_but_yes_evicts(
    drain: Command, fleet: Fleet, actions: RecordingActions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    text = drain("node-0", ask=refused)
    assert (
        "This evicts 2 pods of node-0, all or none. Type yes to continue: nodeguard drain: nothing was"
        in text
    )
    fleet.report(0, finding(), finding(target="gpu/0000:5d:00", component="GPU-2"))
    fleet.after(10.0)
    fleet.carry_out()
    monkeypatch.setattr("sys.stdin", Terminal(""))
    assert "3 pods of node-0, all or none of each faulty GPU." in drain("node-0", ask=refused)
    assert not actions.reserved
    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    drain("node-0")
    assert len(actions.reserved) == 2


@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_pods_that_stay_are_the_reason_of_a_refusal(
    drain: Command, pods: Pods, actions: RecordingActions, words: tuple[str, ...]
) -> None:
    pods.budgets = (DisruptionBudget("team-a", "gang", LabelSelector(()), allowed=1),)
    text = drain("node-0", *words, ask=refused)
    assert "nothing is evicted: " in text
    assert text.endswith("PodDisruptionBudget team-a/gang allows 1 of 2 evictions now")
    assert not actions.reserved


def test_a_drain_that_has_nothing_to_do_is_refused(
    drain: Command, pods: Pods, actions: RecordingActions
) -> None:
    assert "kubectl drain node-1 empties any node" in drain("node-1", "--yes", ask=refused)
    pods.pods = pods.pods[2:]
    for words in ((), ("--yes",)):
        text = drain("node-0", *words, ask=refused)
        assert text.endswith("nothing is evicted: no pod uses the faulty hardware of node-0")
    assert not actions.reserved


def test_a_node_is_drained_once_in_a_quarantine(
    drain: Command, preview: Command, actions: RecordingActions
) -> None:
    drain("node-0", "--yes")
    [action] = actions.reserved
    message = "1 of 2 pods gone after 30m"
    actions.reserved = [replace(action, state=ActionState.FAILED, message=message)]
    reason = f"it was drained in this quarantine: {message}: delete the pods by hand, or kubectl drain node-0"
    assert f"2 pods would stay: {reason} team-a" in preview("node-0")
    assert drain("node-0", "--yes", ask=refused).endswith(f"the pods of node-0 stay: {reason}")
    actions.reserved = [replace(actions.reserved[0], released_at=1)]
    drain("node-0", "--yes")
    assert [item.attempt for item in actions.reserved] == [1, 2]


def test_a_drain_that_succeeded_is_the_answer_to_the_same_request(
    drain: Command, pods: Pods, actions: RecordingActions
) -> None:
    drain("node-0", "--yes")
    [action] = actions.reserved
    message = "2 pods evicted from node-0"
    actions.reserved = [replace(action, state=ActionState.SUCCEEDED, message=message)]
    pods.pods = pods.pods[2:]
    text = drain("node-0", "--yes", "--wait")
    assert text == message
    assert drain("node-0", "--yes") == f"drained already: {message}: NodeAction {action.key}"
    actions.reserved = [replace(action, state=ActionState.FAILED, message="1 of 2 pods left")]
    assert "no pod uses the faulty hardware of node-0" in drain("node-0", "--yes", ask=refused)


def test_a_second_operator_reads_who_drains_the_node_already(
    drain: Command, actions: RecordingActions
) -> None:
    drain("node-0", "--yes", "--by", "alice")
    [action] = actions.reserved
    actions.reserved = [replace(action, state=ActionState.RUNNING)]
    text = drain("node-0", "--yes", "--by", "bob")
    assert text == f"2 pods of node-0 are being evicted already, requested by alice: NodeAction {action.key}"
    actions.reserved = [replace(action, state=ActionState.RUNNING, requested_by="")]
    text = drain("node-0", "--yes", "--by", "bob")
    assert text == f"2 pods of node-0 are being evicted already: NodeAction {action.key}"


def test_a_disabled_drain_names_the_mode_to_set(preview: Command, actions: RecordingActions) -> None:
    text = preview("node-0", "--yes", ask=refused, request=True)
    assert "set drain.mode: observe in the policy" in text
    assert not actions.reserved


def test_an_operator_waits_for_the_end_of_a_drain(drain: Command, actions: RecordingActions) -> None:
    drain("node-0", "--yes")
    text = "2 pods evicted from node-0"
    actions.reserved = [
        replace(actions.reserved[0], state=ActionState.RUNNING, message="the pods are still ending")
    ]

    def finish(state: ActionState, message: str) -> None:
        actions.reserved = [replace(actions.reserved[0], state=state, message=message)]

    timer = Timer(0.5, finish, (ActionState.SUCCEEDED, text))
    timer.start()
    assert drain("node-0", "--yes", "--wait") == text
    timer.join()
    running = replace(actions.reserved[0], state=ActionState.RUNNING, message="")
    actions.reserved = [running]
    reason = "team-a/train-1 is still ending"
    report = DrainReport(
        "node-0", "uid-0", "", (), 0.0, DrainState.RUNNING, reason, running.pods, remaining=("uid",)
    )
    actions.drains = (report,)
    timer = Timer(0.5, finish, (ActionState.FAILED, "1 of 2 pods left"))
    timer.start()
    text = drain("node-0", "--yes", "--wait", ask=refused)
    timer.join()
    assert f"running, 1 of 2 pods gone: {reason}" in text
    assert text.endswith("not drained: 1 of 2 pods left: see nodeguard describe node node-0")


def test_an_interrupted_wait_leaves_the_drain_running(
    drain: Command, actions: RecordingActions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    def interrupted(capsys: pytest.CaptureFixture[str], *words: str) -> str:
        assert main(words) == 130
        return capsys.readouterr().err

    monkeypatch.setattr("nodeguard.cli.commands.drain.time.sleep", interrupt)
    text = drain("node-0", "--yes", "--wait", ask=interrupted)
    assert "the drain goes on: nodeguard describe node node-0 shows its progress" in text
    assert not actions.reserved[0].state.is_finished


def test_a_wait_that_loses_the_aggregator_names_where_the_drain_is_shown(
    drain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_seconds: float) -> None:
        monkeypatch.setattr("nodeguard.cli.aggregator_client._UnixConnection.connect", refuse)

    def refuse(_connection: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("nodeguard.cli.commands.drain.time.sleep", stop)
    text = drain("node-0", "--yes", "--wait", ask=refused)
    goes_on = "the drain goes on: nodeguard describe node node-0 shows its progress"
    assert f"{goes_on} nodeguard drain: no aggregator answers at" in text
