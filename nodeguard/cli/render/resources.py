"""Tables of nodeguard get: columns of nodes, domains, incidents, checks and budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.fleet.diagnosis.results import CHECK
from nodeguard.fleet_api.schema.domain import DomainSummary
from nodeguard.fleet_api.schema.node import NodeSummary
from nodeguard.fleet_api.schema.status import BudgetView, IncidentSummary
from nodeguard.fleet_api.text.check import clearing_text
from nodeguard.fleet_api.text.phrases import STYLES, budget_name, check_name, node_notes, target_text
from nodeguard.judge.formatting import format_duration
from nodeguard.model.check import Check

# Columns below which the last cell gets a line of its own.
_LEAST = 24

# Seconds from which an age has no smaller unit than that of these seconds.
_AGE_UNITS = ((36_000.0, 3600.0), (600.0, 60.0))

# The cell of a value that does not exist.
NONE = StyledText("-", "dim")


def table_lines(
    headers: Sequence[str], rows: Sequence[Sequence[StyledText]], columns: int | None
) -> list[StyledLine]:
    """Return a table. columns: width to which the last column is cut; None for no limit."""
    cells, headers, widths = list(rows), list(headers), _widths(headers, rows)
    if columns is not None and columns < sum(width + 2 for width in widths[:-1]) + _LEAST:
        # Columns without any value take no room on a narrow terminal.
        shown = [index for index in range(len(headers)) if any(row[index].text != NONE.text for row in cells)]
        shown = [*shown, *([] if len(headers) - 1 in shown else [len(headers) - 1])]
        headers = [headers[index] for index in shown]
        cells = [[row[index] for index in shown] for row in cells]
        widths = _widths(headers, cells)
    room = None if columns is None else columns - sum(width + 2 for width in widths[:-1])
    if room is not None and room < _LEAST:
        lines = [_line([StyledText(header, "dim") for header in headers[:-1]], widths)]
        for row in cells:
            lines.append(_line(row[:-1], widths))
            if row[-1].text:
                lines.append(StyledLine((StyledText("  "), _cut(row[-1], (columns or 0) - 2))))
        return lines
    header = [StyledText(text, "dim") for text in headers]
    return [_line([*row[:-1], _cut(row[-1], room)], widths) for row in (header, *cells)]


def _widths(headers: Sequence[str], rows: Sequence[Sequence[StyledText]]) -> list[int]:
    return [max(len(header), *(len(row[index].text) for row in rows)) for index, header in enumerate(headers)]


def _cut(cell: StyledText, room: int | None) -> StyledText:
    if room is None or len(cell.text) <= room:
        return cell
    return StyledText(f"{cell.text[: room - 1]}…", cell.style)


def _line(cells: Sequence[StyledText], widths: Sequence[int]) -> StyledLine:
    *first, last = cells
    parts = [
        StyledText(f"{cell.text:<{width}}  ", cell.style) for cell, width in zip(first, widths, strict=False)
    ]
    return StyledLine((*parts, last))


class Column(NamedTuple):
    """A column of a table. wide: whether only `-o wide` shows it."""

    header: str
    cell: Callable[[Any], StyledText]
    wide: bool = False


class ResourceTable(NamedTuple):
    """A table of items. kind: of one item, for `-o name`. field: of the response with the items. The last
    column is cut to the width of the terminal.
    """

    kind: str
    field: str
    name: Callable[[Any], str]
    columns: tuple[Column, ...]


def resource_lines(
    table: ResourceTable, items: Sequence[Any], width: int | None, *, wide: bool, omitted: int = 0
) -> list[StyledLine]:
    """Return the lines of a table. width: of the terminal, None without one. omitted: items left out."""
    if not items:
        return [StyledLine(text=f"no {table.field}", style="ok" if table.kind == "incident" else "")]
    columns = [column for column in table.columns if wide or not column.wide]
    rows = [[column.cell(item) for column in columns] for item in items]
    lines = table_lines([column.header for column in columns], rows, width)
    if omitted:
        lines.append(StyledLine(text=f"and {omitted} more: use filters"))
    return lines


def _text(text: str, style: str = "") -> StyledText:
    return StyledText(text, style) if text else NONE


def _age(seconds: float | None) -> StyledText:
    """Return an age for a column: the longer it is, the fewer digits it has."""
    if seconds is None:
        return NONE
    unit = next((unit for least, unit in _AGE_UNITS if seconds >= least), 0.0)
    return StyledText(
        "0 s" if seconds < 1 else format_duration(seconds - seconds % unit if unit else seconds)
    )


def _health(health: str) -> StyledText:
    return StyledText(health, health)


def _number(number: float) -> StyledText:
    return StyledText(f"{number:.5g}") if number else NONE


def _node_notes(node: NodeSummary) -> StyledText:
    return StyledText(node_notes(node))


NODE_TABLE = ResourceTable(
    "node",
    "nodes",
    lambda node: node.node,
    (
        Column("NODE", lambda node: StyledText(node.node)),
        Column("HEALTH", lambda node: _health(node.health)),
        Column("MARKS", lambda node: _text(",".join(node.marks), "suspect")),
        Column("FINDINGS", lambda node: _number(node.findings)),
        Column("WORST", lambda node: _text(node.worst)),
        Column("REPORT", lambda node: _age(node.last_report_age)),
        Column("GPUS", lambda node: _number(node.gpus), wide=True),
        Column("POOL", lambda node: _text(node.pool), wide=True),
        Column("DRIVER", lambda node: _text(node.driver), wide=True),
        Column("PLATFORM", lambda node: _text(node.platform), wide=True),
        Column("NOTES", _node_notes),
    ),
)


def _incident_device(incident: IncidentSummary) -> StyledText:
    if incident.node:
        return StyledText(target_text(incident.resource))
    if incident.domain:
        return StyledText(incident.domain)
    return StyledText("(check suppressed)" if incident.resource.startswith(CHECK) else incident.resource)


def _incident_message(incident: IncidentSummary) -> StyledText:
    """Return the message without the device at its beginning, which has a column of its own."""
    message = incident.message or incident.summary
    rest = message.removeprefix(_incident_device(incident).text)
    return StyledText(rest.lstrip(": ") if rest.startswith((" ", ": ")) else message)


def _incident_check(incident: IncidentSummary) -> StyledText:
    return StyledText(check_name(incident.cause, injected=incident.injected))


def _incident_state(incident: IncidentSummary) -> StyledText:
    left = f" {format_duration(round(incident.seconds_left))}" if incident.seconds_left >= 1 else ""
    return StyledText(f"{incident.state.phrase}{left}", STYLES[incident.state])


INCIDENT_TABLE = ResourceTable(
    "incident",
    "incidents",
    lambda incident: incident.name,
    (
        Column("SEVERITY", lambda incident: _health(incident.health.value)),
        Column("NODE", lambda incident: _text(incident.node)),
        Column("DEVICE", _incident_device),
        Column("CHECK", _incident_check),
        Column("STATE", _incident_state),
        Column("AGE", lambda incident: _age(incident.age)),
        Column("ACK", lambda incident: _text(incident.acknowledged)),
        Column("ACTION", lambda incident: _text(incident.action.value), wide=True),
        Column("NAME", lambda incident: StyledText(incident.name), wide=True),
        Column("MESSAGE", _incident_message),
    ),
)


def _domain_state(domain: DomainSummary) -> StyledText:
    if domain.state is None:
        return StyledText(
            "ok" if not domain.voters else "not degraded", "ok" if not domain.voters else "warning"
        )
    return StyledText(f"degraded, {domain.state.phrase}", STYLES[domain.state])


DOMAIN_TABLE = ResourceTable(
    "domain",
    "domains",
    lambda domain: domain.domain,
    (
        Column("DOMAIN", lambda domain: StyledText(domain.domain)),
        Column("NODES", lambda domain: _number(domain.members)),
        Column("FAULTY", lambda domain: _number(domain.voters)),
        Column("STATE", _domain_state),
        Column("FAULTS", lambda domain: _text(",".join(domain.fault_classes))),
        Column("REASON", lambda domain: StyledText(domain.reason)),
    ),
)


def _check_clearing(check: Check) -> StyledText:
    return StyledText(clearing_text(check))


CHECK_TABLE = ResourceTable(
    "check",
    "checks",
    lambda check: check.id,
    (
        Column("CHECK", lambda check: StyledText(check.id)),
        Column("HEALTH", lambda check: _health(check.health.value)),
        Column("ACTION", lambda check: StyledText(check.action.value)),
        Column("FAMILY", lambda check: StyledText(check.family), wide=True),
        Column("TARGETS", lambda check: StyledText(",".join(check.targets)), wide=True),
        Column("CLEARED BY", _check_clearing, wide=True),
        Column("TITLE", lambda check: StyledText(check.title)),
    ),
)


def _budget_use(budget: BudgetView) -> StyledText:
    share = budget.used / budget.limit if budget.limit else 0.0
    return StyledText(f"{share:.0%}", "fatal" if share >= 1 else "warning" if share >= 0.5 else "")


BUDGET_TABLE = ResourceTable(
    "budget",
    "budgets",
    lambda budget: budget.name,
    (
        Column("BUDGET", lambda budget: StyledText(budget_name(budget))),
        Column("USED", lambda budget: StyledText(f"{budget.used:.4g}")),
        Column("LIMIT", lambda budget: StyledText(f"{budget.limit:.5g}")),
        Column("USE", _budget_use),
        Column("SUSPECT", lambda budget: _number(budget.suspect)),
    ),
)
