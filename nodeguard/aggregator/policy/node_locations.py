"""Node locations: the failure domains of nodes, in rows of the policy file and of CSV tables beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import UnsetType

from nodeguard.aggregator.policy.schema import NodeLocationSpec, NodeLocationsSpec, TopologiesSpec
from nodeguard.config.errors import ConfigError
from nodeguard.config.errors import FieldPath as Position
from nodeguard.config.regular_file import read_regular_file
from nodeguard.config.yaml_document import SIZE_LIMIT, YamlDocument, convert, load_yaml
from nodeguard.fleet.state.topology.topologies import is_pattern
from nodeguard.model.policy import NodeLocation

TOPOLOGIES = TopologiesSpec.__struct_fields__

# Every pattern is matched against the name of every new node.
_PATTERNS = 1000

_COLUMNS = f"write `node` and one or more of {', '.join(TOPOLOGIES)}"


class _Row(NamedTuple):
    """A row and its position in a file."""

    located: YamlDocument
    position: Position
    spec: NodeLocationSpec


def resolve_node_locations(located: YamlDocument, spec: NodeLocationsSpec) -> tuple[NodeLocation, ...]:
    """Return the node locations of a policy file and of its tables, in their order.

    Raises ConfigError with file, line, field or column, and remedy.
    """
    seen: dict[tuple[str, str], _Row] = {}
    locations = []
    patterns = 0
    for row in _rows(located, spec):
        node = row.spec.node or ""
        paths = {topology: path for topology in TOPOLOGIES if (path := getattr(row.spec, topology))}
        for topology in paths:
            if (before := seen.get((node, topology))) is not None:
                line = before.located.line(before.position)
                problem = f"'{node}' has one already, on line {line} of {Path(before.located.file).name}"
                raise row.located.error((*row.position, topology), problem, "keep one of them")
            seen[node, topology] = row
        patterns += is_pattern(node)
        if patterns > _PATTERNS:
            problem = f"is more than {_PATTERNS} patterns"
            raise row.located.error((*row.position, "node"), problem, "name the nodes instead")
        if paths:
            locations.append(NodeLocation(node, paths))
    return tuple(locations)


def referenced_tables(file: Path) -> tuple[Path, ...]:
    """Return the paths of the tables that a policy file references; none if the file cannot be parsed."""
    try:
        data = load_yaml(file).data
    except ConfigError:
        return ()
    locations = data.get("nodeLocations") if isinstance(data, dict) else None
    rows = locations if isinstance(locations, list) else [{"file": locations}]
    names = [row.get("file") for row in rows if isinstance(row, dict)]
    return tuple(file.parent / name for name in names if isinstance(name, str) and "\0" not in name)


def _rows(located: YamlDocument, spec: NodeLocationsSpec) -> Iterator[_Row]:
    if isinstance(spec, str):
        yield from _table(located, ("nodeLocations",), spec)
        return
    for at, row in enumerate(spec):
        position: Position = ("nodeLocations", at)
        topologies = [topology for topology in TOPOLOGIES if getattr(row, topology)]
        if not isinstance(row.file, UnsetType):
            if row.node or topologies:
                problem = f"excludes `{'node' if row.node else topologies[0]}`"
                raise located.error((*position, "file"), problem, "write two rows")
            yield from _table(located, (*position, "file"), row.file)
        elif not row.node:
            raise located.error(position, "has no nodes", "add `node: gpu-r12-*`, or `file: racks.csv`")
        elif not topologies:
            remedy = f"add one or more of {', '.join(TOPOLOGIES)}"
            raise located.entry_error(position, "node", "has no location", remedy)
        else:
            yield _Row(located, position, row)


def _table(located: YamlDocument, position: Position, name: str) -> Iterator[_Row]:
    """Yield the rows of a table. Raises ConfigError."""
    file = Path(located.file).parent / name
    try:
        raw = read_regular_file(file, SIZE_LIMIT + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "invalid path"
        remedy = f"put it beside {Path(located.file).name}, and check that it is readable"
        raise located.error(position, f"'{name}' cannot be read: {reason}", remedy) from None
    if len(raw) > SIZE_LIMIT:
        raise ConfigError(
            str(file), 0, "", f"is larger than {SIZE_LIMIT} bytes", "use patterns, such as gpu-r12-*"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(str(file), line, "", "is not UTF-8", "save the file as CSV in UTF-8") from None
    table = _located(str(file), text)
    for at, row in enumerate(convert(table, tuple[NodeLocationSpec, ...])):
        yield _Row(table, (at,), row)


def _located(file: str, text: str) -> YamlDocument:
    """Return the rows of a table as mappings, without empty cells, with the line of each row."""
    data: list[dict[str, str]] = []
    lines: dict[Position, int] = {(): 1}
    header: list[str] | None = None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for record in reader:
            cells = [cell.strip() for cell in record]
            if not any(cells) or cells[0].startswith("#"):
                continue
            if header is None:
                header = _header(file, reader.line_num, cells)
                continue
            if len(cells) != len(header):
                problem = f"the header has {len(header)} columns, this row {len(cells)}"
                raise ConfigError(
                    file, reader.line_num, "", problem, "write one for each column; it may be empty"
                )
            lines[len(data),] = reader.line_num
            data.append({column: cell for column, cell in zip(header, cells, strict=True) if cell})
    except csv.Error as error:
        raise ConfigError(file, reader.line_num, "", str(error), "correct the CSV") from None
    if header is None:
        raise ConfigError(file, 0, "", "is empty", f"begin with a header: {_COLUMNS}")
    for at, row in enumerate(data):
        if "node" not in row:
            raise ConfigError(file, lines[at,], "node", "is empty", "write a node's name or a pattern")
    return YamlDocument(file, data, lines)


def _header(file: str, line: int, cells: list[str]) -> list[str]:
    for at, column in enumerate(cells):
        if column not in {"node", *TOPOLOGIES}:
            separated = any(sign in column for sign in ";\t")
            remedy = "separate the columns by commas" if separated else _COLUMNS
            raise ConfigError(file, line, column, "is an unknown column", remedy)
        if column in cells[:at]:
            raise ConfigError(file, line, column, "is a duplicate", "keep one of them")
    if "node" not in cells or len(cells) < 2:
        raise ConfigError(file, line, "", "is not a valid header", _COLUMNS)
    return cells
