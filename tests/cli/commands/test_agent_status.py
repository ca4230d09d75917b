"""nodeguard status and describe node on a machine with an agent and no aggregator."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fixtures.bundles import bundle_path
from nodeguard.agent.control import AgentValues, SourceValues
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.main import main
from nodeguard.cli.render.agent_status import agent_status_output, agent_status_view
from nodeguard.cli.render.agent_values import agent_values_lines
from nodeguard.cli.render.terminal import format_lines
from nodeguard.model.signal import Scalar
from tests.agent.test_control import STATUS
from tests.cli.commands.test_agent import fetch, running
from tests.cli.fleet_output import look

_PAGES = "https://docs.example/checks"
_NODE = (
    *("--node", "gpu-1", "--from", str(bundle_path("gpu-retired-pages"))),
    *("--runbook-url-base", _PAGES),
)


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
@pytest.mark.parametrize("command", [["status", "--agent"], ["gpus", "status"]])
def test_an_empty_socket_is_the_default_one(command: list[str]) -> None:
    assert main([*command, "--socket", ""]) == 0


@pytest.mark.usefixtures("sockets")
def test_the_status_of_the_agent_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "detach", "-d", "10m", "--gpu", "0"]) == 0
    target = capsys.readouterr().out.split()[7].rstrip(";")
    assert main(["status", "-o", "json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["version"], status["node"]) == (1, "gpu-1")
    assert [gpu["target"] for gpu in status["detached_gpus"]] == [target]
    assert status["findings"]
    for finding in status["findings"]:
        assert finding["runbook"] == f"{_PAGES}/{finding['check']}"
    assert (status["aggregators"], status["unread_sources"]) == ([], [])
    assert main(["gpus", "status"]) == 0
    assert f"detached    GPU {target.removeprefix('gpu/')} until 2" in capsys.readouterr().out
    assert main(["gpus", "attach"]) == 0
    assert "reads the GPUs again" in capsys.readouterr().out
    assert main(["gpus", "status", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_the_reason_why_an_aggregator_does_not_acknowledge_is_shown() -> None:
    status = replace(STATUS, problems={"https://b": "it answered 409: see that one agent runs on the node"})
    text = look(agent_status_view(status), 120)
    assert "https://a: last acknowledgement never\n" in text
    assert (
        "https://b: last acknowledgement just now; it answered 409: see that one agent runs on the node"
        in text
    )
    assert [item.problem for item in agent_status_output(status).aggregators] == [
        "",
        status.problems["https://b"],
    ]
    unknown = "reports     no aggregator acknowledges them: the fleet does not know the state of this node\n"
    assert unknown not in text
    status = replace(
        status, problems=dict.fromkeys(("https://a", "https://b"), "it answered 404: see the address")
    )
    assert "reports     no aggregator has acknowledged the latest one\n" in look(
        agent_status_view(status), 120
    )
    old = replace(status, acknowledged_at={"https://a": None, "https://b": status.at - 46.0})
    assert unknown in look(agent_status_view(old), 120)


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


@pytest.mark.usefixtures("sockets")
def test_the_latest_values_of_gpus_and_ports_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--agent", "--values"]) == 0
    text = capsys.readouterr().out
    header = next(line for line in text.splitlines() if line.startswith("GPU "))
    assert header.split()[:5] == ["GPU", "ADDRESS", "TEMPERATURE", "MEMORY", "USE"]
    assert re.search(r"^0 +0000:\S+ +\d+ °C ", text, re.MULTILINE)
    assert re.search(r"^nvml: read .* ago$", text, re.MULTILINE)
    assert main(["status", "--agent", "--values", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["version"], document["node"]) == (1, "gpu-1")
    assert 0 in document["indices"].values()
    [nvml] = [source for source in document["sources"] if source["source"] == "nvml"]
    assert all(target.startswith(("gpu/", "port/")) for target in nvml["targets"])
    assert main(["status", "--values"]) == 3
    assert "--values is for --agent only: add --agent" in capsys.readouterr().err


def test_a_node_without_gpus_and_ports_has_no_values() -> None:
    lines = format_lines(agent_values_lines(AgentValues("cpu-1", 1e9, ()), {}, None)).splitlines()
    assert [line for line in lines if line] == ["no value of a GPU or a port"]


def test_stale_values_are_not_shown() -> None:
    read: dict[str, dict[str, Scalar]] = {
        "gpu/0000:3b:00": {"gpu.temperature": 61.0},
        "port/mlx5_10/1": {"port.rate": 400.0},
    }
    fresh = SourceValues(
        "infiniband", 2.0, False, {"port/mlx5_10/1": read["port/mlx5_10/1"], "port/mlx5_2/1": {}}
    )
    values = AgentValues("gpu-1", 1e9, (SourceValues("nvml", 600.0, True, read), fresh))
    _, signals = load_catalogue()
    lines = format_lines(agent_values_lines(values, signals, None)).splitlines()
    assert [line.split()[0] for line in lines if line] == [
        "PORT", "mlx5_2/1", "mlx5_10/1", "nvml:", "infiniband:",
    ]  # fmt: skip
    assert lines[-2] == "nvml: stale, read 10 min ago: not shown"
