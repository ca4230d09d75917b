"""nodeguard status and describe node on a machine with an agent and no aggregator."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.bundles import bundle_path
from nodeguard.cli.main import main
from tests.cli.commands.test_agent import fetch, running

_NODE = ("--node", "gpu-1", "--from", str(bundle_path("gpu-retired-pages")))


@pytest.fixture(scope="module")
def agent_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run an agent on a node with a fault, and yield its socket."""
    path = str(tmp_path_factory.mktemp("run") / "agent.sock")
    with running(*_NODE, "--socket", path) as (_, url):
        fetch(f"{url}/readyz")
        yield path


@pytest.fixture
def sockets(agent_socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the sockets by environment variables; no aggregator listens."""
    monkeypatch.setenv("NODEGUARD_AGENT_SOCKET", agent_socket)
    monkeypatch.setenv("NODEGUARD_AGGREGATOR_SOCKET", str(tmp_path / "none.sock"))


@pytest.mark.usefixtures("sockets")
@pytest.mark.parametrize("command", [["status"], ["status", "--agent"], ["describe", "node", "gpu-1"]])
def test_the_agent_answers_without_an_aggregator(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    output = capsys.readouterr().out
    assert re.match("(FATAL|SUSPECT|WARNING)  gpu-1 (can|should) take ", output)
    assert "nodeguard explain " in output
    assert "aggregator  none: the agent does not report" in output


@pytest.mark.usefixtures("sockets")
def test_the_status_of_the_agent_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "detach", "-d", "10m", "--gpu", "0"]) == 0
    target = capsys.readouterr().out.split()[5]
    assert main(["status", "-o", "json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["version"], status["node"]) == (1, "gpu-1")
    assert [gpu["target"] for gpu in status["detached_gpus"]] == [target]
    assert (status["aggregators"], status["unread_sources"]) == ([], [])
    assert main(["gpus", "status"]) == 0
    assert f"detached    GPU {target.removeprefix('gpu/')} until 2" in capsys.readouterr().out
    assert main(["gpus", "attach"]) == 0
    assert "reads the GPUs again" in capsys.readouterr().out
    assert main(["gpus", "status", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.usefixtures("sockets")
def test_the_node_of_the_agent_must_have_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "node", "gpu-2"]) == 3
    error = capsys.readouterr().err
    assert "no aggregator answers at" in error
    assert "the agent of this machine is that of node 'gpu-1', not 'gpu-2'" in error


@pytest.mark.usefixtures("sockets")
def test_a_socket_option_means_the_aggregator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--socket", str(tmp_path / "other.sock")]) == 3
    assert "no aggregator answers at" in capsys.readouterr().err
