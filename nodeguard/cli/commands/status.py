"""nodeguard status: the fleet in short."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.cli.local_aggregator import Aggregator, add_format, add_socket, as_json
from nodeguard.cli.render.page import show
from nodeguard.cli.render.status import status_page
from nodeguard.cli.streams import say
from nodeguard.cli.usage import OK, Parser
from nodeguard.fleet_api.forms import Status


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    parser = Parser(
        prog="nodeguard status",
        description="The fleet in short: what is sick, what is marked, what is withheld and why.",
        epilog="Exit codes: 0 told, whatever it says; 3 nothing could be told.",
    )
    add_format(parser)
    add_socket(parser)
    options = parser.parse_args(arguments)
    told = Aggregator(options, "status", arguments).told("status", Status)
    if options.format == "json":
        say(as_json(told))
    else:
        show(status_page(told))
    return OK
