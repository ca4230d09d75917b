"""nodeguard resume: new marks again, after nodeguard pause."""

from __future__ import annotations

from argparse import Namespace

from nodeguard.aggregator.api.requests import ResumeRequest
from nodeguard.cli.aggregator_client import AggregatorClient, add_socket
from nodeguard.cli.options import add_by, add_output
from nodeguard.cli.usage import OK, ArgumentParser


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    AggregatorClient(options).post_and_print("resume", ResumeRequest(options.by), options.output)
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard resume",
        description="End a pause: set new marks again, within the budgets.",
        examples=("nodeguard resume",),
    )
    add_by(parser)
    add_output(parser, "text", "json", "yaml")
    add_socket(parser)
    return parser
