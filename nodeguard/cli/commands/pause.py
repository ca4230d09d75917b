"""nodeguard pause: nothing new is marked until nodeguard resume."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.aggregator.api.requests import PauseRequest
from nodeguard.cli.aggregator_client import AggregatorClient, add_format, add_socket
from nodeguard.cli.options import current_user
from nodeguard.cli.usage import OK, ArgumentParser


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    parser = ArgumentParser(
        prog="nodeguard pause",
        description="Stops all new marks at once, until nodeguard resume. What is over is still given back.",
    )
    parser.add_argument("--why", default="", metavar="TEXT", help="for others to read")
    parser.add_argument("--by", default=current_user(), metavar="NAME", help="who says so (you)")
    add_format(parser)
    add_socket(parser)
    options = parser.parse_args(arguments)
    AggregatorClient(options, "pause", arguments).post_and_print(
        "pause", PauseRequest(options.why, options.by), options.format
    )
    return OK
