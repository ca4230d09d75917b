"""nodeguard drain: waits for the API server, and for the end of the drain."""

from __future__ import annotations

from threading import Timer

import pytest
from msgspec.structs import replace

from nodeguard.cli.main import main
from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.model.action import ActionState
from tests.aggregator.api.service import RecordingActions
from tests.cli.commands.drain.pods import Command, Pods
from tests.cli.fleet_commands import refused


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
