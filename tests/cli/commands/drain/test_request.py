"""nodeguard drain: which drains an operator requests, and what is asked and refused."""

from __future__ import annotations

import io
import json

import pytest
from msgspec.structs import replace

from nodeguard.cli.main import main
from nodeguard.model.action import ActionKind, ActionState
from nodeguard.model.label_selector import LabelSelector
from nodeguard.model.pod import DisruptionBudget
from tests.aggregator.api.service import RecordingActions
from tests.cli.commands.drain.pods import Command, Pods
from tests.cli.fleet_commands import refused
from tests.fleet.scene import Fleet, finding


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
