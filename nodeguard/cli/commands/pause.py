"""nodeguard pause: nothing new is marked until nodeguard resume."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.aggregator.api.asking import Pause
from nodeguard.cli.local_aggregator import Aggregator, add_format, add_socket
from nodeguard.cli.person import user
from nodeguard.cli.usage import OK, Parser


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    parser = Parser(
        prog="nodeguard pause",
        description="Stops all new marks at once, until nodeguard resume. What is over is still given back.",
    )
    parser.add_argument("--why", default="", metavar="TEXT", help="for others to read")
    parser.add_argument("--by", default=user(), metavar="NAME", help="who says so (you)")
    add_format(parser)
    add_socket(parser)
    options = parser.parse_args(arguments)
    Aggregator(options, "pause", arguments).done("pause", Pause(options.why, options.by), options.format)
    return OK
