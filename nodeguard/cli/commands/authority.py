"""nodeguard authority: show the certificate authority of the aggregators, and rotate it."""

from __future__ import annotations

from argparse import Namespace

from nodeguard.aggregator.api.requests import RotateRequest
from nodeguard.cli.aggregator_client import AggregatorClient, add_socket
from nodeguard.cli.options import add_by, add_output
from nodeguard.cli.streams import as_document, print_output
from nodeguard.cli.usage import OK, ArgumentParser
from nodeguard.fleet_api.schema.authority import AuthorityList

_SHOW = "Show the certificate authorities of the aggregators: which one signs, and when the others end."
_ROTATE = (
    "Create a new certificate authority. Agents get its certificate at once; it signs a day later, when "
    "every agent has it. The old one stays trusted until all certificates that it signed have expired."
)
_EXIT_CODES = "Exit codes: 0 done; 3 refused, or not delivered."


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    client = AggregatorClient(options)
    if options.verb == "rotate":
        client.post_and_print("authority/rotate", RotateRequest(options.by), options.output)
    else:
        response = client.get("authority", AuthorityList)
        print_output(as_document(response, options.output) or _table(response))
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(prog="nodeguard authority", description=f"{_SHOW} Or rotate them.")
    verbs = parser.add_subparsers(dest="verb", metavar="show | rotate", required=True)
    for verb, summary, about in (
        ("show", "show the authorities", _SHOW),
        ("rotate", "create a new authority", _ROTATE),
    ):
        part = verbs.add_parser(verb, help=summary, description=about, epilog=_EXIT_CODES)
        if verb == "rotate":
            add_by(part)
        add_output(part, "text", "json", "yaml")
        add_socket(part)
    return parser


def _table(response: AuthorityList) -> str:
    rows = [("STATE", "CREATED", "SIGNS FROM", "EXPIRES")]
    rows += [
        (authority.state, authority.created, authority.signs_from or "-", authority.expires)
        for authority in response.authorities
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    if response.retired_from:
        lines.append(f"Only the newest one is left from {response.retired_from} on.")
    return "\n".join(lines)
