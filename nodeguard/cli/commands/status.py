"""nodeguard status: the health of the fleet, its marks and budgets."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.cli.aggregator_client import AggregatorClient, add_socket
from nodeguard.cli.options import add_output
from nodeguard.cli.output import to_json, to_yaml
from nodeguard.cli.render.status import status_lines
from nodeguard.cli.render.terminal import format_lines
from nodeguard.cli.usage import OK, ArgumentParser
from nodeguard.cli.watch import add_watch, print_or_watch
from nodeguard.fleet_api.schema.status import FleetStatus

SUMMARY = "show the health of the fleet"
GROUP = "Fleet"


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    parser = ArgumentParser(
        prog="nodeguard status",
        description="Show the health of the fleet: unhealthy nodes, marks, budgets, and why marks are "
        "withheld.",
        epilog="Exit codes: 0 the aggregator answered; 3 it did not.",
    )
    add_output(parser, "text", "json", "yaml")
    add_watch(parser)
    add_socket(parser)
    options = parser.parse_args(arguments)
    client = AggregatorClient(options, "status", arguments)

    def render() -> str:
        status = client.get("status", FleetStatus)
        match options.output:
            case "json":
                return to_json(status)
            case "yaml":
                return to_yaml(status)
        return format_lines(status_lines(status))

    print_or_watch(render, options)
    return OK
