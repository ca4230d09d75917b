"""nodeguard explain node, and explain incident: all that the aggregator knows of it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from nodeguard.cli.incident_page import incident_page
from nodeguard.cli.local_aggregator import Aggregator, MissingError, as_json, part
from nodeguard.cli.node_page import node_page
from nodeguard.cli.page import show
from nodeguard.cli.streams import say
from nodeguard.cli.usage import UsageError, near
from nodeguard.fleet.told.incident_forms import IncidentList, IncidentPage
from nodeguard.fleet.told.node_forms import NodeList, NodePage


def explain_fleet(options: Namespace, arguments: Sequence[str]) -> None:
    """Print the page. options: what, format, socket. Raises UsageError."""
    kind, *names = options.what
    if len(names) != 1:
        raise UsageError(f"'{kind}' takes one name: write nodeguard explain {kind} NAME")
    aggregator, name = Aggregator(options, "explain", arguments), names[0]
    told = _node(aggregator, name) if kind.lower() == "node" else _incident(aggregator, name)
    if options.format == "json":
        say(as_json(told))
    else:
        show(node_page(told) if isinstance(told, NodePage) else incident_page(told))


def _node(aggregator: Aggregator, name: str) -> NodePage:
    try:
        return aggregator.told(f"nodes/{part(name)}", NodePage)
    except MissingError:
        raise no_node(aggregator, name) from None


def _incident(aggregator: Aggregator, name: str) -> IncidentPage:
    try:
        return aggregator.told(f"incidents/{part(name)}", IncidentPage)
    except MissingError:
        raise no_incident(aggregator, name) from None


def no_node(aggregator: Aggregator, name: str) -> UsageError:
    """That there is no such node, and which may be meant."""
    known = [one.node for one in aggregator.told("nodes", NodeList).nodes]
    return UsageError(f"'{name}' is no node: {near(name, known)}see kubectl get nodes")


def no_incident(aggregator: Aggregator, name: str) -> UsageError:
    """That there is no such incident, and which may be meant."""
    known = [one.name for one in aggregator.told("incidents?state=all", IncidentList).incidents]
    return UsageError(f"'{name}' is no incident: {near(name, known)}see nodeguard incidents --all")
