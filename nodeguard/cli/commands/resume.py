"""nodeguard resume: what is asked for is marked again, within the budget."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.aggregator.api.asking import Resume
from nodeguard.cli.local_aggregator import Aggregator, add_format, add_socket
from nodeguard.cli.person import user
from nodeguard.cli.usage import OK, Parser


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    parser = Parser(
        prog="nodeguard resume", description="Ends a pause: nodes are marked again, as the budget allows."
    )
    parser.add_argument("--by", default=user(), metavar="NAME", help="who says so (you)")
    add_format(parser)
    add_socket(parser)
    options = parser.parse_args(arguments)
    Aggregator(options, "resume", arguments).done("resume", Resume(options.by), options.format)
    return OK
