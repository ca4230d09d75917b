"""The map of the fleet as HTML: domains with one cell for each node, by health. Pure."""

from __future__ import annotations

from urllib.parse import quote

from nodeguard.aggregator.pages.html import EMPTY, Html, domain_path, element, join, link, node_path
from nodeguard.aggregator.pages.sections import badge
from nodeguard.fleet_api.fleet_map import POOLS, SEVERITIES, FleetMap, MapGroup
from nodeguard.fleet_api.node import UNKNOWN
from nodeguard.fleet_api.schema.node import NodeSummary
from nodeguard.fleet_api.text.phrases import count_noun, node_notes
from nodeguard.model.finding import Health

# Cells on the map, and characters of a cell's description. Beyond, domains without a fault show their count
# only, so that the page of a larger fleet stays below a megabyte.
MAX_CELLS = 8000
_NOTES = 160

# The letter of a health, so that color is not the only sign; healthy cells are empty.
_LETTERS = {
    Health.FATAL.value: "F",
    Health.SUSPECT.value: "S",
    Health.WARNING.value: "W",
    UNKNOWN: "?",
    Health.OK.value: "",
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
    left = MAX_CELLS
    groups: list[Html] = []
    for group in fleet.groups:
        fits = len(group.nodes) <= left
        groups.append(_group(group, fleet.topology, left))
        left -= len(group.nodes) if fits else min(left, group.faulty)
    return element(
        "section",
        element("h2", "Map"),
        element("nav", "by ", choices, class_="choices", aria_label="Topology of the map"),
        _legend(),
        element("div", join(groups), class_="map") if groups else element("p", "There are no nodes."),
        id="map",
    )


def _legend() -> Html:
    cells = (
        join((element("i", _LETTERS[health], class_=f"cell {health}"), f" {health} "))
        for health in SEVERITIES
    )
    marked = element("i", "F", class_="cell fatal marked")
    return element("p", join(cells), marked, " marked by nodeguard", class_="legend", aria_hidden="true")


def _group(group: MapGroup, topology: str, left: int) -> Html:
    shown = group.nodes if len(group.nodes) <= left else group.nodes[: min(left, group.faulty)]
    rest = len(group.nodes) - len(shown)
    more = element("span", f"{'and ' if shown else ''}{rest} more", class_="more") if rest else EMPTY
    return element(
        "section",
        element("h3", _title(group, topology), " ", _counts(group)),
        element("div", join(map(_cell, shown)), more, class_="cells"),
        class_="group" if group.faulty else "group fine",
    )


def _title(group: MapGroup, topology: str) -> Html:
    if topology == POOLS:
        return _text(f"pool {group.domain}" if group.domain else "no pool")
    if not group.domain:
        return _text(f"no {topology}")
    title = link(domain_path(group.domain), group.domain)
    if group.state is None:
        return title
    name = "" if group.degraded == group.domain else f" {group.degraded}"
    return join((title, " ", badge("degraded", "suspect"), f"{name} {group.state.phrase}"))


def _counts(group: MapGroup) -> Html:
    """Return how many nodes of a group are not ok, by health; the number of nodes if all are."""
    healths = [node.health for node in group.nodes]
    faults = [f"{healths.count(health)} {health}" for health in SEVERITIES[:-1] if health in healths]
    total = count_noun(len(group.nodes), "node")
    return element("small", f"{', '.join(faults)} of {total}" if faults else total)


def _cell(node: NodeSummary) -> Html:
    """Return the cell of a node. Healthy ones are short and no tab stops: there are thousands."""
    path = node_path(node.node)
    notes = node_notes(node)[:_NOTES]
    marked = " marked" if node.marks else ""
    if node.health == Health.OK and not (notes or marked):
        return link(path, title=node.node, tabindex="-1")
    title = f"{node.node}: {node.health}"
    title += f", marked {', '.join(node.marks)}" if node.marks else ""
    return link(
        path,
        _LETTERS[node.health] or ("H" if node.hold else "M" if node.maintenance else ""),
        title=f"{title}; {notes}" if notes else title,
        class_=f"{node.health}{marked}",
        # Right after a start thousands of nodes are unknown: no tab stops before a faulty one.
        tabindex="-1" if node.health in {UNKNOWN, Health.OK.value} else False,
    )


def _text(text: str) -> Html:
    return join((text,))
