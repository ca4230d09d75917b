"""nodeguard drain: which pods a drain of a node would evict now, or why these stay."""

from __future__ import annotations

from argparse import Namespace

from nodeguard.cli.aggregator_client import AggregatorClient, NotFoundError, add_socket, quote_name
from nodeguard.cli.commands.describe import node_not_found
from nodeguard.cli.options import add_output
from nodeguard.cli.render.terminal import format_view
from nodeguard.cli.streams import document_or_text, print_output
from nodeguard.cli.usage import OK, ArgumentParser
from nodeguard.fleet_api.schema.drain import DrainPreview
from nodeguard.fleet_api.text.drain import preview_view


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    client = AggregatorClient(options)
    try:
        preview = client.get(f"nodes/{quote_name(options.name)}/drain", DrainPreview)
    except NotFoundError:
        raise node_not_found(client, options.name) from None
    print_output(document_or_text(preview, options.output, lambda: format_view(preview_view(preview))))
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard drain",
        description="Show which pods a drain of a node would evict now, or why these stay.",
        examples=("nodeguard drain node gpu-7 --dry-run",),
        epilog="Exit codes: 0 shown; 3 no such node, or the aggregator did not answer, or refused.",
    )
    kinds = parser.add_subparsers(dest="kind", metavar="node", required=True)
    part = kinds.add_parser(
        "node",
        help="the pods that use the faulty hardware of a quarantined node",
        description="Show the pods that use the faulty hardware of a quarantined node, and whether all of "
        "them may leave now, by dry runs of their evictions. Rules and limits of the policy do not count. "
        "The policy (drain.mode) evicts pods, this command none.",
    )
    part.add_argument("name", metavar="NAME", help="the node")
    part.add_argument(
        "--dry-run", action="store_true", required=True, help="evict nothing; required, as it never does"
    )
    add_output(part, "text", "json", "yaml")
    add_socket(part)
    return parser
