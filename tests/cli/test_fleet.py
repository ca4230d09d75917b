"""The commands that ask an aggregator: status, incidents, explain node and incident, pause, resume, unmark."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeguard.cli.commands import incidents
from nodeguard.cli.main import main
from nodeguard.model.incident import ClearAnswer
from tests.aggregator.api.service import Deciders, answering
from tests.fleet.decide.test_domain_marks import FIRST, fails, wait
from tests.fleet.decide.test_domain_marks import fleet as leaves
from tests.fleet.scene import Fleet, finding

FLEET = Fleet(12)
DECIDERS = Deciders()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of an aggregator with a sick node."""
    FLEET.say(1, finding())
    FLEET.after(10.0)
    FLEET.carry_out()
    with answering(tmp_path_factory.mktemp("run"), FLEET, DECIDERS) as at:
        yield at


@pytest.fixture(autouse=True)
def _wide(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NODEGUARD_AGGREGATOR_SOCKET", path)
    DECIDERS.heard.clear()
    DECIDERS.refuses = ""
    DECIDERS.decisions.clear()
    DECIDERS.answers.clear()


def name() -> str:
    return next(iter(FLEET.planner.incidents["uid-1"]))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 3
    return capsys.readouterr().err


def test_the_fleet_is_told_in_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "status")
    assert text.startswith("FATAL  12 nodes: 1 fatal.\n  agents    12 expected, 12 reporting\n")
    assert f"nodeguard explain incident {name()}" in text
    assert json.loads(said(capsys, "status", "--format", "json"))["nodes"]["fatal"] == 1


def test_a_node_and_an_incident_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "explain", "node", "node-1")
    assert text.startswith("FATAL  node-1: all new work is kept off it for gpu-lost.\n")
    assert "  waits for gpu-lost to find it no more; it finds it still\n" in text
    assert said(capsys, "explain", "incident", name()).startswith(
        "FATAL  gpu-lost - GPU 0000:3b:00 of node-1\n"
    )
    told = json.loads(said(capsys, "explain", "--format", "json", "node", "node-1"))
    assert [mark["wait"]["on"] for mark in told["marks"]] == ["finding"]
    for words in (["incident", "--format", "json", name()], ["incident", name(), "--format", "json"]):
        assert json.loads(said(capsys, "explain", *words))["node"] == "node-1"
    assert said(capsys, "explain", "gpu-lost").startswith("gpu-lost - ")


def test_incidents_are_listed_and_narrowed(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "incidents")
    assert [line.split() for line in text.splitlines()] == [
        ["HEALTH", "STATE", "AGE", "CAUSE", "INCIDENT"],
        ["fatal", "marked", "1", "min", "10", "s", "gpu-lost", name()],
        [],
        ["1", "incident"],
    ]
    assert said(capsys, "incidents", "--node", "node-1", "--state", "Marked", "--all") == text
    assert said(capsys, "incidents", "--state", "withheld", "--state", "open") == "no incidents\n"
    assert said(capsys, "incidents", "--node", "node-2") == "no incidents\n"
    assert json.loads(said(capsys, "incidents", "--format", "json"))["more"] == 0


WAITING = (ClearAnswer.WAITING, "")
NOT_CLEARED = "gpu-lost on GPU 0000:3b:00 is not cleared: its condition holds now"


def test_a_clear_that_the_agent_refuses_is_not_said_to_have_worked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "_EVERY", 0.0)
    DECIDERS.answers += [WAITING, WAITING, (ClearAnswer.REFUSED, NOT_CLEARED)]
    assert refused(capsys, "incidents", "clear", name(), "--by", "bob") == (
        f"nodeguard incidents: {name()} is not cleared: {NOT_CLEARED}\n"
    )
    text = " ".join(said(capsys, "explain", "incident", name()).split())
    assert f" clear asked by bob at noon; refused: {NOT_CLEARED} " in text
    assert "cleared bob" not in text


def test_the_words_of_an_agent_cannot_drive_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "_EVERY", 0.0)
    DECIDERS.answers += [(ClearAnswer.REFUSED, "\x1b]0;owned\x07\x1b[2Jno")]
    assert refused(capsys, "incidents", "clear", name()).endswith(" is not cleared: ?]0;owned??[2Jno\n")


def test_a_clear_prints_what_the_agent_did(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "_EVERY", 0.0)
    DECIDERS.answers += [WAITING, (ClearAnswer.DONE, "gpu-lost on GPU 0000:3b:00 is cleared")]
    assert said(capsys, "incidents", "clear", name()) == "gpu-lost on GPU 0000:3b:00 is cleared\n"
    DECIDERS.decisions.clear()
    words = ("incidents", "clear", name(), "--format", "json")
    assert json.loads(said(capsys, *words)) == {
        "said": "Done: clear.",
        "answer": "done",
        "answer_says": "gpu-lost on GPU 0000:3b:00 is cleared",
    }


def test_a_clear_that_is_not_answered_in_time_says_that_it_was_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "WAIT", 0.1)
    monkeypatch.setattr(incidents, "_EVERY", 0.0)
    DECIDERS.answers.append(WAITING)
    assert said(capsys, "incidents", "clear", name()) == "Done: clear.\n"
    text = " ".join(said(capsys, "explain", "incident", name()).split())
    assert "; the node's agent has not answered yet " in text


def test_decisions_are_carried_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "pause", "--why", "a bad driver", "--by", "alice") == "Done: pause.\n"
    assert json.loads(said(capsys, "resume", "--by", "bob", "--format", "json")) == {
        "message": "Done: resume."
    }
    assert said(capsys, "unmark", "--all", "--yes", "--by", "bob") == "Done: unmark.\n"
    assert said(capsys, "incidents", "acknowledge", name(), "--by", "bob") == "Done: acknowledge.\n"
    assert said(capsys, "incidents", "clear", name(), "--by", "bob", "--no-wait") == "Done: clear.\n"
    assert DECIDERS.heard == [
        ("pause", "a bad driver", "alice"),
        ("resume", "bob"),
        ("unmark", "bob"),
        ("acknowledge", name(), "bob"),
        ("clear", name(), "bob"),
    ]
    DECIDERS.refuses = "replica-1 leads: ask it"
    assert refused(capsys, "pause") == "nodeguard pause: replica-1 leads: ask it\n"


def test_every_mark_is_taken_away_only_where_somebody_says_yes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refused(capsys, "unmark") == "nodeguard unmark: it takes every mark away: say --all\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    asks = "it pauses and takes the marks off 1 node: say --yes where nobody can be asked"
    assert asks in refused(capsys, "unmark", "--all")
    terminal, own = os.openpty()
    for answer, code in ((b"no\n", 3), (b"\n", 3), (b"yes\n", 0)):
        os.write(terminal, answer)
        with os.fdopen(os.dup(own)) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            assert main(["unmark", "--all", "--by", "bob"]) == code
            assert (
                "This pauses nodeguard first, and then takes its marks off 1 node" in capsys.readouterr().err
            )
    os.close(terminal)
    os.close(own)
    assert DECIDERS.heard == [("unmark", "bob")]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["explain", "node", "node-111"], "'node-111' is no node: did you mean node-11 or node-1"),
        (["explain", "node", "a/../b?c#d"], "'a/../b?c#d' is no node: see kubectl get nodes"),
        (["explain", "node", "\udcff"], "is no node: see kubectl get nodes"),
        (["explain", "incident", "node-1-gpu-0000-3b-00"], "is no incident: did you mean node-1-gpu-0000-3b-00-"),
        (["explain", "node"], "'node' takes one name: write nodeguard explain node NAME"),
        (["explain", "node", "a", "b"], "'node' takes one name: write nodeguard explain node NAME"),
        (["incidents", "--node", "node-99"], "'node-99' is no node: did you mean node-9"),
        (["incidents", "--state", "witheld"], "'witheld' is no state: did you mean withheld? Or write open, "),
        (["incidents", "clear", "no"], "'no' is no incident: see nodeguard incidents --all"),
        (["pause", "--why", "x" * 600], "both sides must be of one version"),
        (["pause", "--why", "\udcff"], "is no UTF-8: write it anew"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_ends_with_3(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert main(words) == 3
    except SystemExit as left:
        assert left.code == 3
    assert error in capsys.readouterr().err
    assert DECIDERS.heard == []


def test_without_an_aggregator_it_is_said_where_one_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = str(tmp_path / "aggregator.sock")
    for words in (["status"], ["explain", "node", "a b"], ["incidents", "--all"], ["pause"]):
        error = refused(capsys, *words, "--socket", where)
        assert f"no aggregator answers at {where} (" in error
        assert "kubectl exec -n nodeguard deploy/nodeguard-aggregator -- nodeguard " in error
    assert "explain node 'a b'" in refused(capsys, "explain", "node", "a b", "--socket", where)


def test_what_is_no_aggregator_is_said_to_be_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = str(tmp_path / "aggregator.sock")
    for answer, error in (
        (b"", "no aggregator answers at"),
        (b"hello\n", "no aggregator answers at"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "the answer is not understood"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 1\r\n\r\nx", "the answer is not understood"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "no aggregator answers at"),
    ):
        with socket.socket(socket.AF_UNIX) as own:
            Path(where).unlink(missing_ok=True)
            own.bind(where)
            own.listen()

            def reply(own: socket.socket = own, answer: bytes = answer) -> None:
                with own.accept()[0] as peer:
                    peer.recv(4096)
                    peer.sendall(answer)

            thread = threading.Thread(target=reply)
            thread.start()
            assert error in refused(capsys, "status", "--socket", where)
            thread.join()


def test_the_commands_import_no_server(path: str) -> None:
    code = (
        "import sys; from nodeguard.cli.main import main; code = main(sys.argv[1:]);"
        "loaded = {'aiohttp', 'kubernetes', 'jwt', 'uvloop', 'asyncio'} & set(sys.modules);"
        "sys.exit(str(loaded) if loaded else code)"
    )
    for words in (["status"], ["explain", "node", "node-1"], ["incidents"], ["pause"]):
        ran = subprocess.run(
            [sys.executable, "-c", code, *words, "--socket", path],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")


@pytest.fixture(scope="module")
def leaf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of an aggregator that blames a leaf."""
    made = leaves()
    fails(made)
    wait(made, 20.0)
    with answering(tmp_path_factory.mktemp("leaf"), made, DECIDERS) as at:
        yield at


def test_a_domain_is_explained(
    leaf: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODEGUARD_AGGREGATOR_SOCKET", leaf)
    whole = said(capsys, "explain", "domain", FIRST)
    assert whole.startswith(f"SUSPECT  {FIRST}: 8 of 8 nodes lost a link at once; its 4 siblings did not.\n")
    assert said(capsys, "explain", "domain", "r0") == whole
    told = json.loads(said(capsys, "explain", "domain", "r0", "--format", "json"))
    assert (told["domain"], told["state"], len(told["votes"])) == (FIRST, "Marked", 8)
    assert said(capsys, "explain", "domain").startswith(
        "SUSPECT  1 domain to blame, 1 more shows something.\n"
    )
    assert json.loads(said(capsys, "explain", "domain", "--format", "json"))["domains"][0]["domain"] == FIRST
    name = told["incident"]
    assert f"nodeguard explain domain {FIRST}\n" in said(capsys, "explain", "incident", name)
    for word, error in (
        ("r22", "'r22' is no domain: did you mean r2"),
        ("fabric/p0/r33", "'fabric/p0/r33' is no domain: did you mean fabric/p0/r3"),
        ("xyz", "'xyz' is no domain: see nodeguard explain domain"),
    ):
        assert error in refused(capsys, "explain", "domain", word)
    assert "'domain' takes one name" in refused(capsys, "explain", "domain", "a", "b")
