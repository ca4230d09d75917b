"""Resources that nodeguard get lists: how each is fetched from the aggregator and filtered by its options."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from functools import partial
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from nodeguard.cli.aggregator_client import AggregatorClient, NotFoundError, quote_name
from nodeguard.cli.commands.describe import node_not_found
from nodeguard.cli.render.resources import (
    ACTION_TABLE,
    BUDGET_TABLE,
    CHECK_TABLE,
    DOMAIN_TABLE,
    GPU_TABLE,
    INCIDENT_TABLE,
    NODE_TABLE,
    PORT_TABLE,
    ResourceTable,
)
from nodeguard.cli.usage import ArgumentParser, UsageError, did_you_mean
from nodeguard.fleet_api.schema.action import ActionList, ActionView
from nodeguard.fleet_api.schema.budget import BudgetList
from nodeguard.fleet_api.schema.capacity import WorkState
from nodeguard.fleet_api.schema.component import ComponentList, ComponentView
from nodeguard.fleet_api.schema.domain import DomainList, DomainSummary
from nodeguard.fleet_api.schema.incident import IncidentList
from nodeguard.fleet_api.schema.incident_summary import IncidentSummary
from nodeguard.fleet_api.schema.node import NodeList, NodeSummary
from nodeguard.fleet_api.schema.status import BudgetView
from nodeguard.fleet_api.schema.unreported import UnreportedList
from nodeguard.fleet_api.text.domain import domain_list_view
from nodeguard.fleet_api.text.drain import drain_text
from nodeguard.fleet_api.text.wording import count_noun, first_names
from nodeguard.fleet_api.view import View
from nodeguard.model.action import ActionKind, ActionState
from nodeguard.model.check import Check
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState

_Response = TypeVar("_Response", bound=Struct)

_STATES = tuple(state.slug for state in IncidentState)
_ACTION_STATES = tuple(state.value.lower() for state in ActionState)
_HEALTHS = (*(health.value for health in Health), "unknown")

# Without the list of agents, these do not count as nodes of the fleet: they may be outside of it.
_NOT_LISTED = "not listed: Nodes that have no GPUs in their capacity, no mark and no incident"

# Drains without an action that are named.
_NAMED_DRAINS = 10

# What makes a name a pattern.
_PATTERN = "*?["


class ResourceList(NamedTuple):
    """A response, the items of it that the filters leave, how many the aggregator left out, and
    notes on others that are missing.
    """

    response: Any
    items: list[Any]
    omitted: int = 0
    notes: tuple[str, ...] = ()


class Resource(NamedTuple):
    """A kind of things to list. add_filters: options that `fetch` reads. elsewhere: what shows more, for
    the help and a terminal.
    """

    table: ResourceTable
    item: type[Struct]
    aliases: tuple[str, ...]
    about: str
    fetch: Callable[[Namespace], ResourceList]
    add_filters: Callable[[ArgumentParser], None]
    heading: Callable[[Any], View] | None = None
    elsewhere: str = ""


def exact_names(options: Namespace) -> list[str]:
    """Return the names of the command line that are no patterns."""
    return [name for name in options.names if not any(character in name for character in _PATTERN)]


def is_selected(name: str, patterns: Sequence[str]) -> bool:
    """Return whether one of some patterns matches a name. Without patterns, each name is selected."""
    return not patterns or any(fnmatch(name, pattern) for pattern in patterns)


def _nodes(options: Namespace) -> ResourceList:
    response = options.connect(options).get(_target("nodes", *_selector_query(options)), NodeList)
    nodes = [
        node
        for node in response.nodes
        if _has_health(node.health, options)
        and (not options.marked or node.marks)
        and (not options.work or node.work in options.work)
    ]
    notes: tuple[str, ...] = ()
    if isinstance(response, UnreportedList):
        notes = (f"not read: {response.not_read}", _NOT_LISTED)
    return ResourceList(response, nodes, notes=notes)


def _target(path: str, *query: str) -> str:
    """Return a path with the parameters of a query."""
    return f"{path}?{'&'.join(query)}" if query else path


def _selector_query(options: Namespace) -> Iterator[str]:
    if options.selector:
        yield f"selector={quote_name(options.selector)}"


def _has_health(health: str, options: Namespace) -> bool:
    """Return whether --health and --unhealthy leave an item with a health."""
    return (not options.health or health in options.health) and (not options.unhealthy or health != "ok")


def _get_of_node(
    client: AggregatorClient, path: str, schema: type[_Response], options: Namespace, *query: str
) -> _Response:
    """Return a list that --node restricts. Raises NotFoundError for a node that does not exist."""
    if options.node == "":
        raise UsageError("--node is empty: name a node, or leave out --node for all")
    node = [f"node={quote_name(options.node)}"] if options.node else []
    try:
        return client.get(_target(path, *query, *node), schema)
    except NotFoundError as error:
        if not node:
            # An earlier version does not have the list.
            raise UsageError(f"{error}; both sides must be of one version") from None
        raise node_not_found(client, options.node) from None


def _components(kind: str, options: Namespace) -> ResourceList:
    client = AggregatorClient(options)
    response = _get_of_node(client, kind, ComponentList, options, *_selector_query(options))
    components = [component for component in response.components if _has_health(component.health, options)]
    return ResourceList(response, components, notes=tuple(_missing_components(response)))


def _missing_components(response: ComponentList) -> Iterator[str]:
    """Yield why components may be missing in a list."""
    if response.omitted:
        names, count = first_names(response.omitted_of), count_noun(response.omitted, "component")
        yield f"some may be missing: full reports left out {count} of {names}"
    if response.not_reported:
        yield f"missing: those of {count_noun(response.not_reported, 'node')} without a report"


def _domains(options: Namespace) -> ResourceList:
    target = "domains?all=yes" if options.all or options.names else "domains"
    response = AggregatorClient(options).get(target, DomainList)
    domains = [
        domain
        for domain in response.domains
        if not options.topology or domain.domain.partition("/")[0] in options.topology
    ]
    return ResourceList(response, domains, response.omitted)


def _incidents(options: Namespace) -> ResourceList:
    states = options.state or (["all"] if options.all or exact_names(options) else [])
    query = (f"state={state}" for state in states)
    response = _get_of_node(options.connect(options), "incidents", IncidentList, options, *query)
    incidents = [
        incident
        for incident in response.incidents
        if (not options.health or incident.health.value in options.health)
        and is_selected(incident.cause, options.check)
    ]
    return ResourceList(response, incidents, response.omitted)


def _actions(options: Namespace) -> ResourceList:
    response = _get_of_node(AggregatorClient(options), "actions", ActionList, options)
    kinds = {kind.value for kind in ActionKind if kind.slug in options.kind}
    actions = [
        action
        for action in response.actions
        if (not kinds or action.kind in kinds)
        and (not options.state or action.state.lower() in options.state)
    ]
    has_all_kinds = not (kinds or options.state or options.names)
    notes = _unrecorded_drains(response) if has_all_kinds or kinds == {ActionKind.DRAIN.value} else ()
    return ResourceList(response, actions, response.omitted, tuple(notes))


def _unrecorded_drains(response: ActionList) -> Iterator[str]:
    """Yield the drains that wait or only would run: no action records them."""
    drains = response.unrecorded_drains
    for drain in drains[:_NAMED_DRAINS]:
        yield f"no drain of {drain.node} yet: {drain_text(drain)}"
    if len(drains) > _NAMED_DRAINS:
        yield f"and {len(drains) - _NAMED_DRAINS} more without an action: use -n, or -o json"


def _checks(options: Namespace) -> ResourceList:
    from nodeguard.cli.check_catalogue import load_catalogue, selected_checks  # noqa: PLC0415 - reads all checks

    catalogue, _signals = load_catalogue(options.checks)
    return ResourceList(catalogue.checks, selected_checks(catalogue, options))


def _budgets(options: Namespace) -> ResourceList:
    response = AggregatorClient(options).get("budgets", BudgetList)
    return ResourceList(response, list(response.budgets))


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
    part.add_argument("-n", "--node", metavar="NAME", help="only those of this node")


def _add_domain_filters(part: ArgumentParser) -> None:
    part.add_argument("-A", "--all", action="store_true", help="also domains without any fault")
    part.add_argument(
        "--topology", metavar="NAME", action="append", default=[], help="only this topology (repeatable)"
    )


def _add_incident_filters(part: ArgumentParser) -> None:
    _add_health(part)
    part.add_argument("-A", "--all", action="store_true", help="also incidents resolved within a day")
    part.add_argument("-n", "--node", metavar="NAME", help="only incidents of this node")
    part.add_argument(
        "--state",
        metavar="STATE",
        type=partial(one_of, "state", _STATES),
        choices=_STATES,
        action="append",
        default=[],
        help="only this state, such as withheld (repeatable)",
    )
    part.add_argument(
        "--check", metavar="CHECK", action="append", default=[], help="only this check (repeatable)"
    )


def _add_action_filters(part: ArgumentParser) -> None:
    kinds = tuple(kind.slug for kind in ActionKind)
    part.add_argument(
        "--kind",
        metavar="KIND",
        type=partial(one_of, "kind", kinds),
        choices=kinds,
        action="append",
        default=[],
        help=f"only this kind: {', '.join(kinds)} (repeatable)",
    )
    part.add_argument("-n", "--node", metavar="NAME", help="only actions on this node")
    part.add_argument(
        "--state",
        metavar="STATE",
        type=partial(one_of, "state", _ACTION_STATES),
        choices=_ACTION_STATES,
        action="append",
        default=[],
        help="only this state, such as failed (repeatable)",
    )


def _add_check_filters(part: ArgumentParser) -> None:
    from nodeguard.cli.options import add_checks, add_family  # noqa: PLC0415 - for one of the lists

    _add_health(part)
    add_family(part)
    add_checks(part)


def one_of(noun: str, names: Sequence[str], text: str) -> str:
    """Return the name that a text is, in any case. noun: what it names. Raises ArgumentTypeError."""
    if text.lower() not in names:
        hint = did_you_mean(text.lower(), names)
        raise ArgumentTypeError(f"{noun} '{text}' is unknown: {hint}expected {', '.join(names)}")
    return text.lower()


# The aggregator has no values that change with every reading.
_VALUES = "on the node, nodeguard status --agent --values shows"

RESOURCES = {
    "nodes": Resource(
        NODE_TABLE,
        NodeSummary,
        ("node", "no"),
        "nodes with their health and marks",
        _nodes,
        _add_node_filters,
    ),
    "gpus": Resource(
        GPU_TABLE,
        ComponentView,
        ("gpu",),
        "GPUs with their names, and the worst finding on each",
        partial(_components, "gpus"),
        _add_component_filters,
        elsewhere=f"{_VALUES} temperatures, clocks and error counters",
    ),
    "ports": Resource(
        PORT_TABLE,
        ComponentView,
        ("port",),
        "ports of network adapters, and the worst finding on each",
        partial(_components, "ports"),
        _add_component_filters,
        elsewhere=f"{_VALUES} the state, rate and error counters of each port",
    ),
    "domains": Resource(
        DOMAIN_TABLE,
        DomainSummary,
        ("domain",),
        "failure domains that are degraded or show a fault",
        _domains,
        _add_domain_filters,
        domain_list_view,
    ),
    "incidents": Resource(
        INCIDENT_TABLE,
        IncidentSummary,
        ("incident", "inc"),
        "unresolved incidents, worst first",
        _incidents,
        _add_incident_filters,
    ),
    "actions": Resource(
        ACTION_TABLE,
        ActionView,
        ("action", "act"),
        "drains, and what agents were asked to do, of the past day",
        _actions,
        _add_action_filters,
    ),
    "checks": Resource(
        CHECK_TABLE, Check, ("check",), "checks of the catalogue", _checks, _add_check_filters
    ),
    "budgets": Resource(
        BUDGET_TABLE,
        BudgetView,
        ("budget",),
        "budgets of the policy, and how much of each is used",
        _budgets,
        lambda _: None,
    ),
}
