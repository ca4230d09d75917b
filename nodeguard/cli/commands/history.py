"""nodeguard history: what changed in the fleet, on a node, or of an incident, and who did it."""

from __future__ import annotations

from argparse import Namespace
from urllib.parse import urlencode

from nodeguard.cli.aggregator_client import AggregatorClient, add_socket
from nodeguard.cli.options import add_output
from nodeguard.cli.render.history import history_lines
from nodeguard.cli.render.terminal import format_lines
from nodeguard.cli.streams import document_or_text, print_output
from nodeguard.cli.usage import OK, ArgumentParser, duration
from nodeguard.fleet_api.schema.history import HistoryView


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    client = AggregatorClient(options)
    query = urlencode({"since": f"{options.since:g}", "name": options.name}, errors="surrogateescape")
    view = client.get(f"history?{query}", HistoryView)
    print_output(document_or_text(view, options.output, lambda: format_lines(history_lines(view))))
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard history",
        description="Show what changed, oldest first: incidents, marks set and released, pauses, policy "
        "changes, decisions of operators, holds, cordons, and agents that stopped reporting. From the "
        "history of the aggregator that answers.",
        examples=("nodeguard history", "nodeguard history gpu-7 --since 7d"),
        epilog="Exit codes: 0 shown; 3 not found, no history, or the aggregator did not answer.",
    )
    parser.add_argument(
        "name", nargs="?", default="", metavar="NODE|INCIDENT|DOMAIN", help="only changes of this one"
    )
    parser.add_argument(
        "--since",
        type=duration,
        default=86_400.0,
        metavar="TIME",
        help="how far back, such as 30m or 7d (24h)",
    )
    add_output(parser, "text", "json", "yaml")
    add_socket(parser)
    return parser
