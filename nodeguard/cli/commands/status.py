"""nodeguard status: the fleet in short."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.cli.aggregator_client import AggregatorClient, add_format, add_socket, to_json
from nodeguard.cli.render.status import status_lines
from nodeguard.cli.render.terminal import print_lines
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import OK, ArgumentParser
from nodeguard.fleet_api.schema.status import FleetStatus


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    parser = ArgumentParser(
        prog="nodeguard status",
        description="The fleet in short: what is sick, what is marked, what is withheld and why.",
        epilog="Exit codes: 0 told, whatever it says; 3 nothing could be told.",
    )
    add_format(parser)
    add_socket(parser)
    options = parser.parse_args(arguments)
    told = AggregatorClient(options, "status", arguments).get("status", FleetStatus)
    if options.format == "json":
        print_output(to_json(told))
    else:
        print_lines(status_lines(told))
    return OK
