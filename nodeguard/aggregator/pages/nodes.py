"""The list of nodes as HTML, with filters. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from nodeguard.aggregator.pages.html import Html, element, join, link, node_path, query_path
from nodeguard.aggregator.pages.page_query import ANY_MARK, NodeQuery
from nodeguard.aggregator.pages.sections import badge, pager, table
from nodeguard.fleet_api.fleet_map import SEVERITIES
from nodeguard.fleet_api.schema.capacity import WorkState
from nodeguard.fleet_api.schema.node import NodeSummary
from nodeguard.fleet_api.text.phrases import WORK_STATES, node_notes
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.model.natural_order import natural_order

# Rows of a page.
_ROWS = 50

_WORK_LABELS = {state.value: label for state, label in WORK_STATES.items()}


def node_list(nodes: Iterable[NodeSummary], query: NodeQuery) -> Html:
    """Return the nodes of a query, worst first, then by name, with the numbers that other filters give."""
    part = query.name.lower()
    named = [node for node in nodes if part in node.node.lower()]
    selected = _selected(named, query)
    selected.sort(key=lambda node: (SEVERITIES.index(node.health), natural_order(node.node)))
    shown = slice((query.page - 1) * _ROWS, query.page * _ROWS)
    title = count_noun(len(selected), "node") + (f" with '{query.name}' in the name" if query.name else "")
    return element(
        "section",
        element("h1", title),
        _choices("Health", named, query, "health", SEVERITIES),
        _choices("Mark", named, query, "mark", _marks(named)),
        _choices("Work", named, query, "work", WorkState, _WORK_LABELS),
        _table(selected[shown]) if selected else element("p", "No node matches."),
        pager(shown, len(selected), lambda number: _path(query._replace(page=number))),
    )


def _has_health(node: NodeSummary, health: str) -> bool:
    return not health or node.health == health


def _has_mark(node: NodeSummary, mark: str) -> bool:
    return not mark or mark in node.marks or (mark == ANY_MARK and bool(node.marks))


def _has_work(node: NodeSummary, work: str) -> bool:
    return not work or node.work == work


# The filters by the name of their parameter.
_FILTERS: Mapping[str, Callable[[NodeSummary, str], bool]] = {
    "health": _has_health,
    "mark": _has_mark,
    "work": _has_work,
}


def _selected(nodes: Iterable[NodeSummary], query: NodeQuery, without: str = "") -> list[NodeSummary]:
    """Return the nodes that the filters of a query select. without: a filter that is left out."""
    filters = [(has, getattr(query, name)) for name, has in _FILTERS.items() if name != without]
    return [node for node in nodes if all(has(node, value) for has, value in filters)]


def _marks(nodes: Iterable[NodeSummary]) -> tuple[str, ...]:
    marks = Counter(mark for node in nodes for mark in node.marks)
    return (ANY_MARK, *sorted(marks)) if marks else ()


def _choices(
    name: str,
    nodes: list[NodeSummary],
    query: NodeQuery,
    parameter: str,
    values: Iterable[str],
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Html:
    """Return links to the nodes with each value of a filter, with the number of nodes that each link lists.

    labels: of values, where they differ.
    """
    current, has = getattr(query, parameter), _FILTERS[parameter]
    others = _selected(nodes, query, without=parameter)
    counts = {value: sum(has(node, value) for node in others) for value in values}
    links = [
        link(
            _path(query._replace(**{parameter: value}, page=1)),
            f"{count} {labels.get(value, value)}",
            aria_current="true" if value == current else False,
        )
        for value, count in counts.items()
        if count or value == current
    ]
    every = link(
        _path(query._replace(**{parameter: ""}, page=1)), "all", aria_current=False if current else "true"
    )
    return element("nav", f"{name}: ", every, *links, class_="choices", aria_label=name)


def _path(query: NodeQuery) -> str:
    page = str(query.page) if query.page > 1 else ""
    filters = {"q": query.name, "health": query.health, "mark": query.mark, "work": query.work}
    return query_path("/nodes", {**filters, "page": page})


def _table(nodes: Sequence[NodeSummary]) -> Html:
    """Return the rows of nodes. The column of pools is left out where no node is in one."""
    names = ["Node", "Health", "Marks", "GPUs", "Notes"]
    rows = [
        [
            link(node_path(node.node), node.node, class_="name"),
            badge(node.health.upper(), node.health),
            join((", ".join(node.marks),)),
            str(node.gpus),
            node_notes(node),
        ]
        for node in nodes
    ]
    if any(node.pool for node in nodes):
        names.insert(-1, "Pool")
        for row, node in zip(rows, nodes, strict=True):
            row.insert(-1, node.pool)
    return table(names, rows, "list")
