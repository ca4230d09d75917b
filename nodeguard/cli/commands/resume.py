"""nodeguard resume: what is asked for is marked again, within the budget."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.aggregator.api.requests import ResumeRequest
from nodeguard.cli.aggregator_client import AggregatorClient, add_format, add_socket
from nodeguard.cli.options import current_user
from nodeguard.cli.usage import OK, ArgumentParser


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    parser = ArgumentParser(
        prog="nodeguard resume", description="Ends a pause: nodes are marked again, as the budget allows."
    )
    parser.add_argument("--by", default=current_user(), metavar="NAME", help="who says so (you)")
    add_format(parser)
    add_socket(parser)
    options = parser.parse_args(arguments)
    AggregatorClient(options, "resume", arguments).post_and_print(
        "resume", ResumeRequest(options.by), options.format
    )
    return OK
