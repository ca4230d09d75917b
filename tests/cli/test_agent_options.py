from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeguard.model.failure import UserError
from tests.cli.parsed_options import agent_options


def test_the_node_name_comes_from_the_option_the_file_the_environment_or_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("node: file-node\n")
    monkeypatch.setenv("NODE_NAME", "pod")
    assert agent_options(["--config", str(file), "--node", "option"]).node == "option"
    assert agent_options(["--config", str(file)]).node == "file-node"
    assert agent_options([]).node == "pod"
    monkeypatch.setenv("NODE_NAME", "")
    assert agent_options([]).node == os.uname().nodename


def test_the_base_of_runbooks_is_an_address_of_the_file_or_the_option(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("runbook_url_base: https://docs.example/checks\n")
    assert agent_options([]).runbook_url_base == ""
    assert agent_options(["--config", str(file)]).runbook_url_base == "https://docs.example/checks/"
    option = ["--config", str(file), "--runbook-url-base", "http://[::1]/wiki?page="]
    assert agent_options(option).runbook_url_base == "http://[::1]/wiki?page="


@pytest.mark.parametrize(
    ("base", "error"),
    [
        ("docs.example/checks", "'docs.example/checks' is no http or https address"),
        ("javascript:alert(1)", "is no http or https address"),
        ("https://", "'https://' is no http or https address"),
        ("https://docs.example/a b", "without spaces: write it like https://docs.example/checks/"),
        ("https://docs.example/\\x1b[31m", r"\x1b[31m' is no http or https address in ASCII"),
        ("https://docs.example/\\n", r"\n' is no http or https address"),
        ("https://docs.example/ä", "is no http or https address in ASCII"),
        ("https://docs.example/" + "x" * 500, "an address of 521 characters is too long: write at most 512"),
    ],
)
def test_another_base_of_runbooks_is_refused_with_the_file_and_the_setting(
    base: str, error: str, tmp_path: Path
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(f'runbook_url_base: "{base}"\n')
    with pytest.raises(UserError) as caught:
        agent_options(["--config", str(file)])
    assert str(caught.value).startswith(f"{file}: runbook_url_base: ")
    assert error in str(caught.value)
