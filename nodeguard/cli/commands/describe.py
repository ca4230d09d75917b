"""nodeguard describe: one node, incident or failure domain in full, with the reason of each mark."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from nodeguard.cli.aggregator_client import (
    AggregatorClient,
    NotFoundError,
    UnreachableError,
    add_socket,
    quote_name,
    resolve_incident,
)
from nodeguard.cli.commands.status import agent_text_or_raise
from nodeguard.cli.options import add_output
from nodeguard.cli.progress import add_watch, print_or_watch
from nodeguard.cli.render.terminal import format_view
from nodeguard.cli.streams import document_or_text
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, did_you_mean
from nodeguard.fleet_api.schema.domain import DomainList, DomainView
from nodeguard.fleet_api.schema.incident import IncidentView
from nodeguard.fleet_api.schema.node import NodeList, NodeView
from nodeguard.fleet_api.text.domain import domain_view
from nodeguard.fleet_api.text.incident import incident_view
from nodeguard.fleet_api.text.node import node_view
from nodeguard.fleet_api.view import View

_Response = NodeView | IncidentView | DomainView

_KINDS = {
    "node": "why a node is marked or not, its findings, and what its marks wait for",
    "incident": "one incident, its marks and its evidence; NAME may be a unique prefix, NODE, or NODE/CHECK",
    "domain": "why a failure domain is degraded or not; NAME is a path such as fabric/p0/r0, or its end",
}


# The kind of a name without one: that of the first of these objects that exists.
_ANY = "node, domain or incident"


class _Parser(ArgumentParser):
    """A parser that also takes `node/NAME`, as `get -o name` prints it, and a NAME without its kind."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options and the words that are none."""
        words = list[str](args or ())
        kind, name = _kind_and_name(words)
        if name:
            words[:1] = ["node" if kind == _ANY else kind, name]
        options, rest = super().parse_known_args(words, namespace)
        if kind == _ANY:
            options.kind = _ANY
        return options, rest


def _kind_and_name(words: Sequence[str]) -> tuple[str, str]:
    """Return the kind and the name that the first word has; empty if that is an option, or a kind itself."""
    if not words or words[0].startswith("-") or words[0] in _KINDS:
        return "", ""
    kind, _, name = words[0].partition("/")
    if kind in _KINDS:
        return kind, name
    # Two words without an option between them are a misspelt kind and a name.
    is_name = len(words) == 1 or words[1].startswith("-")
    return (_ANY, words[0]) if is_name else ("", "")


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    client = options.connect(options)

    def render() -> str:
        try:
            response = _fetch(client, options.kind, options.name)
        except UnreachableError as unreachable:
            if options.kind not in {"node", _ANY}:
                raise
            return agent_text_or_raise(options, unreachable, options.name)
        return document_or_text(response, options.output, lambda: format_view(_view(response)))

    print_or_watch(render, options)
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = _Parser(
        prog="nodeguard describe",
        description="Show a node, an incident or a failure domain in full, as the aggregator knows it. "
        "Without an aggregator, show this node as its agent knows it. A NAME without its kind is that of a "
        "node, else of a domain, else of an incident.",
        examples=(
            "nodeguard describe node gpu-7",
            "nodeguard describe gpu-7",
            "nodeguard describe incident gpu-7/gpu-lost",
            "nodeguard describe domain fabric/p0/leaf3",
        ),
        epilog="Exit codes: 0 found; 3 not found, or the aggregator did not answer.",
    )
    kinds = parser.add_subparsers(dest="kind", metavar="node | incident | domain", required=True)
    for kind, about in _KINDS.items():
        part = kinds.add_parser(kind, help=about, description=f"Show {about}.")
        part.add_argument("name", metavar="NAME", help=f"the {kind}")
        add_output(part, "text", "json", "yaml")
        add_watch(part)
        add_socket(part)
    return parser


def _fetch(client: AggregatorClient, kind: str, name: str) -> _Response:
    if kind == _ANY:
        return _fetch_any(client, name)
    try:
        if kind == "node":
            return client.get(f"nodes/{quote_name(name)}", NodeView)
        if kind == "domain":
            return client.get(f"domains/{quote_name(name)}", DomainView)
    except NotFoundError:
        raise (node_not_found if kind == "node" else _domain_not_found)(client, name) from None
    return client.get(f"incidents/{quote_name(resolve_incident(client, name))}", IncidentView)


def _fetch_any(client: AggregatorClient, name: str) -> _Response:
    with suppress(NotFoundError):
        return client.get(f"nodes/{quote_name(name)}", NodeView)
    with suppress(NotFoundError):
        return client.get(f"domains/{quote_name(name)}", DomainView)
    try:
        return client.get(f"incidents/{quote_name(resolve_incident(client, name))}", IncidentView)
    except NotFoundError:
        names = [node.node for node in client.get("nodes", NodeList).nodes]
        hint = did_you_mean(name, names)
        raise NotFoundError(f"'{name}' is no {_ANY}: {hint}see nodeguard get nodes") from None


def _view(response: _Response) -> View:
    match response:
        case NodeView():
            return node_view(response)
        case DomainView():
            return domain_view(response)
    return incident_view(response)


def node_not_found(client: AggregatorClient, name: str) -> UsageError:
    """Return the error for a node that does not exist, with similar names."""
    names = [node.node for node in client.get("nodes", NodeList).nodes]
    return UsageError(f"node '{name}' not found: {did_you_mean(name, names)}see nodeguard get nodes")


def _domain_not_found(client: AggregatorClient, name: str) -> UsageError:
    paths = [domain.domain for domain in client.get("domains?all=yes", DomainList).domains]
    # Operators write a whole path, or the last part of it.
    candidates = paths if "/" in name else dict.fromkeys(path.rpartition("/")[2] for path in paths)
    hint = did_you_mean(name, candidates)
    return UsageError(f"domain '{name}' not found: {hint}see nodeguard get domains --all")
