"""nodeguard unmark: a pause, and the removal of all marks of nodeguard."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nodeguard.aggregator.api.requests import UnmarkRequest
from nodeguard.cli.aggregator_client import AggregatorClient, add_socket
from nodeguard.cli.options import add_by, add_output
from nodeguard.cli.render.fleet_text import count_noun
from nodeguard.cli.streams import print_error
from nodeguard.cli.usage import OK, ArgumentParser, UsageError
from nodeguard.fleet_api.schema.status import FleetStatus

SUMMARY = "remove all nodeguard marks"
GROUP = "Fleet"

_ONE_NODE = "kubectl taint node NAME nodeguard.dev/quarantine-"


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    parser = ArgumentParser(
        prog="nodeguard unmark",
        description="Pause, then remove all nodeguard marks from all nodes and GPUs.",
        epilog=f"To release one node, remove its taint: {_ONE_NODE}. The mark returns if the fault still "
        f"exists.",
    )
    add = parser.add_argument
    add("--all", action="store_true", help="confirm that all marks are meant")
    add("-y", "--yes", action="store_true", help="do not ask")
    add_by(parser)
    add_output(parser, "text", "json", "yaml")
    add_socket(parser)
    options = parser.parse_args(arguments)
    if not options.all:
        raise UsageError(f"add --all to remove all marks; to release one node: {_ONE_NODE}")
    client = AggregatorClient(options, "unmark", arguments)
    if not options.yes:
        _confirm(client.get("status", FleetStatus))
    client.post_and_print("unmark", UnmarkRequest(options.by), options.output)
    return OK


def _confirm(status: FleetStatus) -> None:
    """Ask at the terminal. Raises UsageError without a terminal, or where the answer is not yes."""
    nodes = sum(counts.nodes for counts in status.marked.values())
    devices = sum(counts.devices for counts in status.marked.values())
    marked = (
        f"{count_noun(nodes, 'node')} and {count_noun(devices, 'GPU')}"
        if devices
        else count_noun(nodes, "node")
    )
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            f"this pauses nodeguard and removes the marks of {marked}: add --yes without a terminal"
        )
    print_error(f"This pauses nodeguard, then removes its marks from {marked}, healthy or not.")
    print_error("No mark is set until nodeguard resume. Type yes to continue:")
    if sys.stdin.readline().strip().lower() != "yes":
        raise UsageError("nothing was changed")
