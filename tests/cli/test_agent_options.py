from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeguard.cli.agent_options import parse_options


def test_the_node_name_comes_from_the_option_the_file_the_environment_or_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("node: file-node\n")
    monkeypatch.setenv("NODE_NAME", "pod")
    assert parse_options(["--config", str(file), "--node", "option"]).node == "option"
    assert parse_options(["--config", str(file)]).node == "file-node"
    assert parse_options([]).node == "pod"
    monkeypatch.setenv("NODE_NAME", "")
    assert parse_options([]).node == os.uname().nodename
