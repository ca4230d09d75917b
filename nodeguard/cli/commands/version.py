"""nodeguard version: versions of nodeguard, of its check catalogue, and of Python."""

from __future__ import annotations

import platform
from argparse import Namespace

from msgspec import Struct

from nodeguard import __version__
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import add_output
from nodeguard.cli.streams import document_or_text, print_output
from nodeguard.cli.usage import OK, ArgumentParser


class VersionOutput(Struct, frozen=True):
    """Output of nodeguard version -o json."""

    nodeguard: str
    checks: int
    python: str


def run(options: Namespace) -> int:
    """Run the command; returns its exit code."""
    catalogue, _ = load_catalogue()
    output = VersionOutput(__version__, len(catalogue.checks), platform.python_version())
    text = f"nodeguard {output.nodeguard}, {output.checks} checks, Python {output.python}"
    print_output(document_or_text(output, options.output, lambda: text))
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard version",
        description="Print the version of nodeguard.",
        examples=("nodeguard version -o json",),
    )
    add_output(parser, "text", "json", "yaml")
    return parser
