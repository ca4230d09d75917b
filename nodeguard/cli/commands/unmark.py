"""nodeguard unmark: the removal of the marks of some nodes, with a hold, or of all marks, with a pause."""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace

from nodeguard.aggregator.api.requests import ActionResult, UnmarkRequest
from nodeguard.cli.aggregator_client import AggregatorClient, add_socket, print_result
from nodeguard.cli.options import USER_KUBECONFIG, add_by, add_kubeconfig, add_output, require_for_kubeconfig
from nodeguard.cli.streams import print_error, require_fit
from nodeguard.cli.usage import MISSING_EXTRA, OK, ArgumentParser, UsageError
from nodeguard.fleet_api.schema.status import FleetStatus
from nodeguard.fleet_api.text.wording import count_noun


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    if options.all == bool(options.nodes):
        raise UsageError("name the nodes to unmark, or add --all to remove all marks")
    if "" in options.nodes:
        raise UsageError("the name of a node is empty: check the variable or command that gives it")
    require_for_kubeconfig(options, "--without-aggregator", is_set=options.without_aggregator)
    if options.without_aggregator:
        if not options.all:
            raise UsageError("--without-aggregator removes all marks: add --all")
        return _remove_without_aggregator(options)
    client = AggregatorClient(options)
    if options.nodes:
        request = UnmarkRequest(options.by, tuple(options.nodes), options.reason)
        client.post_and_print("unmark", request, options.output)
        return OK
    if not options.yes:
        _confirm(client.get("status", FleetStatus))
    client.post_and_print("unmark", UnmarkRequest(options.by), options.output)
    return OK


def _remove_without_aggregator(options: Namespace) -> int:
    """Remove all marks through the Kubernetes API. Raises UserError."""
    if not options.yes:
        raise UsageError("--without-aggregator removes all marks at once: add --yes")
    require_fit(ActionResult(""), options.output)
    try:
        from nodeguard.aggregator.mark_removal import remove_marks  # noqa: PLC0415 - needs the aggregator's packages
    except ModuleNotFoundError:
        raise UsageError(MISSING_EXTRA) from None
    print_result(asyncio.run(remove_marks(options.kubeconfig, options.context)), options.output)
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


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard unmark",
        description="Remove the nodeguard marks of some nodes and their GPUs, and hold these nodes, so that "
        "no mark is set again. With --all: pause, then remove all nodeguard marks.",
        examples=("nodeguard unmark gpu-7 --reason 'a false alarm'", "nodeguard unmark --all"),
        epilog="To end the hold: kubectl annotate node NAME nodeguard.dev/hold-. A fault that still exists "
        "is marked again then.",
    )
    add = parser.add_argument
    add("nodes", nargs="*", metavar="NODE", help="name of a node")
    add("--all", action="store_true", help="remove the marks of all nodes, and pause")
    add("--reason", default="", metavar="TEXT", help="reason of the hold, for other operators")
    add("-y", "--yes", action="store_true", help="do not ask")
    add(
        "--without-aggregator",
        action="store_true",
        help="remove them through the Kubernetes API, with no pause: before nodeguard is uninstalled",
    )
    add_kubeconfig(parser, "with --without-aggregator", USER_KUBECONFIG)
    add_by(parser)
    add_output(parser, "text", "json", "yaml")
    add_socket(parser)
    return parser
