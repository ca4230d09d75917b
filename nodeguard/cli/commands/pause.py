"""nodeguard pause: no new marks until nodeguard resume."""

from __future__ import annotations

from argparse import Namespace

from nodeguard.aggregator.api.requests import PauseRequest
from nodeguard.cli.aggregator_client import AggregatorClient, add_socket
from nodeguard.cli.options import add_by, add_output
from nodeguard.cli.usage import OK, ArgumentParser


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    client = AggregatorClient(options)
    client.post_and_print("pause", PauseRequest(options.reason, options.by), options.output)
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard pause",
        description="Stop setting new marks until nodeguard resume, across restarts. Marks of faults that "
        "are over are still released.",
        examples=("nodeguard pause --reason 'a bad driver'",),
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="reason, for other operators")
    add_by(parser)
    add_output(parser, "text", "json", "yaml")
    add_socket(parser)
    return parser
