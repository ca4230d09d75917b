"""The command itself."""

from __future__ import annotations

import pytest

from nodeguard import __version__
from nodeguard.cli.main import main


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    for command in ("check", "explain", "checks", "record"):
        assert f"\n  {command}" in printed


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 3
    assert main(["frob"]) == 3
    assert "command 'frob' not found: see nodeguard --help" in capsys.readouterr().err


def test_a_misspelt_command_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chek"]) == 3
    assert capsys.readouterr().err == (
        "nodeguard: command 'chek' not found: did you mean check or checks? Or see nodeguard --help\n"
    )


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    assert "usage: nodeguard COMMAND" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["help", "record"])
    assert "usage: nodeguard record" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"nodeguard {__version__}\n"


@pytest.mark.parametrize("command", ["check", "explain", "checks", "record"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert f"usage: nodeguard {command}" in capsys.readouterr().out
