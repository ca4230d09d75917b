"""The command doctor on this machine, with a real agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.bundles import bundle_path
from nodeguard.cli.main import main
from tests.cli.commands.test_agent import fetch, running


def test_a_node_with_a_running_agent(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path_factory.mktemp("run") / "agent.sock")
    with running("--from", str(bundle_path("healthy-dgx-h100")), "--socket", path) as (_, url):
        fetch(f"{url}/readyz")
        main(["doctor", "--socket", path, "-o", "json"])
        results = {result["name"]: result for result in json.loads(capsys.readouterr().out)}
        assert results["agent"]["status"] == "passed"
        assert results["reports"]["status"] == "skipped"
        assert "clock" in results["sources"]["message"]
        main(["doctor", "--socket", path])
        printed = capsys.readouterr().out
        assert "agent's checks" not in printed
        assert printed.startswith("nodeguard doctor: ")
        assert "passed   agent: version 0.1.0 runs for node" in printed
        main(["doctor", "--socket", path, "--config", str(settings_with_a_check(tmp_path_factory))])
        assert "warning  agent's checks: it evaluates other checks" in capsys.readouterr().out


def settings_with_a_check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return settings that switch a built-in check off, which the running agent evaluates."""
    directory = tmp_path_factory.mktemp("checks.d")
    (directory / "site.yaml").write_text("disable: [clock-unsynchronized]\n")
    settings = tmp_path_factory.mktemp("etc") / "agent.yaml"
    settings.write_text(f"checks: [{directory}]\n")
    return settings


def test_without_an_agent_the_remedy_is_to_start_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--socket", "/nowhere/agent.sock"]) == 2
    printed = capsys.readouterr().out
    assert "failed   agent: no agent answers at /nowhere/agent.sock" in printed
    assert "fix: if it does not run: systemctl start nodeguard-agent" in printed


def test_an_invalid_settings_file(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path_factory.mktemp("etc") / "agent.yaml"
    file.write_text("colour: red\n")
    assert main(["doctor", "--config", str(file)]) == 3
    assert f"{file}:1: colour" in capsys.readouterr().err
