"""Changes in the history file: its notes and Nodes, each beside the one before it."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from nodeguard.aggregator.history.reader import reading
from nodeguard.fleet.state.history_events import NodeSettings, RecordedChange
from nodeguard.fleet_api.history import history_view
from nodeguard.fleet_api.schema.history import HistoryView
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION

# Rows that are read of each table, the latest: 750 faults at once and their end are a fifth of them. To read
# as many takes less than a second.
_ROWS = 20_000

# Seconds within which the release of a mark is written to its Node.
_WRITE = 300.0

# By the index of kinds, SQLite would read and sort all texts before it returns the latest.
_NOTES = """
SELECT at, kind, name, node, text,
    (SELECT old.text FROM note AS old
        WHERE old.kind = note.kind AND old.name = note.name AND old.id < note.id
        ORDER BY old.id DESC LIMIT 1),
    CASE kind WHEN 'marks' THEN
        (SELECT freed.text FROM note AS freed
            WHERE freed.kind = 'released' AND freed.name = note.name AND freed.id < note.id
            AND freed.at > note.at - :write ORDER BY freed.id DESC LIMIT 1) END
FROM note NOT INDEXED
WHERE id >= :first_note AND at >= :since AND (:name IN ('', node, name) OR node = '' OR kind = 'action')
    AND kind IN ('incident', 'marks', 'rule', 'decision', 'action', 'pause', 'resume', 'policy', 'stale')
ORDER BY id DESC LIMIT :rows
"""
_NODES = """
SELECT node.at, node.uid, node.node, node.deleted, node.unschedulable, node.annotations,
    old.deleted, old.unschedulable, old.annotations
FROM node JOIN node AS old
    ON old.id = (SELECT max(id) FROM node AS earlier WHERE earlier.uid = node.uid AND earlier.id < node.id)
WHERE node.id >= :first_node AND node.at >= :since ORDER BY node.id DESC LIMIT :rows
"""
# SQLite uses the index for one of min and max only where no other column is read.
_ENDS = "SELECT (SELECT min(id) FROM {table}), (SELECT max(id) FROM {table})"
# The row of an id, or the next one where it was deleted.
_ROW = "SELECT id, at FROM {table} WHERE id >= ? ORDER BY id LIMIT 1"
_FIRST = """
SELECT min(at) FROM (SELECT at FROM node WHERE id = (SELECT min(id) FROM node)
    UNION ALL SELECT at FROM note WHERE id = (SELECT min(id) FROM note))
"""

_TEXTS = JsonDecoder(dict[str, str])


def read_history_view(
    file: str, name: str, since: float, now: float, *, with_fleet: bool = False
) -> HistoryView:
    """Return the changes since a time. It blocks.

    file: of the history. name: of a node, incident or domain; empty for the fleet. since, now: seconds since
    the epoch. with_fleet: whether pauses and policies of the fleet belong to the name. Raises HistoryError.
    """
    with reading(file) as connection:
        [first] = connection.execute(_FIRST).fetchone()
        values: dict[str, object] = {"since": since, "rows": _ROWS, "write": _WRITE, "name": name}
        values |= {f"first_{table}": _first_id(connection, table, since) for table in ("note", "node")}
        notes = _Counted(_notes(connection, values))
        nodes = _Counted(_nodes(connection, values))
        changes = heapq.merge(notes, nodes, key=lambda change: -change.at)
        view = history_view(changes, name, since, now, recorded_since=first or now, with_fleet=with_fleet)
        is_cut = max(notes.count, nodes.count) == _ROWS
        return replace(view, is_complete=view.is_complete and not is_cut)


def _first_id(connection: sqlite3.Connection, table: str, since: float) -> int:
    """Return the id of the first row that was recorded at a time or later, by bisection.

    Times have no index, and to read a whole file takes seconds. After a step of the clock it may be the id of
    a row that is close to it.
    """
    first, last = connection.execute(_ENDS.format(table=table)).fetchone()
    if last is None:
        return 0
    end = last + 1
    while first < end:
        middle = (first + end) // 2
        row_id, at = connection.execute(_ROW.format(table=table), (middle,)).fetchone()
        if at < since:
            first = row_id + 1
        else:
            end = middle
    return int(first)


class _Counted:
    """The changes of a table, with their number as far as they were read."""

    def __init__(self, changes: Iterator[RecordedChange]) -> None:
        self.count = 0
        self._changes = changes

    def __iter__(self) -> Iterator[RecordedChange]:
        for change in self._changes:
            self.count += 1
            yield change


def _notes(connection: sqlite3.Connection, values: Mapping[str, object]) -> Iterator[RecordedChange]:
    """Yield the notes, the latest first."""
    for at, kind, name, node, text, previous_text, reason in connection.execute(_NOTES, values):
        yield RecordedChange(at, kind, name, node, text, previous_text, reason or "")


def _nodes(connection: sqlite3.Connection, values: Mapping[str, object]) -> Iterator[RecordedChange]:
    """Yield the changes of what operators set on Nodes, the latest first."""
    for at, uid, name, *columns in connection.execute(_NODES, values):
        text, previous_text = _settings(*columns[:3]), _settings(*columns[3:])
        if text != previous_text:
            yield RecordedChange(at, "node", uid, name, text, previous_text)


def _settings(deleted: int, unschedulable: int, annotations: str) -> str:
    """Return the settings in a row as JSON."""
    try:
        texts = _TEXTS.decode(annotations)
    except msgspec.DecodeError:
        texts = {}
    settings = NodeSettings(
        bool(unschedulable), bool(deleted), texts.get(HOLD_ANNOTATION), texts.get(MAINTENANCE_ANNOTATION)
    )
    return msgspec.json.encode(settings).decode()
