"""The command itself."""

from __future__ import annotations

import pytest

from nodeguard import __version__
from nodeguard.cli.main import main


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for command in ("check", "explain", "checks", "record"):
        assert f"\n  {command}" in said


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 3
    assert main(["frob"]) == 3
    assert "'frob' is no command" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"nodeguard {__version__}\n"


@pytest.mark.parametrize("command", ["check", "explain", "checks", "record"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert f"usage: nodeguard {command}" in capsys.readouterr().out
