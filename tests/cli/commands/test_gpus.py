"""The commands gpus detach, gpus attach and clear, against a real agent, and the names of GPUs."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from threading import Thread
from typing import ClassVar

import pytest

from fixtures.bundles import bundle_path
from nodeguard.cli.commands.gpus import gpu_name
from nodeguard.cli.local_agent import request
from nodeguard.cli.main import main
from nodeguard.cli.usage import UsageError
from nodeguard.wire.instruction import DetachGpus
from tests.cli.commands.test_agent import fetch, running
from tests.waiting import until


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Run an agent, and yield its socket and its URL."""
    path = str(tmp_path_factory.mktemp("run") / "agent.sock")
    with running("--from", str(bundle_path("healthy-dgx-h100")), "--socket", path) as (_, url):
        fetch(f"{url}/readyz")
        yield path, url


def data_status(url: str) -> str:
    match = re.search(r'nodeguard_node_data_status\{data_status="([a-z-]+)"\} 1', fetch(f"{url}/metrics"))
    assert match is not None
    return match[1]


def wait_for_data_status(url: str, status: str) -> None:
    until(lambda: data_status(url) == status, lambda: f"the data status is not {status}", every=0.02)


def test_gpus_are_detached_and_attached(agent: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    path, url = agent
    for options, message in (
        (["--duration", "30m"], "from all GPUs; to end this: nodeguard gpus attach"),
        (["-d", "30m", "--gpu", "1B:00"], "from gpu/0000:1b:00; to end this: nodeguard gpus attach"),
    ):
        assert main(["gpus", "detach", "--socket", path, *options]) == 0
        output = " ".join(capsys.readouterr().out.split())
        assert output.startswith("The agent is detached until 2")
        assert output.endswith(message)
        wait_for_data_status(url, "not-applicable")
        assert "nodeguard_finding{" not in fetch(f"{url}/metrics")
    assert main(["gpus", "attach", "--socket", path]) == 0
    wait_for_data_status(url, "fresh")


def test_a_detachment_that_a_restart_loses_has_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = str(tmp_path / "agent.sock"), tmp_path / "file"
    file.write_text("")
    bundle = str(bundle_path("healthy-dgx-h100"))
    with running("--from", bundle, "--socket", path, "--state", str(file / "state")) as (_, url):
        fetch(f"{url}/readyz")
        assert main(["gpus", "detach", "--socket", path, "--duration", "30m"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert " from all GPUs; a restart would lose it: " in output
    assert output.endswith("what came after the last write; to end this: nodeguard gpus attach")


def test_a_detachment_of_two_days_is_refused_without_an_agent(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="3"):
        main(["gpus", "detach", "--duration", "2d"])
    assert "'2d' is out of range: expected more than 0s and at most 1d" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ["--duration", "1m", "--gpu", "99:00"],
            "0000:99:00 is not a GPU of this node; the GPUs are: gpu/0000:",
        ),
        (["--duration", "1m", "--gpu", "x" * 300], "is not an index, UUID or PCI address"),
    ],
)
def test_an_invalid_detachment_is_refused(
    agent: tuple[str, str], options: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gpus", "detach", "--socket", agent[0], *options]) == 3
    assert error in capsys.readouterr().err


def test_missing_agent_is_reported_with_reason_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, stale = str(tmp_path / "missing.sock"), str(tmp_path / "stale.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(stale)
    start = "start nodeguard agent on this machine, or set --socket"
    reset = "if none runs on this machine, none holds a GPU: go on with the reset, or set --socket"
    for path, reason in ((missing, "No such file or directory"), (stale, "Connection refused")):
        for command, remedy in (
            (["gpus", "detach", "-d", "1m"], reset),
            (["gpus", "attach"], reset),
            (["clear", "a", "node"], start),
            (["status", "--agent"], start),
        ):
            assert main([*command, "--socket", path]) == 3, command
            assert f"no agent answers at {path} ({reason}): {remedy}\n" in capsys.readouterr().err


def test_a_timeout_is_reported_with_a_warning(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        with pytest.raises(UsageError, match=r"no answer within 0\.05 s; the agent may still carry it out"):
            request(path, DetachGpus("1", 60.0), 0.05)


@pytest.mark.parametrize(
    "command", [["clear", "\udcff", "node"], ["clear", "gpu-lost", "node", "--by", "\udcff"]]
)
def test_arguments_that_are_not_utf_8_are_refused(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--socket", "/nowhere"]) == 3
    assert "is not UTF-8: write it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("0000:3b:00", "0000:3b:00"),
        ("gpu/0000:3b:00", "0000:3b:00"),
        ("GPU 0000:3b:00", "0000:3b:00"),
        ("3b:00", "0000:3b:00"),
        ("3b:00.0", "0000:3b:00"),
        ("00000000:3B:00.0", "0000:3b:00"),
        ("0000:3B:00.0", "0000:3b:00"),
        ("3", "3"),
        ("GPU 3", "3"),
        ("GPU-5C8F0005-0a1b-2c3d-4e5f-60718293a4b5", "GPU-5c8f0005-0a1b-2c3d-4e5f-60718293a4b5"),
    ],
)
def test_the_names_of_tools_are_accepted(text: str, name: str) -> None:
    assert gpu_name(text) == name


@pytest.mark.parametrize("text", ["", "1000", "GPU-x", "zz:00", "0000:3b:00/nvlink/3"])
def test_another_name_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError, match="not an index, UUID or PCI address: write it like 3"):
        gpu_name(text)


class _Aggregator(BaseHTTPRequestHandler):
    """Accepts each request, and keeps its path and body."""

    requests: ClassVar[list[tuple[str, object]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append((self.path, body))
        answer = b'{"message": "the agent of gpu-7 is asked"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_the_agent_of_another_node_is_asked_by_the_aggregator_with_the_name_of_the_operator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "aggregator.sock")
    monkeypatch.setenv("NODEGUARD_AGGREGATOR_SOCKET", path)
    detach, attach = (["gpus", verb, "--node", "gpu-7", "--by", "ada"] for verb in ("detach", "attach"))
    with UnixStreamServer(path, _Aggregator) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            assert main([*detach, "--duration", "30m", "--gpu", "GPU 3"]) == 0
            assert main([*attach, "--socket", path]) == 0
        finally:
            server.shutdown()
            thread.join()
    assert _Aggregator.requests == [
        ("/v1/nodes/gpu-7/gpus", {"seconds": 1800, "gpus": ["3"], "by": "ada"}),
        ("/v1/nodes/gpu-7/gpus", {"seconds": 0, "gpus": [], "by": "ada"}),
    ]
    assert capsys.readouterr().out == "the agent of gpu-7 is asked\n" * 2
    assert main([*detach, "--duration", "30m"]) == 3
    assert f"no aggregator answers at {path}" in capsys.readouterr().err
