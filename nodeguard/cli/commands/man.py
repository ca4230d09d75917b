"""nodeguard man: the man page, generated from the parsers of all commands."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard import __version__
from nodeguard.cli.parser_tree import read_parsers
from nodeguard.cli.render.man_page import man_page
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import OK, ArgumentParser

SUMMARY = "print the man page"
GROUP = "Tools"


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = ArgumentParser(
        prog="nodeguard man",
        description="Print the man page, in the format of man(7).",
        epilog="nodeguard man > /usr/local/share/man/man1/nodeguard.1",
    )
    parser.parse_args(arguments)
    print_output(man_page(__version__, read_parsers()), end="")
    return OK
