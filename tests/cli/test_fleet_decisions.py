"""The commands with decisions of operators: incidents, pause, resume and unmark."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeguard.cli.aggregator_client import AggregatorClient
from nodeguard.cli.commands import incidents
from nodeguard.cli.main import main
from nodeguard.fleet_api.schema.incident import IncidentView
from nodeguard.model.incident import ClearAnswer, FalseAlarm, IncidentState, OperatorDecision
from tests.cli.fleet_commands import ACTIONS, name, printed, refused

pytestmark = pytest.mark.usefixtures("fleet_commands")


WAITING = (ClearAnswer.WAITING, "")


NOT_CLEARED = "gpu-lost on GPU 0000:3b:00 is not cleared: its condition holds now"


def test_a_refused_clear_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "_POLL_INTERVAL", 0.0)
    ACTIONS.answers += [WAITING, WAITING, (ClearAnswer.REFUSED, NOT_CLEARED)]
    assert refused(capsys, "incidents", "clear", name(), "--by", "bob") == (
        f"nodeguard incidents: {name()} is not cleared: {NOT_CLEARED}\n"
    )
    text = " ".join(printed(capsys, "describe", "incident", name()).split())
    assert f" clear requested by bob at noon; refused: {NOT_CLEARED} " in text
    assert "cleared bob" not in text


def test_a_fault_that_ends_before_the_answer_is_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "_POLL_INTERVAL", 0.0)
    ACTIONS.answers += [WAITING, (ClearAnswer.REFUSED, "gpu-lost on GPU 0000:3b:00 is not active")]
    answers = AggregatorClient.get

    def get(client: AggregatorClient, target: str, schema: type[IncidentView]) -> IncidentView:
        view = answers(client, target, schema)
        ended = isinstance(view, IncidentView) and view.clear_result == ClearAnswer.REFUSED
        return replace(view, state=IncidentState.RECOVERING) if ended else view

    monkeypatch.setattr(AggregatorClient, "get", get)
    assert printed(capsys, "incidents", "clear", name()) == "gpu-lost on GPU 0000:3b:00 is not active\n"


def test_control_characters_of_an_agent_are_not_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "_POLL_INTERVAL", 0.0)
    ACTIONS.answers += [(ClearAnswer.REFUSED, "\x1b]0;owned\x07\x1b[2Jno")]
    assert refused(capsys, "incidents", "clear", name()).endswith(" is not cleared: ?]0;owned??[2Jno\n")


def test_a_clear_prints_what_the_agent_did(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "_POLL_INTERVAL", 0.0)
    ACTIONS.answers += [WAITING, (ClearAnswer.DONE, "gpu-lost on GPU 0000:3b:00 is cleared")]
    assert printed(capsys, "incidents", "clear", name()) == "gpu-lost on GPU 0000:3b:00 is cleared\n"
    ACTIONS.decisions.clear()
    words = ("incidents", "clear", name(), "-o", "json")
    assert json.loads(printed(capsys, *words)) == {
        "message": "Done: clear.",
        "clear_result": "done",
        "clear_message": "gpu-lost on GPU 0000:3b:00 is cleared",
    }


def test_a_false_alarm_is_recorded_with_its_clear(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "_POLL_INTERVAL", 0.0)
    ACTIONS.answers += [WAITING, (ClearAnswer.DONE, "gpu-lost on GPU 0000:3b:00 is cleared")]
    words = ("incidents", "clear", name(), "--by", "bob", "--false-alarm", "--reason", "a sensor")
    text = f"{name()} is recorded as a false alarm; gpu-lost on GPU 0000:3b:00 is cleared\n"
    assert printed(capsys, *words) == text
    assert ACTIONS.calls == [("false alarm", name(), "bob", "a sensor"), ("clear", name(), "bob")]
    ACTIONS.decisions.clear()
    ACTIONS.answers[:] = [WAITING, (ClearAnswer.REFUSED, NOT_CLEARED)]
    problem = f"{name()} is recorded as a false alarm, but not cleared: {NOT_CLEARED}\n"
    assert refused(capsys, *words) == f"nodeguard incidents: {problem}"


def test_a_false_alarm_is_withdrawn(capsys: pytest.CaptureFixture[str]) -> None:
    ACTIONS.decisions = {name(): OperatorDecision(name(), false_alarm=FalseAlarm("bob"))}
    words = ("incidents", "withdraw", name(), "--by", "eve", "--reason", "a real fault")
    assert printed(capsys, *words) == "Done: withdraw.\n"
    assert ACTIONS.calls == [("withdraw", name(), "eve", "a real fault")]


def test_a_reason_without_a_false_alarm_is_refused_without_an_aggregator(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    remedy = "--reason is for --false-alarm only: add --false-alarm, or remove --reason"
    words = ("incidents", "clear", "gpu-7/gpu-lost", "--reason", "a sensor")
    assert main([*words, "--socket", str(tmp_path / "missing")]) == 3
    assert remedy in capsys.readouterr().err


def test_a_clear_without_an_answer_is_reported_as_requested(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "ANSWER_TIMEOUT", 0.1)
    monkeypatch.setattr(incidents, "_POLL_INTERVAL", 0.0)
    ACTIONS.answers.append(WAITING)
    assert printed(capsys, "incidents", "clear", name()) == "Done: clear.\n"
    text = " ".join(printed(capsys, "describe", "incident", name()).split())
    assert "; the node's agent has not answered yet " in text


def test_decisions_are_carried_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "pause", "--reason", "a bad driver", "--by", "alice") == "Done: pause.\n"
    assert json.loads(printed(capsys, "resume", "--by", "bob", "-o", "json")) == {"message": "Done: resume."}
    assert printed(capsys, "unmark", "--all", "--yes", "--by", "bob") == "Done: unmark.\n"
    assert (
        printed(capsys, "unmark", "node-1", "--reason", "a false alarm", "--by", "bob") == "Done: unmark.\n"
    )
    assert printed(capsys, "incidents", "acknowledge", name(), "--by", "bob") == "Done: acknowledge.\n"
    assert printed(capsys, "incidents", "clear", name(), "--by", "bob", "--no-wait") == "Done: clear.\n"
    assert ACTIONS.calls == [
        ("pause", "a bad driver", "alice"),
        ("resume", "bob"),
        ("unmark", "bob"),
        ("unmark", "node-1", "a false alarm", "bob"),
        ("acknowledge", name(), "bob"),
        ("clear", name(), "bob"),
    ]
    ACTIONS.error = "replica-1 leads: ask it"
    assert refused(capsys, "pause") == "nodeguard pause: replica-1 leads: ask it\n"


def test_all_marks_are_removed_only_after_a_confirmation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        refused(capsys, "unmark")
        == refused(capsys, "unmark", "--all", "node-1")
        == "nodeguard unmark: name the nodes to unmark, or add --all to remove all marks\n"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    asks = "this pauses nodeguard and removes the marks of 1 node: add --yes without a terminal"
    assert asks in refused(capsys, "unmark", "--all")
    terminal, own = os.openpty()
    for answer, code in ((b"no\n", 3), (b"\n", 3), (b"yes\n", 0)):
        os.write(terminal, answer)
        with os.fdopen(os.dup(own)) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            assert main(["unmark", "--all", "--by", "bob"]) == code
            assert "This pauses nodeguard, then removes its marks from 1 node" in capsys.readouterr().err
    os.close(terminal)
    os.close(own)
    assert ACTIONS.calls == [("unmark", "bob")]
