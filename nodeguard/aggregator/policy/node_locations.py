"""Where people say that nodes are: rows of the policy file, and of tables beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import UnsetType

from nodeguard.aggregator.policy.schema import NodeLocationSpec, NodeLocationsSpec, TopologiesSpec
from nodeguard.config.field_path import FieldPath as Position
from nodeguard.config.yaml_document import SIZE_LIMIT, ConfigError, YamlDocument, convert, load_yaml
from nodeguard.fleet.state.topology.node_locations import is_pattern
from nodeguard.model.policy import NodeLocation

TOPOLOGIES = TopologiesSpec.__struct_fields__

# Each is tried on the name of every node that comes.
_PATTERNS = 1000

_COLUMNS = f"write `node` and one or more of {', '.join(TOPOLOGIES)}"


class _Row(NamedTuple):
    """A row, and where it stands."""

    located: YamlDocument
    position: Position
    form: NodeLocationSpec


def resolve_node_locations(located: YamlDocument, said: NodeLocationsSpec) -> tuple[NodeLocation, ...]:
    """What a policy file and the tables that it names say of where nodes are, in their order.

    Raises CatalogueError, which names file, line, field or column, and remedy.
    """
    seen: dict[tuple[str, str], _Row] = {}
    found = []
    patterns = 0
    for row in _rows(located, said):
        node = row.form.node or ""
        paths = {view: path for view in TOPOLOGIES if (path := getattr(row.form, view))}
        for view in paths:
            if (before := seen.get((node, view))) is not None:
                where = before.located.line(before.position)
                problem = f"'{node}' has one already, on line {where} of {Path(before.located.file).name}"
                raise row.located.error((*row.position, view), problem, "keep one of them")
            seen[node, view] = row
        patterns += is_pattern(node)
        if patterns > _PATTERNS:
            problem = f"is more than {_PATTERNS} patterns"
            raise row.located.error((*row.position, "node"), problem, "name the nodes instead")
        if paths:
            found.append(NodeLocation(node, paths))
    return tuple(found)


def referenced_tables(file: Path) -> tuple[Path, ...]:
    """The tables that a policy file names, of those that it says nothing wrong of."""
    try:
        data = load_yaml(file).data
    except ConfigError:
        return ()
    said = data.get("places") if isinstance(data, dict) else None
    rows = said if isinstance(said, list) else [{"file": said}]
    names = [row.get("file") for row in rows if isinstance(row, dict)]
    return tuple(file.parent / name for name in names if isinstance(name, str) and "\0" not in name)


def _rows(located: YamlDocument, said: NodeLocationsSpec) -> Iterator[_Row]:
    if isinstance(said, str):
        yield from _table(located, ("places",), said)
        return
    for at, form in enumerate(said):
        position: Position = ("places", at)
        views = [view for view in TOPOLOGIES if getattr(form, view)]
        if not isinstance(form.file, UnsetType):
            if form.node or views:
                problem = f"stands beside `{'node' if form.node else views[0]}`"
                raise located.error((*position, "file"), problem, "write two rows")
            yield from _table(located, (*position, "file"), form.file)
        elif not form.node:
            raise located.error(position, "names no nodes", "add `node: gpu-r12-*`, or `file: racks.csv`")
        elif not views:
            problem = "does not say where that is"
            raise located.error((*position, "node"), problem, f"add one or more of {', '.join(TOPOLOGIES)}")
        else:
            yield _Row(located, position, form)


def _table(located: YamlDocument, position: Position, name: str) -> Iterator[_Row]:
    """The rows of a table. Raises CatalogueError."""
    file = Path(located.file).parent / name
    try:
        with file.open("rb") as stream:
            raw = stream.read(SIZE_LIMIT + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no path"
        remedy = f"put it beside {Path(located.file).name}, and see that it may be read"
        raise located.error(position, f"'{name}' cannot be read: {why}", remedy) from None
    if len(raw) > SIZE_LIMIT:
        raise ConfigError(
            str(file), 0, "", f"is larger than {SIZE_LIMIT} bytes", "use patterns, such as gpu-r12-*"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(str(file), line, "", "is no UTF-8", "save the file as CSV in UTF-8") from None
    table = _located(str(file), text)
    for at, form in enumerate(convert(table, tuple[NodeLocationSpec, ...])):
        yield _Row(table, (at,), form)


def _located(file: str, text: str) -> YamlDocument:
    """A table's rows as mappings, each on its line; cells that are empty are left out."""
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
            parted = any(sign in column for sign in ";\t")
            remedy = "part the columns by commas" if parted else _COLUMNS
            raise ConfigError(file, line, column, "is no column that is known here", remedy)
        if column in cells[:at]:
            raise ConfigError(file, line, column, "stands twice", "keep one of them")
    if "node" not in cells or len(cells) < 2:
        raise ConfigError(file, line, "", "is no header that says where nodes are", _COLUMNS)
    return cells
