"""Tables of nodeguard get: columns of nodes, GPUs, ports, domains, incidents, actions, checks
and budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.fleet.diagnosis.results import CHECK
from nodeguard.fleet_api.action import drain_purpose
from nodeguard.fleet_api.schema.action import ActionView
from nodeguard.fleet_api.schema.component import ComponentView
from nodeguard.fleet_api.schema.incident_summary import IncidentSummary
from nodeguard.fleet_api.schema.status import BudgetView
from nodeguard.fleet_api.schema.unreported import UnreportedSummary
from nodeguard.fleet_api.text.check import clearing_text
from nodeguard.fleet_api.text.domain import domain_state
from nodeguard.fleet_api.text.phrases import STYLES, budget_name, check_name, node_notes
from nodeguard.fleet_api.text.wording import count_noun, number_text, target_text
from nodeguard.judge.formatting import format_duration
from nodeguard.model.action import ActionKind, ActionState

# Columns below which the last cell gets a line of its own.
_LEAST = 24

# Seconds from which an age has no smaller unit than that of these seconds.
_AGE_UNITS = ((36_000.0, 3600.0), (600.0, 60.0))

# The cell of a value that does not exist.
NONE = StyledText("-", "dim")

# Before the cells of a row that continues.
_INDENT = StyledText("  ")


def table_lines(
    headers: Sequence[str], rows: Sequence[Sequence[StyledText]], columns: int | None
) -> list[StyledLine]:
    """Return a table. columns: width to which the last column is cut; None for no limit."""
    shown, widths = list(range(len(headers))), _widths(headers, rows)
    if columns is not None and columns < _before_last(widths) + _LEAST:
        # Columns without any value take no room on a narrow terminal.
        shown = [index for index in shown[:-1] if any(row[index].text != NONE.text for row in rows)]
        shown.append(len(headers) - 1)
        widths = [widths[index] for index in shown]
    room = None if columns is None else columns - _before_last(widths)
    # On a terminal that is narrower still, the last cell has its own line, the others those they need.
    is_split = room is not None and room < _LEAST
    lines = []
    for number, cells in enumerate(([StyledText(header, "dim") for header in headers], *rows)):
        *first, last = (cells[index] for index in shown)
        if not is_split:
            lines.append(_line([*first, _cut(last, room)], widths))
            continue
        lines += _folded(first, widths, columns or 0)
        if number and last.text:
            lines.append(StyledLine((_INDENT, _cut(last, (columns or 0) - 2))))
    return lines


def _folded(cells: Sequence[StyledText], widths: Sequence[int], columns: int) -> Iterator[StyledLine]:
    """Yield a row in lines of so many columns, broken between cells."""
    parts, used = list[StyledText](), 0
    for cell, width in zip(cells, widths, strict=False):
        if parts and used + width > columns:
            yield StyledLine(tuple(parts))
            parts, used = [_INDENT], len(_INDENT.text)
        parts.append(StyledText(f"{cell.text:<{width}}  ", cell.style))
        used += width + 2
    yield StyledLine(tuple(parts))


def _before_last(widths: Sequence[int]) -> int:
    """Return the columns in front of the last cell."""
    return sum(width + 2 for width in widths[:-1])


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
    """A column of a table. cell: of an item. wide: whether only `-o wide` shows it. reported: whether only
    nodes with reports have it (True), or only those without (False); None for both.
    """

    header: str
    cell: Callable[[Any], str | StyledText]
    wide: bool = False
    reported: bool | None = None


class ResourceTable(NamedTuple):
    """A table of items. kind: of one item, for `-o name`. field: of the response with the items. The last
    column is cut to the width of the terminal. other_names: by which an item is found, too.
    plural: of its items, where it is not the field.
    """

    kind: str
    field: str
    name: Callable[[Any], str]
    columns: tuple[Column, ...]
    other_names: Callable[[Any], tuple[str, ...]] = lambda _: ()
    plural: str = ""


def resource_lines(
    table: ResourceTable,
    items: Sequence[Any],
    width: int | None,
    *,
    wide: bool,
    omitted: int = 0,
    selected_from: int = 0,
    is_filtered: bool = False,
) -> list[StyledLine]:
    """Return the lines of a table. width: of the terminal, None without one. omitted: items left out.
    selected_from: the number of items before filters of the command, where it is known. is_filtered: whether
    the aggregator has selected these by a filter.
    """
    if items:
        reported = not any(isinstance(item, UnreportedSummary) for item in items)
        columns = [
            column
            for column in table.columns
            if (wide or not column.wide) and column.reported in {None, reported}
        ]
        rows = [
            [_cell(column.cell(item), is_last=column is columns[-1]) for column in columns] for item in items
        ]
        lines = table_lines([column.header for column in columns], rows, width)
    else:
        text = f"no {table.plural or table.field}"
        is_calm = table.kind == "incident" and not selected_from and not is_filtered
        matches = ": none matches" if is_filtered else ""
        if selected_from:
            matches = f": none of {selected_from} matches"
        lines = [StyledLine(text=f"{text}{matches}", style="ok" if is_calm else "")]
    if omitted:
        lines.append(StyledLine(text=f"and {omitted} more: use filters"))
    return lines


def _cell(value: str | StyledText, *, is_last: bool) -> StyledText:
    """Return a cell; only the last one of a row may be empty."""
    cell = value if isinstance(value, StyledText) else StyledText(value)
    return cell if cell.text or is_last else NONE


def _age(seconds: float | None) -> str:
    """Return an age for a column: the longer it is, the fewer digits it has."""
    if seconds is None:
        return ""
    unit = next((unit for least, unit in _AGE_UNITS if seconds >= least), 0.0)
    return "0 s" if seconds < 1 else format_duration(seconds - seconds % unit if unit else seconds)


def _health(health: str) -> StyledText:
    return StyledText(health, health)


def _number(number: float) -> str:
    return number_text(number) if number else ""


NODE_TABLE = ResourceTable(
    "node",
    "nodes",
    lambda node: node.node,
    (
        Column("NODE", lambda node: node.node),
        Column("HEALTH", lambda node: _health(node.health), reported=True),
        Column("WORK", lambda node: node.work, reported=False),
        Column("MARKS", lambda node: StyledText(",".join(node.marks), "suspect")),
        Column("FINDINGS", lambda node: _number(node.findings), reported=True),
        Column("WORST", lambda node: node.worst),
        Column("REPORT", lambda node: _age(node.last_report_age), reported=True),
        Column("AGE", lambda node: _age(node.age), reported=False),
        Column("GPUS", lambda node: _number(node.gpus), wide=True),
        Column("POOL", lambda node: node.pool, wide=True, reported=True),
        Column("DRIVER", lambda node: node.driver, wide=True, reported=True),
        Column("PLATFORM", lambda node: node.platform, wide=True, reported=True),
        Column("NOTES", node_notes),
    ),
)


def _component_notes(component: ComponentView) -> str:
    """Return the message of the worst finding on a component, and whether the inventory lacks it."""
    absent = "" if component.in_inventory else "not in the inventory"
    return "; ".join(filter(None, (component.message, absent)))


def _index(component: ComponentView) -> str:
    return "" if component.index is None else str(component.index)


GPU_TABLE = ResourceTable(
    "gpu",
    "components",
    lambda gpu: gpu.name,
    (
        Column("NODE", lambda gpu: gpu.node),
        Column("GPU", _index),
        Column("ADDRESS", lambda gpu: gpu.address),
        Column("MODEL", lambda gpu: gpu.model),
        Column("SERIAL", lambda gpu: gpu.serial),
        Column("HEALTH", lambda gpu: _health(gpu.health)),
        Column("WORST", lambda gpu: gpu.worst),
        Column("UUID", lambda gpu: gpu.id, wide=True),
        Column("VBIOS", lambda gpu: gpu.vbios, wide=True),
        Column("NOTES", _component_notes),
    ),
    lambda gpu: (gpu.address, gpu.id, gpu.serial),
    "GPUs",
)


PORT_TABLE = ResourceTable(
    "port",
    "components",
    lambda port: port.name,
    (
        Column("NODE", lambda port: port.node),
        Column("PORT", lambda port: port.target.removeprefix("port/")),
        Column("MODEL", lambda port: port.model),
        Column("HEALTH", lambda port: _health(port.health)),
        Column("WORST", lambda port: port.worst),
        Column("GUID", lambda port: port.id, wide=True),
        Column("FIRMWARE", lambda port: port.firmware, wide=True),
        Column("NOTES", _component_notes),
    ),
    lambda port: (port.target.removeprefix("port/"), port.id),
    "ports",
)


def _incident_device(incident: IncidentSummary) -> str:
    if incident.node:
        return target_text(incident.resource)
    if incident.domain:
        return incident.domain
    return "(check suppressed)" if incident.resource.startswith(CHECK) else incident.resource


def _incident_message(incident: IncidentSummary) -> str:
    """Return the message without the device at its beginning, which has a column of its own."""
    message = incident.message or incident.summary
    rest = message.removeprefix(_incident_device(incident))
    return rest.lstrip(": ") if rest.startswith((" ", ": ")) else message


def _incident_check(incident: IncidentSummary) -> str:
    return check_name(incident.cause, injected=incident.injected)


def _incident_state(incident: IncidentSummary) -> StyledText:
    left = f" {format_duration(round(incident.seconds_left))}" if incident.seconds_left >= 1 else ""
    return StyledText(f"{incident.state.phrase}{left}", STYLES[incident.state])


INCIDENT_TABLE = ResourceTable(
    "incident",
    "incidents",
    lambda incident: incident.name,
    (
        Column("SEVERITY", lambda incident: _health(incident.health.value)),
        Column("NODE", lambda incident: incident.node),
        Column("DEVICE", _incident_device),
        Column("CHECK", _incident_check),
        Column("STATE", _incident_state),
        Column("AGE", lambda incident: _age(incident.age)),
        Column("ACK", lambda incident: incident.acknowledged),
        Column("ACTION", lambda incident: incident.action.value, wide=True),
        Column("NAME", lambda incident: incident.name, wide=True),
        Column("MESSAGE", _incident_message),
    ),
)


_ACTION_STYLES = {
    ActionState.RESERVED: "warning",
    ActionState.RUNNING: "warning",
    ActionState.FAILED: "fatal",
    ActionState.UNKNOWN: "fatal",
}


def _action_kind(action: ActionView) -> str:
    return ActionKind(action.kind).slug if action.kind in set(ActionKind) else action.kind


def _action_state(action: ActionView) -> StyledText:
    return StyledText(action.state.value.lower(), _ACTION_STYLES.get(action.state, ""))


def _action_progress(action: ActionView) -> str:
    nouns: dict[str, str] = {
        ActionKind.DRAIN: "pod",
        ActionKind.DRAIN_NOTICE: "pod",
        ActionKind.CLEAR: "finding",
    }
    noun = nouns.get(action.kind, "")
    return f"{action.carried_out} of {count_noun(action.parts, noun)}" if noun else ""


ACTION_TABLE = ResourceTable(
    "action",
    "actions",
    lambda action: action.name,
    (
        Column("KIND", _action_kind),
        Column("NODE", lambda action: action.node),
        Column("STATE", _action_state),
        Column("AGE", lambda action: _age(action.age)),
        Column("DONE", _action_progress),
        Column("TO", lambda action: action.purpose, wide=True),
        Column("ATTEMPT", lambda action: str(action.attempt), wide=True),
        Column("NAME", lambda action: action.name, wide=True),
        Column("REASON", lambda action: "; ".join(filter(None, (action.message, drain_purpose(action))))),
    ),
)


DOMAIN_TABLE = ResourceTable(
    "domain",
    "domains",
    lambda domain: domain.domain,
    plural="domains with faults",
    columns=(
        Column("DOMAIN", lambda domain: domain.domain),
        Column("NODES", lambda domain: _number(domain.members)),
        Column("FAULTY", lambda domain: _number(domain.voters)),
        Column("STATE", lambda domain: StyledText(*domain_state(domain))),
        Column("FAULTS", lambda domain: ",".join(domain.fault_classes)),
        Column("REASON", lambda domain: domain.reason),
    ),
)


CHECK_TABLE = ResourceTable(
    "check",
    "checks",
    lambda check: check.id,
    (
        Column("CHECK", lambda check: check.id),
        Column("HEALTH", lambda check: _health(check.health.value)),
        Column("ACTION", lambda check: check.action.value),
        Column("FAMILY", lambda check: check.family, wide=True),
        Column("TARGETS", lambda check: ",".join(check.targets), wide=True),
        Column("CLEARED BY", clearing_text, wide=True),
        Column("TITLE", lambda check: check.title),
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
        Column("BUDGET", budget_name),
        Column("USED", lambda budget: number_text(budget.used)),
        Column("LIMIT", lambda budget: number_text(budget.limit)),
        Column("USE", _budget_use),
        Column("SUSPECT", lambda budget: _number(budget.suspect) or NONE),
    ),
)
