"""nodeguard get: lists of nodes, GPUs, ports, domains, incidents, checks and budgets."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from nodeguard.cli.aggregator_client import AggregatorClient, NotFoundError, add_socket, quote_name
from nodeguard.cli.commands.describe import node_not_found
from nodeguard.cli.field_selector import parse_field_selector
from nodeguard.cli.options import add_output
from nodeguard.cli.progress import add_watch, print_or_watch
from nodeguard.cli.render.resources import (
    BUDGET_TABLE,
    CHECK_TABLE,
    DOMAIN_TABLE,
    GPU_TABLE,
    INCIDENT_TABLE,
    NODE_TABLE,
    PORT_TABLE,
    ResourceTable,
    resource_lines,
)
from nodeguard.cli.render.terminal import StyledLine, format_lines, terminal_width, view_lines
from nodeguard.cli.streams import as_document, is_document, is_terminal, print_output
from nodeguard.cli.usage import OK, ArgumentParser, did_you_mean
from nodeguard.fleet_api.schema.budget import BudgetList
from nodeguard.fleet_api.schema.component import ComponentList, ComponentView
from nodeguard.fleet_api.schema.domain import DomainList, DomainSummary
from nodeguard.fleet_api.schema.incident import IncidentList
from nodeguard.fleet_api.schema.node import NodeList, NodeSummary
from nodeguard.fleet_api.schema.status import BudgetView, IncidentSummary, WorkState
from nodeguard.fleet_api.text.domain import domain_list_view
from nodeguard.fleet_api.text.phrases import count_noun, first_names
from nodeguard.fleet_api.view import View
from nodeguard.model.check import Check
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState

_STATES = tuple(state.slug for state in IncidentState)
# What makes a name a pattern.
_PATTERN = re.compile(r"[*?\[]")
# Names among which a similar one is searched for: more of them take seconds.
_MAX_SIMILAR = 10_000
_HEALTHS = (*(health.value for health in Health), "unknown")


class _List(NamedTuple):
    """A response, the items of it that the filters leave, how many the aggregator left out, and
    notes on others that are missing.
    """

    response: Any
    items: list[Any]
    omitted: int = 0
    notes: tuple[str, ...] = ()


class _Resource(NamedTuple):
    """A kind of things to list. elsewhere: what shows more, for the help and a terminal."""

    table: ResourceTable
    item: type[Struct]
    about: str
    fetch: Callable[[Namespace], _List]
    heading: Callable[[Any], View] | None = None
    elsewhere: str = ""


# The aggregator has no values that change with every reading.
_VALUES = "on the node, nodeguard status --agent --values shows"


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError, and NotFoundError for names that do not
    exist, after the output of the others.
    """
    resource = _RESOURCES[options.resource]
    listed = resource.fetch(options)
    errors = list(_not_found(resource.table, options, listed))
    if errors and len(errors) == len(options.names):
        raise NotFoundError("\n".join((*errors, *listed.notes)))
    if options.watch:
        print_or_watch(lambda: _render(resource, options, resource.fetch(options)), options)
    print_output(_render(resource, options, listed))
    if errors:
        raise NotFoundError("\n".join(errors))
    return OK


def _not_found(table: ResourceTable, options: Namespace, listed: _List) -> Iterator[str]:
    """Yield the error of each name that does not exist. Patterns match any number of names.

    A response that is cut or restricted by a filter of the aggregator does not show it.
    """
    names = _exact_names(options)
    if not names or listed.omitted or any(getattr(options, name, None) for name in ("selector", "state")):
        return
    all_items = getattr(listed.response, table.field, listed.response)
    existing = {name for item in all_items for name in (table.name(item), *table.other_names(item))}
    kind = options.resource
    every = " --all" if kind in {"incidents", "domains"} else ""
    for name in names:
        if name not in existing:
            hint = did_you_mean(name, existing) if len(existing) <= _MAX_SIMILAR else ""
            yield f"{table.kind} '{name}' not found: {hint}see nodeguard get {kind}{every}"


def _exact_names(options: Namespace) -> list[str]:
    return [name for name in options.names if not _PATTERN.search(name)]


def _render(resource: _Resource, options: Namespace, listed: _List) -> str:
    table = resource.table
    items = [
        item
        for item in listed.items
        if any(_selected(name, options.names) for name in (table.name(item), *table.other_names(item)))
        and all(term.matches(item) for term in options.field_selector)
    ]
    if options.sort_by:
        items = _sorted(items, options.sort_by)
    if options.reverse:
        items.reverse()
    if options.output == "name":
        return "\n".join(f"{table.kind}/{table.name(item)}" for item in items)
    if is_document(options.output):
        return as_document(_document(resource, listed, items), options.output)
    width = terminal_width() if is_terminal() else None
    lines = resource_lines(table, items, width, wide=options.output == "wide", omitted=listed.omitted)
    if resource.heading is not None:
        lines = [*view_lines(resource.heading(listed.response)), StyledLine(), *lines]
    lines += [StyledLine(text=note, style="warning") for note in listed.notes]
    if resource.elsewhere and is_terminal():
        lines.append(StyledLine(text=resource.elsewhere, style="dim"))
    return format_lines(lines)


def _document(resource: _Resource, listed: _List, items: list[Any]) -> Any:
    """Return the response of the API with the selected items."""
    import msgspec  # noqa: PLC0415 - for two formats

    document = msgspec.to_builtins(listed.response)
    if isinstance(document, dict):
        document[resource.table.field] = msgspec.to_builtins(items)
        return document
    return msgspec.to_builtins(items)


def _selected(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatch(name, pattern) for pattern in patterns)


def _sorted(items: list[Any], field: str) -> list[Any]:
    """Return items by a field."""

    def key(item: Any) -> tuple[bool, Any]:
        value = getattr(item, field)
        rank = Health(value).rank if field == "health" and value in set(Health) else None
        value = rank if rank is not None else value
        number = value if isinstance(value, (int, float)) else None
        return (value is None, number if number is not None else str(value))

    try:
        return sorted(items, key=key)
    except TypeError:
        return sorted(items, key=lambda item: str(getattr(item, field)))


def _nodes(options: Namespace) -> _List:
    response = AggregatorClient(options).get(_target("nodes", *_selector_query(options)), NodeList)
    nodes = [
        node
        for node in response.nodes
        if (not options.health or node.health in options.health)
        and (not options.marked or node.marks)
        and (not options.unhealthy or node.health != "ok")
        and (not options.work or node.work in options.work)
    ]
    return _List(response, nodes)


def _target(path: str, *query: str) -> str:
    """Return a path with the parameters of a query."""
    return f"{path}?{'&'.join(query)}" if query else path


def _selector_query(options: Namespace) -> Iterator[str]:
    if options.selector:
        yield f"selector={quote_name(options.selector)}"


def _components(kind: str, options: Namespace) -> _List:
    client = AggregatorClient(options)
    query = [f"node={quote_name(options.node)}"] if options.node else []
    try:
        response = client.get(_target(kind, *query, *_selector_query(options)), ComponentList)
    except NotFoundError:
        raise node_not_found(client, options.node) from None
    components = [
        component
        for component in response.components
        if (not options.health or component.health in options.health)
        and (not options.unhealthy or component.health != "ok")
    ]
    return _List(response, components, notes=tuple(_missing_components(response)))


def _missing_components(response: ComponentList) -> Iterator[str]:
    """Yield why components may be missing in a list."""
    if response.omitted:
        names, count = first_names(response.omitted_of), count_noun(response.omitted, "component")
        yield f"some may be missing: full reports left out {count} of {names}"
    if response.not_reported:
        yield f"missing: those of {count_noun(response.not_reported, 'node')} without a report"


def _domains(options: Namespace) -> _List:
    target = "domains?all=yes" if options.all or options.names else "domains"
    response = AggregatorClient(options).get(target, DomainList)
    domains = [
        domain
        for domain in response.domains
        if not options.topology or domain.domain.partition("/")[0] in options.topology
    ]
    return _List(response, domains, response.omitted)


def _incidents(options: Namespace) -> _List:
    client = options.connect(options)
    states = options.state or (["all"] if options.all or _exact_names(options) else [])
    query = [f"state={state}" for state in states]
    query += [f"node={quote_name(options.node)}"] if options.node else []
    try:
        response = client.get(_target("incidents", *query), IncidentList)
    except NotFoundError:
        raise node_not_found(client, options.node) from None
    incidents = [
        incident
        for incident in response.incidents
        if (not options.health or incident.health.value in options.health)
        and (not options.check or _selected(incident.cause, options.check))
    ]
    return _List(response, incidents, response.omitted)


def _checks(options: Namespace) -> _List:
    from nodeguard.cli.check_catalogue import load_catalogue, selected_checks  # noqa: PLC0415 - reads all checks

    catalogue, _signals = load_catalogue(options.checks)
    return _List(catalogue.checks, selected_checks(catalogue, options))


def _budgets(options: Namespace) -> _List:
    response = AggregatorClient(options).get("budgets", BudgetList)
    return _List(response, list(response.budgets))


_RESOURCES = {
    "nodes": _Resource(NODE_TABLE, NodeSummary, "nodes with their health and marks", _nodes),
    "gpus": _Resource(
        GPU_TABLE,
        ComponentView,
        "GPUs with their names, and the worst finding on each",
        partial(_components, "gpus"),
        elsewhere=f"{_VALUES} temperatures, clocks and error counters",
    ),
    "ports": _Resource(
        PORT_TABLE,
        ComponentView,
        "ports of network adapters, and the worst finding on each",
        partial(_components, "ports"),
        elsewhere=f"{_VALUES} the state, rate and error counters of each port",
    ),
    "domains": _Resource(
        DOMAIN_TABLE,
        DomainSummary,
        "failure domains that are degraded or show a fault",
        _domains,
        domain_list_view,
    ),
    "incidents": _Resource(INCIDENT_TABLE, IncidentSummary, "unresolved incidents, worst first", _incidents),
    "checks": _Resource(CHECK_TABLE, Check, "checks of the catalogue", _checks),
    "budgets": _Resource(
        BUDGET_TABLE, BudgetView, "budgets of the policy, and how much of each is used", _budgets
    ),
}
_ALIASES = {
    "nodes": ("node", "no"),
    "gpus": ("gpu",),
    "ports": ("port",),
    "domains": ("domain",),
    "incidents": ("incident", "inc"),
    "checks": ("check",),
    "budgets": ("budget",),
}


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard get",
        description="List nodes, GPUs, ports, failure domains, incidents, checks or budgets.",
        examples=(
            "nodeguard get nodes --unhealthy",
            "nodeguard get nodes -l pool=a -o name",
            "nodeguard get incidents -n gpu-7 -o wide",
            "nodeguard get gpus -n gpu-7",
            "nodeguard get gpus 'GPU-2c1b*' -o wide",
            "nodeguard get ports -n gpu-7",
            "nodeguard get domains --all",
            "nodeguard get checks 'gpu-*'",
            "nodeguard get budgets -o json",
            """nodeguard get nodes -o jsonpath='{.nodes[?(@.health=="fatal")].node}'""",
        ),
    )
    kinds = parser.add_subparsers(dest="alias", metavar=" | ".join(_RESOURCES), required=True)
    for name, resource in _RESOURCES.items():
        elsewhere = resource.elsewhere and f" {resource.elsewhere[:1].upper()}{resource.elsewhere[1:]}."
        description = f"List {resource.about}.{elsewhere}"
        part = kinds.add_parser(name, aliases=_ALIASES[name], help=resource.about, description=description)
        part.set_defaults(resource=name)
        part.add_argument(
            "names", metavar="NAME", nargs="*", help="names or patterns such as gpu-*; default: all"
        )
        add_output(part, "text", "wide", "json", "yaml", "name")
        fields = resource.item.__struct_fields__
        part.add_argument(
            "--sort-by",
            metavar="FIELD",
            type=partial(_one_of, "field", fields),
            choices=fields,
            help="sort by a field of the JSON, such as health",
        )
        part.add_argument(
            "--field-selector",
            metavar="FIELDS",
            type=partial(parse_field_selector, fields),
            default=(),
            help="only items with these values in fields of the JSON, as in kubectl: health=fatal,pool!=a",
        )
        part.add_argument("--reverse", action="store_true", help="reverse the order")
        _FILTERS[name](part)
        add_watch(part)
        if name != "checks":
            add_socket(part)
    return parser


def _add_health(part: ArgumentParser) -> None:
    part.add_argument(
        "--health", choices=_HEALTHS, action="append", default=[], help="only this health (repeatable)"
    )


def _add_selector(part: ArgumentParser) -> None:
    part.add_argument(
        "-l",
        "--selector",
        metavar="LABELS",
        default="",
        help="only nodes with these labels, as in kubectl: pool=a, 'rack in (r1,r2)', '!spare'",
    )


def _add_node_filters(part: ArgumentParser) -> None:
    _add_health(part)
    _add_selector(part)
    part.add_argument("--unhealthy", action="store_true", help="only nodes that are not ok")
    part.add_argument("--marked", action="store_true", help="only nodes with a mark")
    part.add_argument(
        "--work",
        choices=[state.value for state in WorkState],
        action="append",
        default=[],
        help="only nodes in this state (repeatable); faulty: they take work without the mark of their fault",
    )


def _add_component_filters(part: ArgumentParser) -> None:
    _add_health(part)
    _add_selector(part)
    part.add_argument("--unhealthy", action="store_true", help="only those that are not ok")
    part.add_argument("-n", "--node", metavar="NAME", default="", help="only those of this node")


def _add_domain_filters(part: ArgumentParser) -> None:
    part.add_argument("-A", "--all", action="store_true", help="also domains without any fault")
    part.add_argument(
        "--topology", metavar="NAME", action="append", default=[], help="only this topology (repeatable)"
    )


def _add_incident_filters(part: ArgumentParser) -> None:
    _add_health(part)
    part.add_argument("-A", "--all", action="store_true", help="also incidents resolved within a day")
    part.add_argument("-n", "--node", metavar="NAME", default="", help="only incidents of this node")
    part.add_argument(
        "--state",
        metavar="STATE",
        type=partial(_one_of, "state", _STATES),
        choices=_STATES,
        action="append",
        default=[],
        help="only this state, such as withheld (repeatable)",
    )
    part.add_argument(
        "--check", metavar="CHECK", action="append", default=[], help="only this check (repeatable)"
    )


def _add_check_filters(part: ArgumentParser) -> None:
    from nodeguard.cli.options import add_checks, add_family  # noqa: PLC0415 - for one of the lists

    _add_health(part)
    add_family(part)
    add_checks(part)


_FILTERS: dict[str, Callable[[ArgumentParser], None]] = {
    "nodes": _add_node_filters,
    "gpus": _add_component_filters,
    "ports": _add_component_filters,
    "domains": _add_domain_filters,
    "incidents": _add_incident_filters,
    "checks": _add_check_filters,
    "budgets": lambda _: None,
}


def _one_of(noun: str, names: Sequence[str], text: str) -> str:
    """Return the name that a text is, in any case. noun: what it names. Raises ArgumentTypeError."""
    if text.lower() not in names:
        hint = did_you_mean(text.lower(), names)
        raise ArgumentTypeError(f"{noun} '{text}' is unknown: {hint}expected {', '.join(names)}")
    return text.lower()
