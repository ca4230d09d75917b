from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeguard.cli.agent_options import options


def test_the_nodes_name_is_said_or_filed_or_told_by_the_pod_or_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("node: filed\n")
    monkeypatch.setenv("NODE_NAME", "told")
    assert options(["--config", str(file), "--node", "said"]).node == "said"
    assert options(["--config", str(file)]).node == "filed"
    assert options([]).node == "told"
    monkeypatch.setenv("NODE_NAME", "")
    assert options([]).node == os.uname().nodename
