"""nodeguard completion: a completion script for a shell, generated from the parsers of all commands."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.cli.parser_tree import read_parsers
from nodeguard.cli.render.completion import SHELLS, completion_script
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import OK, ArgumentParser

SUMMARY = "print a completion script for bash, zsh or fish"
GROUP = "Tools"


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = ArgumentParser(
        prog="nodeguard completion",
        description="Print a completion script.",
        epilog="bash: source <(nodeguard completion bash); zsh: nodeguard completion zsh > "
        '"${fpath[1]}/_nodeguard"; fish: nodeguard completion fish > '
        "~/.config/fish/completions/nodeguard.fish.",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    options = parser.parse_args(arguments)
    print_output(completion_script(options.shell, read_parsers()))
    return OK
