"""nodeguard explain node, explain domain, and explain incident: all that the aggregator knows of it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from nodeguard.cli.aggregator_client import AggregatorClient, NotFoundError, quote_name, to_json
from nodeguard.cli.render.domain import domain_lines, domain_list_lines
from nodeguard.cli.render.incident import incident_lines
from nodeguard.cli.render.node import node_lines
from nodeguard.cli.render.terminal import StyledLine, print_lines
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import UsageError, did_you_mean
from nodeguard.fleet_api.schema.domain import DomainList, DomainView
from nodeguard.fleet_api.schema.incident import IncidentList, IncidentView
from nodeguard.fleet_api.schema.node import NodeList, NodeView

_Told = NodeView | IncidentView | DomainView | DomainList


def explain_fleet(options: Namespace, arguments: Sequence[str]) -> None:
    """Print the page. options: what, format, socket. Raises UsageError."""
    kind, *names = options.what
    if len(names) > 1 or not (names or kind.lower() == "domain"):
        raise UsageError(f"'{kind}' takes one name: write nodeguard explain {kind} NAME")
    told = _told(AggregatorClient(options, "explain", arguments), kind.lower(), *names)
    if options.format == "json":
        print_output(to_json(told))
    else:
        print_lines(_page(told))


def _told(aggregator: AggregatorClient, kind: str, name: str = "") -> _Told:
    if not name:
        return aggregator.get("domains", DomainList)
    try:
        if kind == "node":
            return aggregator.get(f"nodes/{quote_name(name)}", NodeView)
        if kind == "domain":
            return aggregator.get(f"domains/{quote_name(name)}", DomainView)
        return aggregator.get(f"incidents/{quote_name(name)}", IncidentView)
    except NotFoundError:
        missing = {"node": no_node, "domain": no_domain}.get(kind, no_incident)
        raise missing(aggregator, name) from None


def _page(told: _Told) -> list[StyledLine]:
    match told:
        case NodeView():
            return node_lines(told)
        case DomainView():
            return domain_lines(told)
        case DomainList():
            return domain_list_lines(told)
    return incident_lines(told)


def no_node(aggregator: AggregatorClient, name: str) -> UsageError:
    """That there is no such node, and which may be meant."""
    known = [one.node for one in aggregator.get("nodes", NodeList).nodes]
    return UsageError(f"'{name}' is no node: {did_you_mean(name, known)}see kubectl get nodes")


def no_domain(aggregator: AggregatorClient, name: str) -> UsageError:
    """That there is no such domain, and which may be meant."""
    known = [one.domain for one in aggregator.get("domains?all=yes", DomainList).domains]
    # People write a whole path, or the last part of it.
    likely = known if "/" in name else dict.fromkeys(path.rpartition("/")[2] for path in known)
    return UsageError(f"'{name}' is no domain: {did_you_mean(name, likely)}see nodeguard explain domain")


def no_incident(aggregator: AggregatorClient, name: str) -> UsageError:
    """That there is no such incident, and which may be meant."""
    known = [one.name for one in aggregator.get("incidents?state=all", IncidentList).incidents]
    return UsageError(f"'{name}' is no incident: {did_you_mean(name, known)}see nodeguard incidents --all")
