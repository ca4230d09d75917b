"""The command inject, against a real agent without an aggregator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.bundles import bundle_path
from nodeguard.cli.main import main
from tests.cli.commands.test_agent import fetch, running

GPU = "gpu/0000:1b:00"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Run an agent that allows injected faults, and yield its socket and its URL."""
    path = str(tmp_path_factory.mktemp("run") / "agent.sock")
    bundle = str(bundle_path("healthy-dgx-h100"))
    with running("--from", bundle, "--socket", path, "--allow-injection") as (_, url):
        fetch(f"{url}/readyz")
        yield path, url


def test_a_fault_is_injected_listed_and_cleared(
    agent: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, url = agent
    socket = ("--socket", path)
    assert main(["inject", "gpu-lost", "--target", GPU, "--dry-run", *socket]) == 0
    assert capsys.readouterr().out == (
        "would inject gpu-lost on GPU 0000:1b:00 for 10 min: fatal, action reboot-node\n"
    )
    assert main(["inject", "gpu-lost", "--target", "0", "--for", "1h", *socket]) == 0
    assert capsys.readouterr().out.startswith("injected gpu-lost on GPU 0000:1b:00 for 1 h, until 2")
    assert main(["inject", "--list", "-o", "json", *socket]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["check"], listed["target"], listed["health"]) == ("gpu-lost", GPU, "fatal")
    assert listed["by"].startswith("uid ")
    page = fetch(f"{url}/metrics")
    series = [line for line in page.splitlines() if 'injected="true"' in line]
    assert any('nodeguard_node_health{health="fatal",injected="true"} 1' in line for line in series)
    assert any(line.startswith("nodeguard_finding{") and 'check="gpu-lost"' in line for line in series)
    assert len(series) == 2
    assert 'nodeguard_node_health{health="ok"} 1' in page
    assert main(["status", "--agent", *socket]) == 0
    assert "injected    gpu-lost (fatal) on GPU 0000:1b:00 until" in capsys.readouterr().out
    assert main(["inject", "--clear", "--all", *socket]) == 0
    assert capsys.readouterr().out.startswith("ended 1 injected fault; ")
    assert main(["inject", "--list", *socket]) == 0
    assert capsys.readouterr().out == "injected    none\n"
    assert 'injected="true"' not in fetch(f"{url}/metrics")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "name a CHECK to inject, or use --list or --clear"),
        (["gpu-lost", "--list"], "name a CHECK to inject, or use --list or --clear"),
        (["--all"], "--all needs --clear: write nodeguard inject --clear --all"),
        (["--clear", "1", "--all"], "--all excludes an ID: remove one of them"),
        (["--list", "--for", "1m"], "--target, --for and --dry-run need a CHECK"),
        (["x" * 5000], "an argument is invalid: Expected `str` of length <= 256"),
        (["gpu-lost", "--target", "\udcff"], "is not UTF-8: write it again"),
        (["no-such-check"], "check 'no-such-check' does not exist: see nodeguard checks"),
        (["gpu-lost", "--target", "gpu/0000:ff:00"], "its targets are: gpu/0000:1b:00, "),
    ],
)
def test_invalid_options_are_refused(
    agent: tuple[str, str], capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["inject", *options, "--socket", agent[0]]) == 3
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1m", "2d", "soon", "nan"])
def test_an_invalid_duration_is_refused(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["inject", "gpu-lost", f"--for={text}"])
    assert stopped.value.code == 3
    error = capsys.readouterr().err
    assert "argument --for: " in error
    assert "out of range" in error or "is not a duration" in error


def test_an_agent_without_an_aggregator_refuses_unless_its_setting_allows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, bundle = str(tmp_path / "agent.sock"), str(bundle_path("healthy-dgx-h100"))
    with running("--from", bundle, "--socket", path) as (_, url):
        fetch(f"{url}/readyz")
        assert main(["inject", "gpu-lost", "--target", GPU, "--socket", path]) == 3
    assert capsys.readouterr().err == (
        "nodeguard inject: this agent allows no injected faults: set allow_injection in the agent's options file, "
        "or --allow-injection\n"
    )
