"""nodeguard explain node, explain domain, and explain incident: all that the aggregator knows of it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from nodeguard.cli.local_aggregator import Aggregator, MissingError, as_json, part
from nodeguard.cli.render.domain import domain_page, domains_page
from nodeguard.cli.render.incident import incident_page
from nodeguard.cli.render.node import node_page
from nodeguard.cli.render.page import Line, show
from nodeguard.cli.streams import say
from nodeguard.cli.usage import UsageError, near
from nodeguard.fleet_api.domain_forms import DomainList, DomainPage
from nodeguard.fleet_api.incident_forms import IncidentList, IncidentPage
from nodeguard.fleet_api.node_forms import NodeList, NodePage

_Told = NodePage | IncidentPage | DomainPage | DomainList


def explain_fleet(options: Namespace, arguments: Sequence[str]) -> None:
    """Print the page. options: what, format, socket. Raises UsageError."""
    kind, *names = options.what
    if len(names) > 1 or not (names or kind.lower() == "domain"):
        raise UsageError(f"'{kind}' takes one name: write nodeguard explain {kind} NAME")
    told = _told(Aggregator(options, "explain", arguments), kind.lower(), *names)
    if options.format == "json":
        say(as_json(told))
    else:
        show(_page(told))


def _told(aggregator: Aggregator, kind: str, name: str = "") -> _Told:
    if not name:
        return aggregator.told("domains", DomainList)
    try:
        if kind == "node":
            return aggregator.told(f"nodes/{part(name)}", NodePage)
        if kind == "domain":
            return aggregator.told(f"domains/{part(name)}", DomainPage)
        return aggregator.told(f"incidents/{part(name)}", IncidentPage)
    except MissingError:
        missing = {"node": no_node, "domain": no_domain}.get(kind, no_incident)
        raise missing(aggregator, name) from None


def _page(told: _Told) -> list[Line]:
    match told:
        case NodePage():
            return node_page(told)
        case DomainPage():
            return domain_page(told)
        case DomainList():
            return domains_page(told)
    return incident_page(told)


def no_node(aggregator: Aggregator, name: str) -> UsageError:
    """That there is no such node, and which may be meant."""
    known = [one.node for one in aggregator.told("nodes", NodeList).nodes]
    return UsageError(f"'{name}' is no node: {near(name, known)}see kubectl get nodes")


def no_domain(aggregator: Aggregator, name: str) -> UsageError:
    """That there is no such domain, and which may be meant."""
    known = [one.domain for one in aggregator.told("domains?all=yes", DomainList).domains]
    # People write a whole path, or the last part of it.
    likely = known if "/" in name else dict.fromkeys(path.rpartition("/")[2] for path in known)
    return UsageError(f"'{name}' is no domain: {near(name, likely)}see nodeguard explain domain")


def no_incident(aggregator: Aggregator, name: str) -> UsageError:
    """That there is no such incident, and which may be meant."""
    known = [one.name for one in aggregator.told("incidents?state=all", IncidentList).incidents]
    return UsageError(f"'{name}' is no incident: {near(name, known)}see nodeguard incidents --all")
