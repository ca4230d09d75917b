"""The commands that query an aggregator: templates, --watch and errors."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from argparse import Namespace
from pathlib import Path

import pytest

from nodeguard.cli.aggregator_client import AggregatorClient
from nodeguard.cli.main import main
from nodeguard.cli.resource_lists import _get_of_node
from nodeguard.cli.usage import UsageError
from nodeguard.fleet_api.schema.action import ActionList
from tests.cli.fleet_commands import ACTIONS, name, printed, refused

pytestmark = pytest.mark.usefixtures("fleet_commands")


def test_the_status_is_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "status")
    assert text.startswith("FATAL  12 nodes: 1 fatal.\n  agents      12 of 12 reporting\n")
    assert f"nodeguard describe incident {name()}" in text
    assert json.loads(printed(capsys, "status", "-o", "json"))["nodes"]["fatal"] == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["get", "nodes", "-o", "jsonpath={.nodes[1].node}"], "node-1\n"),
        (["get", "nodes", "node-2*", "-o=jsonpath={range .nodes[*]}{.node}{'\\t'}{.health}{'\\n'}{end}"],
            "node-2\tok\n"),
        (["get", "incidents", "--health", "warning", "-o", "jsonpath={.incidents[*].name}"], ""),
        (["get", "checks", "gpu-lost", "-o", "jsonpath={[0].health}"], "fatal\n"),
        (["status", "--output", "jsonpath={.nodes.fatal}"], "1\n"),
        (["describe", "node", "node-1", "-o", "jsonpath={.findings[?(@.health=='fatal')].check}"], "gpu-lost\n"),
    ],
)  # fmt: skip
def test_a_template_prints_fields(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, *words) == expected


def test_a_template_that_does_not_fit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "get", "nodes", "-o", "jsonpath={.items[*].node}") == (
        "nodeguard get: the output has no field 'items': its fields are version, at, nodes\n"
    )
    with pytest.raises(SystemExit, match="3"):
        main(["get", "nodes", "-o", "jsonpath={.nodes[*.node}"])
    assert "argument -o/--output: jsonpath: template, character 8: expected " in capsys.readouterr().err


@pytest.mark.parametrize("template", ["jsonpath-file=x", "custom-columns=NAME:.node", "go-template"])
def test_a_template_of_another_kind_is_refused_with_the_remedy(
    template: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["get", "nodes", "-o", template])
    remedy = "is not supported: write -o jsonpath='{.nodes[*].node}', or pipe -o json to jq"
    assert f"'{template.partition('=')[0]}' {remedy}; see " in capsys.readouterr().err


def test_watch_refreshes_until_it_is_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("nodeguard.cli.progress.time.sleep", sleep)
    assert main(["status", "-w", "--interval", "5s"]) == 130
    assert capsys.readouterr().out.count("FATAL  12 nodes: 1 fatal.") == 2
    assert pauses == [5.0, 5.0]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["describe", "node", "node-111"], "node 'node-111' not found: did you mean node-11 or node-1"),
        (["describe", "node", "a/../b?c#d"], "node 'a/../b?c#d' not found: see nodeguard get nodes"),
        (["describe", "node", "\udcff"], "not found: see nodeguard get nodes"),
        (["describe", "incident", "node-1-gpu-0000-3c-00"], "not found: did you mean node-1-gpu-0000-3b-00-"),
        (["describe", "node-111"], "'node-111' is no node, domain or incident: did you mean node-11 or node-1"),
        (["describe"], "the following arguments are required: node | incident | domain"),
        (["describe", "node/"], "'node/' is invalid: did you mean node? Or expected node, incident, domain"),
        (["describe", "node"], "the following arguments are required: NAME"),
        (["describe", "nod", "a"], "'nod' is invalid: did you mean node? Or expected node, incident, domain"),
        (["describe", "node", "a", "b"], "unrecognized arguments: b"),
        (["explain", "node", "node-1"], "write nodeguard describe node NAME"),
        (["get", "incidents", "--node", "node-99"], "node 'node-99' not found: did you mean node-9"),
        (["get", "incidents", "--state", "witheld"], "state 'witheld' is unknown: did you mean withheld? Or "),
        (["get", "nodes", "--sort-by", "helth"], "field 'helth' is unknown: did you mean health? Or "),
        (["get", "nodes", "node-99"], "node 'node-99' not found: did you mean node-9"),
        (["get", "gpus", "GPU-9", "-o", "json"], "gpu 'GPU-9' not found: did you mean GPU-1? Or see nodeguard get gpus"),
        (["get", "ports", "x"], "port 'x' not found: see nodeguard get ports"),
        (["get", "incidents", "x"], "incident 'x' not found: see nodeguard get incidents --all"),
        (["get", "domains", "x/y"], "domain 'x/y' not found: see nodeguard get domains --all"),
        (["get", "checks", "gpu-lots"], "check 'gpu-lots' not found: did you mean gpu-lost"),
        (["get", "actions", "x"], "action 'x' not found: see nodeguard get actions"),
        (["get", "budgets", "x"], "budget 'x' not found: see nodeguard get budgets"),
        (["incidents", "clear", "x"], "incident 'x' not found: see nodeguard get incidents --all"),
        (["incidents", "ack", "x"], "'ack' is invalid: "),
        (["pause", "-o", "jsonpath={.nope}"], "the output has no field 'nope': its fields are message"),
        (["incidents", "clear", "node-1", "-o", "jsonpath={.nope}"], "its fields are message, clear_result, "),
        (["pause", "--reason", "x" * 600], "both sides must be of one version"),
        (["pause", "--reason", "\udcff"], "is not UTF-8: correct it"),
    ],
)  # fmt: skip
def test_an_invalid_request_exits_with_3(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert main(words) == 3
    except SystemExit as exit_call:
        assert exit_call.code == 3
    assert error in capsys.readouterr().err
    assert ACTIONS.calls == []


def test_without_an_aggregator_the_error_has_the_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = str(tmp_path / "aggregator.sock")
    for words in (["status"], ["describe", "node", "a b"], ["get", "incidents", "--all"], ["pause"]):
        error = refused(capsys, *words, "--socket", missing)
        assert f"no aggregator answers at {missing} (" in error
        assert "kubectl exec -n nodeguard deploy/nodeguard-aggregator -- nodeguard " in error
    error = refused(capsys, "describe", "node", "a b", "--socket", missing)
    assert error.splitlines() == [
        f"nodeguard describe: no aggregator answers at {missing} (No such file or directory):",
        "  run it on the machine of the aggregator, or name its socket with --socket",
        "  in Kubernetes: kubectl exec -n nodeguard deploy/nodeguard-aggregator -- nodeguard describe node 'a b'",
        "  from a laptop: kubectl nodeguard describe node 'a b'",
        "  the agent of this node only: nodeguard status --agent",
    ]
    error = refused(capsys, "get", "gpus", "--socket", missing)
    assert error.splitlines()[-1] == "  the agent of this node only: nodeguard status --agent --values"


def test_an_invalid_response_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "aggregator.sock")
    for answer, error in (
        (b"", "no aggregator answers at"),
        (b"hello\n", f"no aggregator answers at {missing} (another program answers there):\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "the response is invalid"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 1\r\n\r\nx", "the response is invalid"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "no aggregator answers at"),
    ):
        with socket.socket(socket.AF_UNIX) as own:
            Path(missing).unlink(missing_ok=True)
            own.bind(missing)
            own.listen()

            def reply(own: socket.socket = own, answer: bytes = answer) -> None:
                with own.accept()[0] as peer:
                    peer.recv(4096)
                    peer.sendall(answer)

            thread = threading.Thread(target=reply)
            thread.start()
            assert error in refused(capsys, "status", "--socket", missing)
            thread.join()


def test_an_aggregator_is_no_agent(fleet_socket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--agent", "--socket", fleet_socket]) == 3
    remedy = "name the socket of an agent; for the socket of an aggregator, leave out --agent"
    expected = f"no agent answers at {fleet_socket} (another program answers there): {remedy}\n"
    assert capsys.readouterr().err == f"nodeguard status: {expected}"


def test_the_commands_import_no_server(fleet_socket: str) -> None:
    code = (
        "import sys; from nodeguard.cli.main import main; code = main(sys.argv[1:]);"
        "loaded = {'aiohttp', 'kubernetes', 'jwt', 'uvloop', 'asyncio'} & set(sys.modules);"
        "sys.exit(str(loaded) if loaded else code)"
    )
    for words in (["status"], ["describe", "node", "node-1"], ["get", "incidents"], ["pause"]):
        ran = subprocess.run(
            [sys.executable, "-c", code, *words, "--socket", fleet_socket],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")


def test_a_list_that_an_earlier_aggregator_does_not_have_is_an_error() -> None:
    client = AggregatorClient(Namespace(socket=None, command_line="nodeguard get actions"))
    with pytest.raises(UsageError, match=r"Not Found: there is .*; both sides must be of one version"):
        _get_of_node(client, "later-list", ActionList, Namespace(node=None))
