"""The map of the fleet as HTML: domains with a cell for each node that is not ok. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from nodeguard.aggregator.pages.capacity import MARK_TITLE
from nodeguard.aggregator.pages.html import EMPTY, Html, domain_path, element, join, link, node_path
from nodeguard.aggregator.pages.sections import badge
from nodeguard.fleet_api.fleet_map import POOLS, SEVERITIES, FleetMap, MapGroup, MapPart
from nodeguard.fleet_api.node import UNKNOWN
from nodeguard.fleet_api.schema.node import NodeSummary
from nodeguard.fleet_api.text.phrases import node_notes
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState

# Limits, so that the page of a large fleet with many faults stays small: domains with a fault, cells of one
# domain and of all, links to healthy domains, and characters of a cell's description.
_GROUPS = 40
_CELLS_OF_GROUP = 24
_CELLS = 240
_HEALTHY = 300
_NOTES = 120

# Links of the groups that are open: about four lines of a wide screen, so that the map of a fleet with many
# faults leaves the first screen to the decisions.
_OPEN_LINKS = 65

# So few domains of a healthy fleet are shown at once.
_OPEN = 48

# The letter of a health, so that color is not the only sign.
_LETTERS = {
    Health.FATAL.value: "F",
    Health.SUSPECT.value: "S",
    Health.WARNING.value: "W",
    UNKNOWN: "?",
}


def map_section(fleet: FleetMap) -> Html:
    """Return the map with the choice of the topology, and the meaning of the cells."""
    choices = join(
        link(
            f"/?by={quote(topology, safe='')}#map",
            topology,
            id=f"by-{topology}",
            aria_current="true" if topology == fleet.topology else False,
        )
        for topology in fleet.topologies
    )
    left, links, groups, folded = _CELLS, 0, list[Html](), list[Html]()
    for group in fleet.groups[:_GROUPS]:
        cells = min(left, _CELLS_OF_GROUP, len(group.faulty))
        links += 1 + len(group.parts) + cells
        is_open = not groups or links <= _OPEN_LINKS
        (groups if is_open else folded).append(_group(group, fleet.topology, cells))
        left -= cells
    omitted_count = len(fleet.groups) - len(groups) - len(folded)
    # The page of domains has only faults that nodes of a domain share.
    omitted = link("/nodes", f"and {omitted_count} more with a fault")
    more = element("p", omitted, class_="more") if omitted_count else EMPTY
    return element(
        "section",
        element(
            "h2",
            "Map ",
            element("nav", "by ", choices, aria_label="Topology of the map"),
            _legend() if groups else EMPTY,
        ),
        element("div", join(groups), class_="map") if groups else EMPTY,
        element(
            "div",
            _folded(fleet.groups[len(groups) :], folded, more) if folded else more,
            _healthy(fleet) if fleet.healthy else EMPTY,
            class_="rest",
        ),
        EMPTY if groups or fleet.healthy else element("p", "There are no nodes."),
        id="map",
    )


def _folded(map_groups: Sequence[MapGroup], groups: Sequence[Html], more: Html) -> Html:
    """Return the groups beyond the open ones, as one line that opens. map_groups: all of them; groups:
    those that are listed; more: link to the others.
    """
    domains = count_noun(len(map_groups), "more domain")
    nodes = count_noun(sum(len(group.faulty) for group in map_groups), "node")
    summary = f"{domains} with {nodes} that are not ok"
    listed = element("div", join(groups), class_="map")
    return element("details", element("summary", summary), listed, more, id="faulty")


def _legend() -> Html:
    cells = (
        element("span", element("i", _LETTERS[health], class_=f"cell {health}"), f" {health}")
        for health in SEVERITIES[:-1]
    )
    marked = element("span", element("i", class_="cell marked"), " marked", title=MARK_TITLE)
    return element("small", *cells, marked, class_="legend", aria_hidden="true")


def _healthy(fleet: FleetMap) -> Html:
    """Return the domains in which all nodes are ok, as one line that can be opened."""
    nodes = count_noun(sum(group.size for group in fleet.healthy), "node")
    shown = fleet.healthy[:_HEALTHY]
    links = (
        element("li", _title(group.domain, fleet.topology), " ", element("small", str(group.size)))
        for group in shown
    )
    omitted_count = len(fleet.healthy) - len(shown)
    text = f"and {omitted_count} more: nodeguard get domains --all"
    more = element("li", text) if omitted_count else EMPTY
    subject = count_noun(len(fleet.healthy), "pool" if fleet.topology == POOLS else "domain")
    summary = f"{subject} with {nodes} {'is' if len(fleet.healthy) == 1 else 'are'} ok"
    return element(
        "details",
        element("summary", element("i", class_="cell ok"), " ", summary),
        element("ul", *links, more),
        id="healthy",
        open=not fleet.groups and len(fleet.healthy) <= _OPEN,
    )


def _group(group: MapGroup, topology: str, cells: int) -> Html:
    """Return a domain with its parts in which nodes are not ok. cells: limit of their number."""
    parts: list[Html] = []
    omitted_count = len(group.faulty) - cells
    states = [part.state for part in group.parts if part.degraded == group.domain and part.state is not None]
    for part in group.parts:
        shown = part.faulty[:cells]
        cells -= len(shown)
        if shown or (part.state is not None and not states):
            parts.append(join((_part_title(part, group, topology), *map(_cell, shown))))
    more = element("span", f"and {omitted_count} more", class_="more") if omitted_count else EMPTY
    return element(
        "section",
        element("h3", _title(group.domain, topology), " ", _counts(group)),
        _degraded(states[0]) if states else EMPTY,
        *(element("div", part, class_="cells") for part in parts),
        more,
        class_="group",
    )


def _part_title(part: MapPart, group: MapGroup, topology: str) -> Html:
    """Return the name of a part, and that it is degraded, unless the whole group is."""
    name = EMPTY
    if part.domain != group.domain:
        name = link(domain_path(part.domain), part.domain.removeprefix(f"{group.domain}/"))
    if part.state is None or part.degraded == group.domain:
        return name
    of = "" if part.degraded == part.domain else f"{part.degraded.removeprefix(f'{topology}/')} "
    return join((name, " ", _degraded(part.state, of)))


def _degraded(state: IncidentState, of: str = "") -> Html:
    """Return that a domain is degraded, and the state of its mark. of: name of a domain between the two."""
    return join((badge("degraded", "suspect"), element("span", f"{of}{state.phrase}")))


def _title(domain: str, topology: str) -> Html:
    if topology == POOLS:
        return join((f"pool {domain}" if domain else "no pool",))
    if not domain:
        return join((f"no {topology}",))
    return link(domain_path(domain), domain.removeprefix(f"{topology}/"))


def _counts(group: MapGroup) -> Html:
    """Return how many nodes of a group are not ok; by health in its title."""
    healths = [node.health for node in group.faulty]
    faults = [f"{healths.count(health)} {health}" for health in SEVERITIES[:-1] if health in healths]
    return element(
        "small", f"{len(healths)}/{group.size}", title=f"{', '.join(faults) or 'none'} of {group.size}"
    )


def _cell(node: NodeSummary) -> Html:
    """Return the cell of a node that is not ok."""
    notes = node_notes(node)[:_NOTES]
    title = f"{node.node}: {node.health}"
    title += f", marked {', '.join(node.marks)}" if node.marks else ""
    return link(
        node_path(node.node),
        _LETTERS[node.health],
        title=f"{title}; {notes}" if notes else title,
        class_=f"cell {node.health}{' marked' if node.marks else ''}",
    )
