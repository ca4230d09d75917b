"""The contents of the pages: the fleet, incidents, checks, nodes and domains. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodeguard.aggregator.pages.capacity import capacity_section
from nodeguard.aggregator.pages.drains import drains_section
from nodeguard.aggregator.pages.fleet_map import map_section
from nodeguard.aggregator.pages.html import (
    EMPTY,
    Html,
    check_path,
    domain_path,
    element,
    incidents_path,
    join,
    link,
    node_path,
)
from nodeguard.aggregator.pages.incidents import incident_table
from nodeguard.aggregator.pages.nodes import node_list
from nodeguard.aggregator.pages.page_query import NodeQuery
from nodeguard.aggregator.pages.sections import badge, fields, heading, pager, sections, table
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.domain import describe_domain, domains_named, list_domains
from nodeguard.fleet_api.fleet_map import SEVERITIES, fleet_map
from nodeguard.fleet_api.incident import (
    describe_incident,
    group_incidents,
    select_incidents,
    summarize_incident,
)
from nodeguard.fleet_api.node import UNKNOWN, describe_node, known_health, list_nodes
from nodeguard.fleet_api.schema.domain import DomainSummary
from nodeguard.fleet_api.schema.incident_summary import IncidentSummary
from nodeguard.fleet_api.schema.status import FleetStatus
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.check import explanation, explanation_view
from nodeguard.fleet_api.text.domain import domain_list_view, domain_state, domain_view
from nodeguard.fleet_api.text.incident import incident_view
from nodeguard.fleet_api.text.node import node_view
from nodeguard.fleet_api.text.status import (
    AGENTS,
    BUDGETS,
    GPUS,
    TOPOLOGIES,
    WITHHELD,
    agents_text,
    calm_text,
    status_view,
)
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.fleet_api.view import Field, Note
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.natural_order import natural_order

# Rows of the lists.
_INCIDENTS = 50
_INCIDENTS_OF_CHECK = 20
_NODES = 500


# Facts of `nodeguard status` that are elsewhere: beside the bars, and on the page of domains. The incidents
# have the reasons of withheld marks, below the line of the nodes that are faulty in service.
_ELSEWHERE = frozenset({BUDGETS, GPUS, TOPOLOGIES})


class Fleet(NamedTuple):
    """The inputs of a page at one time. remedies: what to do, by check. catalogue: what the pages explain."""

    planner: Planner
    service: ServiceState
    now: Instant
    remedies: Mapping[str, str]
    catalogue: Catalogue

    @property
    def checks(self) -> Mapping[str, Check]:
        """Return the checks by id, for the commands of each."""
        return {check.id: check for check in self.catalogue.checks}


class PageContent(NamedTuple):
    """The content of a page. title: without HTML, for the window. search: text of the field for a node."""

    title: str
    content: Html
    search: str = ""


def fleet_page(fleet: Fleet, topology: str, changes: Html = EMPTY) -> PageContent:
    """Return the first page: the headline of `nodeguard status`, the worst incidents, and the map. changes:
    of the past day.
    """
    status = fleet_status(fleet.planner, fleet.service, fleet.now)
    # The table of drains has them, with the costs of each.
    view = status_view(
        replace(status, drains=(), drains_omitted=0, failed_drains=(), failed_drains_omitted=0)
    )
    head, *_ = view.sections
    has_all = status.withheld.nodes <= status.capacity.faulty
    elsewhere = _ELSEWHERE | ({WITHHELD} if has_all else frozenset[str]())
    rows = [row for row in head.rows if not (isinstance(row, Field) and row.name in elsewhere)]
    urgent = [row for row in rows if row.is_urgent]
    rest = [row for row in rows if not row.is_urgent]
    agents = status.agents
    if agents.not_reporting > agents.stale:
        # The first minute: what the page does not show is unknown, not healthy.
        urgent.append(Field(AGENTS, agents_text(agents), name_style="warning"))
        rest = [row for row in rest if not (isinstance(row, Field) and row.name == AGENTS)]
    incidents = (
        incident_table(status.worst, {}) if status.worst else element("p", f"No incidents{_calm(status)}.")
    )
    content = (
        element(
            "section",
            heading(view.alert, "p"),
            heading(head.heading, "h1"),
            fields(urgent),
            capacity_section(status),
            class_="head",
        ),
        element(
            "section",
            element("h2", "Worst incidents ", element("small", link("/incidents", "all incidents"))),
            incidents,
            element("p", link(incidents_path(), f"and {count_noun(status.worst_omitted, 'more kind')}"))
            if status.worst_omitted
            else EMPTY,
        ),
        drains_section(status),
        element(
            "div",
            map_section(fleet_map(fleet.planner, fleet.now, topology)),
            element("section", element("h2", "Marks, agents and policy"), fields(rest), id="facts"),
            class_="columns",
        ),
        changes,
    )
    return PageContent(view.title, join(content))


def _calm(status: FleetStatus) -> str:
    """Return since when no incident is unresolved, or that this is not certain."""
    if status.nodes.unknown or not status.agents.expected:
        nodes = count_noun(status.nodes.unknown, "node")
        return f". The health of {nodes} is unknown" if status.nodes.unknown else ""
    return f": {calm_text(status)}"


def incidents_page(fleet: Fleet, check: str, state: str, page: int = 1) -> PageContent:
    """Return the unresolved incidents, or those in a state, worst first: in groups by check, or each of one
    check. page: the first is 1.
    """
    by_slug = {item.slug: item for item in IncidentState}
    states = frozenset({by_slug[state]}) if state in by_slug else frozenset[IncidentState]()
    incidents = select_incidents(fleet.planner, fleet.service, states, check=check)
    shown = slice((page - 1) * _INCIDENTS, page * _INCIDENTS)
    if check:
        total, remedies = len(incidents), dict[str, str]()
        rows = _summaries(fleet, incidents[shown])
    else:
        groups = group_incidents(fleet.planner, fleet.service, fleet.now, incidents)
        total, remedies, rows = len(groups), dict(fleet.remedies), groups[shown]
    title = f"Incidents of check {check}" if check else "Incidents"
    remedy = fleet.remedies.get(check, "") if incidents else ""
    content = (
        element("h1", title),
        _state_choices(fleet, check, states),
        _advice(check, remedy) if remedy else EMPTY,
        incident_table(rows, remedies),
        pager(shown, total, lambda number: incidents_path(check, state, number)),
    )
    return PageContent(title, element("section", *content))


def _summaries(fleet: Fleet, incidents: Sequence[Incident]) -> tuple[IncidentSummary, ...]:
    return tuple(summarize_incident(fleet.planner, item, fleet.service, fleet.now) for item in incidents)


def _state_choices(fleet: Fleet, check: str, states: frozenset[IncidentState]) -> Html:
    """Return links to the incidents of each state that there are, with their numbers."""
    unresolved = len(select_incidents(fleet.planner, fleet.service, check=check))
    every = select_incidents(fleet.planner, fleet.service, frozenset(IncidentState), check=check)
    counts = Counter(incident.state for incident in every)
    links = [link(incidents_path(check), f"{unresolved} unresolved", aria_current=not states and "true")]
    links += [
        link(
            incidents_path(check, item.slug),
            f"{counts[item]} {item.phrase}",
            aria_current=item in states and "true",
        )
        for item in IncidentState
        if counts[item] or item in states
    ]
    return element("nav", *links, class_="choices", aria_label="State of the incidents")


def incident_page(fleet: Fleet, name: str) -> PageContent | None:
    """Return the page of an incident; None if there is none of this name."""
    incident = describe_incident(fleet.planner, fleet.service, name, fleet.now, fleet.checks)
    if incident is None:
        return None
    view = incident_view(incident)
    return PageContent(view.title, sections(view))


def check_page(fleet: Fleet, name: str) -> PageContent | None:
    """Return the page of a check or a fault class: the text of `nodeguard explain`, and its incidents; None
    if there is none of this name.
    """
    view = explanation_view(fleet.catalogue, name)
    incidents = select_incidents(fleet.planner, fleet.service, check=name) if name else []
    if view is None:
        if not incidents:
            return None
        # The agent has checks of the site that the aggregator does not have.
        text = f"This aggregator does not have the check. Run nodeguard explain {name} on a node that has it."
        view = explanation(name, "", (Note(text),))
    all_incidents = element("small", link(incidents_path(name), "all of them"))
    content = (
        sections(view),
        element(
            "section",
            element("h2", "Incidents ", all_incidents),
            incident_table(_summaries(fleet, incidents[:_INCIDENTS_OF_CHECK]), {}),
        ),
    )
    return PageContent(view.title, join(content))


def nodes_page(fleet: Fleet, query: NodeQuery) -> PageContent:
    """Return the list of nodes that a query selects."""
    return PageContent("Nodes", node_list(list_nodes(fleet.planner, fleet.now).nodes, query), query.name)


def node_page(fleet: Fleet, name: str, past: Html) -> PageContent | None:
    """Return the page of a node; None if there is none. past: its changes and findings over time."""
    node = describe_node(fleet.planner, fleet.service, name, fleet.now, fleet.checks)
    if node is None:
        return None
    view = node_view(node)
    return PageContent(view.title, join((sections(view), past)))


def _advice(check: str, text: str) -> Html:
    """Return what to do about the incidents of a check."""
    row = element("div", element("dt", link(check_path(check), check)), element("dd", text))
    return element("section", element("h2", "What to do"), element("dl", row), class_="advice")


def domains_page(fleet: Fleet) -> PageContent:
    """Return the topologies, and the domains that are degraded or show a fault."""
    listed = list_domains(fleet.planner, fleet.now)
    view = domain_list_view(listed)
    rows = [_domain_row(domain) for domain in listed.domains]
    domains = table(("Domain", "Nodes", "Faulty", "State", "Reason"), rows) if rows else EMPTY
    return PageContent(view.title, join((sections(view), element("section", domains))))


def _domain_row(domain: DomainSummary) -> tuple[str, ...]:
    text, style = domain_state(domain)
    state = element("span" if domain.state is None else "b", text, class_=style)
    reason = ": ".join(filter(None, (", ".join(domain.fault_classes), domain.reason)))
    path = link(domain_path(domain.domain), domain.domain)
    return path, str(domain.members), str(domain.voters), state, reason


def domain_page(fleet: Fleet, path: str) -> PageContent | None:
    """Return the page of a domain; None if there is none of this path."""
    matches = domains_named(fleet.planner, path)
    if path not in matches:
        return None
    view = domain_view(describe_domain(fleet.planner, fleet.service, path, fleet.now))
    return PageContent(view.title, join((sections(view), _members(fleet, path))))


def _members(fleet: Fleet, path: str) -> Html:
    """Return links to the nodes of a domain with their health, worst first, then by name."""
    planner = fleet.planner
    uids = planner.vote_collector.domain_members.nodes(path) | planner.diagnosis.members.nodes(path)
    stale = planner.state.stale_agents(fleet.now).stale
    members = []
    for uid in uids:
        if (placement := planner.state.placements.get(uid)) is not None:
            health = known_health(planner, uid, stale)
            members.append((health.value if health else UNKNOWN, placement.name))
    members.sort(key=lambda member: (SEVERITIES.index(member[0]), natural_order(member[1])))
    nodes: Sequence[Html] = [
        element("li", badge(health.upper(), health), " ", link(node_path(name), name))
        for health, name in members[:_NODES]
    ]
    rest = len(members) - len(nodes)
    more = element("p", f"and {rest} more") if rest else EMPTY
    return element("section", element("h2", "Nodes"), element("ul", *nodes, class_="nodes"), more)
