"""nodeguard unmark: every mark of nodeguard's is taken away."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nodeguard.aggregator.api.requests import UnmarkRequest
from nodeguard.cli.aggregator_client import AggregatorClient, add_format, add_socket
from nodeguard.cli.options import current_user
from nodeguard.cli.render.fleet_text import count_noun
from nodeguard.cli.streams import print_error
from nodeguard.cli.usage import OK, ArgumentParser, UsageError
from nodeguard.fleet_api.schema.status import FleetStatus


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    parser = ArgumentParser(
        prog="nodeguard unmark",
        description="Pauses, then takes every mark of nodeguard's off all nodes and GPUs.",
    )
    add = parser.add_argument
    add("--all", action="store_true", help="all of them; one node is given back by hand, see the docs")
    add("--yes", action="store_true", help="do not ask")
    add("--by", default=current_user(), metavar="NAME", help="who says so (you)")
    add_format(parser)
    add_socket(parser)
    options = parser.parse_args(arguments)
    if not options.all:
        raise UsageError("it takes every mark away: say --all")
    aggregator = AggregatorClient(options, "unmark", arguments)
    if not options.yes:
        _confirm(aggregator.get("status", FleetStatus))
    aggregator.post_and_print("unmark", UnmarkRequest(options.by), options.format)
    return OK


def _confirm(told: FleetStatus) -> None:
    """Ask at the terminal. Raises UsageError where there is none, or where the answer is no yes."""
    nodes = sum(one.nodes for one in told.marked.values())
    devices = sum(one.devices for one in told.marked.values())
    what = (
        f"{count_noun(nodes, 'node')} and {count_noun(devices, 'GPU')}"
        if devices
        else count_noun(nodes, "node")
    )
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"it pauses and takes the marks off {what}: say --yes where nobody can be asked")
    print_error(f"This pauses nodeguard first, and then takes its marks off {what}, sick or not.")
    print_error("Nothing is marked until nodeguard resume. Type yes to go on:")
    if sys.stdin.readline().strip().lower() != "yes":
        raise UsageError("nothing was done")
