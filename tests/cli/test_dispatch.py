"""Each module of nodeguard/cli/commands is a command, with its help, completion and man page."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from nodeguard.cli import commands
from nodeguard.cli.commands import COMMANDS, GROUPS, Command
from nodeguard.cli.commands.completion import SHELLS
from nodeguard.cli.main import main
from nodeguard.cli.parser_tree import ParsedCommand, read_parsers
from tests.waiting import PATIENCE


def walk(commands: list[ParsedCommand] | tuple[ParsedCommand, ...]) -> list[ParsedCommand]:
    return [part for command in commands for part in (command, *walk(command.parts))]


PARSED = walk(read_parsers())


NAMES = [command.name for command in COMMANDS]


def test_each_module_is_a_command_of_the_table() -> None:
    assert sorted(module.name for module in iter_modules(commands.__path__)) == NAMES


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_has_a_summary_in_the_imperative_and_a_group(command: Command) -> None:
    assert import_module(f"nodeguard.cli.commands.{command.name}").build_parser().prog.endswith(command.name)
    assert command.group in GROUPS
    assert command.summary[0].islower()
    assert not command.summary.endswith(".")


@pytest.mark.parametrize("command", PARSED, ids=lambda command: " ".join(command.words))
def test_a_command_and_each_option_are_described(command: ParsedCommand) -> None:
    assert command.description
    for option in command.options:
        assert option.about or not option.flags, option


@pytest.mark.parametrize(
    "part", [part for command in PARSED for part in command.parts], ids=lambda part: " ".join(part.words)
)
def test_the_help_of_a_part_shows_its_own_examples(
    part: ParsedCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*part.words, "--help"])
    examples = capsys.readouterr().out.partition("\nexamples:\n")[2].splitlines()
    words = f"  nodeguard {' '.join(part.words)}"
    assert examples
    assert all(f"{example} ".startswith(f"{words} ") for example in examples)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_example_of_a_help_is_a_valid_command_line(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = import_module(f"nodeguard.cli.commands.{command.name}").build_parser()
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    text = capsys.readouterr().out
    assert parser.examples
    for example in parser.examples:
        assert f"\n  {example}\n" in text
        written = re.split(" [>|] ", example.removeprefix("source <(").removesuffix(")"))[0]
        program, name, *words = shlex.split(written)
        assert (program, name) == ("nodeguard", command.name)
        parser.parse_args(words)


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in NAMES)


def test_the_help_imports_no_command() -> None:
    code = (
        "import sys; from nodeguard.cli.main import main; main(['--help']); "
        "sys.exit(str([name for name in sys.modules if name.startswith('nodeguard.cli.commands.')] or ''))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stderr.strip() == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_script_names_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in NAMES)


def completions(script: Path, *words: str) -> set[str]:
    line = " ".join(f"'{term}'" for term in ("nodeguard", *words))
    code = (
        f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _nodeguard; echo ${{COMPREPLY[@]}}"
    )
    ran = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_bash_completes_commands_options_and_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "nodeguard.bash"
    script.write_text(capsys.readouterr().out)
    assert completions(script, "des") == {"describe"}
    assert completions(script, "get", "nod") == {"nodes"}
    assert completions(script, "get", "incidents", "--sta") == {"--state"}
    assert completions(script, "get", "incidents", "-o", "w") == {"wide"}
    assert completions(script, "check", "--fail-on", "f") == {"fatal"}
    assert "acknowledge" in completions(script, "incidents", "")


def test_bash_completes_ids_fields_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "nodeguard.bash"
    own = f"$(touch {tmp_path}/expanded)"
    script.write_text(f"{capsys.readouterr().out}\n{FAKE.format(own=own)}")
    assert "gpu-lost" in completions(script, "explain", "gpu-l")
    assert completions(script, "explain", "NodeguardFro") == {"NodeguardFrozen"}
    assert "link-down" in completions(script, "explain", "link-d")
    assert completions(script, "check", "--duration", "") == set()
    assert completions(script, "check", "--family", "nvl") == {"nvlink"}
    assert completions(script, "get", "incidents", "--check", "gpu-los") == {"gpu-lost", "gpu-lost-any"}
    assert completions(script, "get", "nodes", "--sort-by", "hea") == {"health"}
    assert completions(script, "get", "incidents", "--state", "withh") == {"withheld"}
    assert completions(script, "describe", "node", "gpu-") == {"gpu-7", "gpu-12"}
    assert completions(script, "get", "gpus", "--node", "gpu-1") == {"gpu-12"}
    assert completions(script, "describe", "domain", "fab") == {"fabric/p0/r0"}
    assert completions(script, "incidents", "acknowledge", "") == {"gpu-7-gpu-lost"}
    assert completions(script, "describe", "node", "--outp") == {"--output"}
    assert not (tmp_path / "expanded").exists()


def test_bash_completes_the_indices_of_the_gpus_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    script, gpus = tmp_path / "nodeguard.bash", tmp_path / "gpus"
    script.write_text(capsys.readouterr().out.replace("/proc/driver/nvidia/gpus", str(gpus)))
    assert completions(script, "check", "--gpu", "") == set()
    for address in ("0000:1b:00.0", "0000:3b:00.0", "0000:c3:00.0"):
        (gpus / address).mkdir(parents=True)
    assert completions(script, "check", "--gpu", "") == {"0", "1", "2"}
    assert completions(script, "gpus", "detach", "--gpu", "2") == {"2"}


# The command where an aggregator runs: one of its nodes has a name that a shell must not expand.
FAKE = """
nodeguard() {{
    case "$*" in
        "get nodes -o name") printf '%s\\n' node/gpu-7 node/gpu-12 'node/gpu-{own}' ;;
        "get domains -o name") echo domain/fabric/p0/r0 ;;
        "get incidents -o name") echo incident/gpu-7-gpu-lost ;;
    esac
}}
"""


class Zsh:
    """An interactive zsh on a pseudo terminal, with the completion script as a file of its own, as installed."""

    def __init__(self, directory: Path, script: str, *, sourced: bool) -> None:
        (directory / "_nodeguard").write_text(script)
        command = directory / "nodeguard"
        command.write_text("#!/bin/sh\necho node/gpu-77\n")
        command.chmod(0o755)
        loads = "source _nodeguard" if sourced else ""
        (directory / ".zshrc").write_text(
            f"fpath=({directory} $fpath)\nautoload -U compinit && compinit -u -D\nPS1='ready> '\n{loads}\n"
        )
        self._seen = ""
        self._process, self._terminal = os.forkpty()
        if not self._process:
            environment = {
                "ZDOTDIR": str(directory),
                "TERM": "dumb",
                "PATH": f"{directory}:{os.environ['PATH']}",
            }
            os.chdir(directory)
            os.execvpe("zsh", ["zsh", "-i"], environment)
        self._wait_for("ready> ")

    def _wait_for(self, text: str) -> None:
        end = time.monotonic() + PATIENCE
        while text not in self._seen:
            assert time.monotonic() < end, self._seen
            if select.select([self._terminal], [], [], 0.1)[0]:
                self._seen += os.read(self._terminal, 65536).decode()

    def tab(self, line: str, completed: str) -> None:
        """Type a line and TAB; wait until it is completed, then remove it."""
        self._seen = ""
        os.write(self._terminal, f"{line}\t".encode())
        self._wait_for(completed)
        assert "unrecognized" not in self._seen
        os.write(self._terminal, b"\x15")

    def end(self) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.close(self._terminal)
        os.waitpid(self._process, 0)


@pytest.mark.shells
@pytest.mark.parametrize("sourced", [False, True], ids=["from fpath", "sourced"])
def test_zsh_completes_from_the_first_tab(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, sourced: bool
) -> None:
    assert main(["completion", "zsh"]) == 0
    (tmp_path / "gpus" / "0000:1b:00.0").mkdir(parents=True)
    script = capsys.readouterr().out.replace("/proc/driver/nvidia/gpus", str(tmp_path / "gpus"))
    zsh = Zsh(tmp_path, script, sourced=sourced)
    try:
        zsh.tab("nodeguard des", "describe ")
        zsh.tab("nodeguard get nod", "nodes ")
        zsh.tab("nodeguard get incidents --sta", "--state ")
        zsh.tab("nodeguard get incidents -o w", "wide ")
        zsh.tab("nodeguard check --fail-on f", "fatal ")
        zsh.tab("nodeguard check --gpu ", "0 ")
        zsh.tab("nodeguard explain gpu-gs", "gpu-gsp-failure ")
        zsh.tab("nodeguard get nodes --sort-by hea", "health ")
        zsh.tab("nodeguard describe node gpu-7", "gpu-77 ")
    finally:
        zsh.end()


def test_the_man_page_describes_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man"]) == 0
    page = capsys.readouterr().out
    assert page.startswith('.TH NODEGUARD 1 "" "nodeguard ')
    for command in PARSED:
        assert f'.SS "nodeguard {" ".join(command.words)}"' in page
    for section in ("OPTIONS", "FILES", "EXAMPLES", "SEE ALSO"):
        assert f"\n.SH {section}\n" in page
    assert "\n.B \\-\\-log\\-level debug|info|warning|error\n" in page
    assert page.count("\n.B \\-\\-color") == 1


def test_the_version_is_printed_in_each_way(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for words in (["-V"], ["--version"], ["version"]):
        assert main(words) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[2].startswith(outputs[0].strip())
