"""The history reader: replays the transitions of one history, or of several replicas merged."""

from __future__ import annotations

import heapq
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from nodeguard.aggregator.history.file import (
    DAMAGED_ROW,
    DamagedFileError,
    HistoryFileError,
    RecordedTime,
    history_path,
    is_damaged,
    last_written,
    open_for_reading,
)
from nodeguard.executors.kube.cluster import annotated_reason
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryEvent,
    HistoryNote,
    NodeObserved,
    NodeRemoved,
    NoteKind,
    ReportReceived,
    in_time_order,
)
from nodeguard.model.failure import UserError
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.wire.report import (
    VERSION,
    Inventory,
    Report,
    ReportedFinding,
    ReportedPassing,
    UnreadableTargets,
)

_HISTORY_FILE = "the file that aggregator --history writes"


class HistoryError(UserError):
    """A history cannot be read. The message has the file, the reason and the remedy."""


class RecordedHistory(NamedTuple):
    """The content of a history. steps: in their order. last_alive: when its writer was last running, in
    seconds since the epoch; 0 if unknown. future: times of rows that are in the future, added while the steps
    are read.
    """

    steps: Iterator[HistoryEvent]
    last_alive: float
    future: list[float]


class _Row(Struct, array_like=True):
    """A row of the table of reports, in the order of its columns."""

    at: RecordedTime
    uid: str
    node: str
    boot: str
    sequence: int
    age: float
    digest: str
    health: Health
    data_status: DataStatus
    agent: str
    catalogue: str
    leaving: bool
    passing: int
    inventory: int


class _NodeRow(Struct, array_like=True):
    """A row of the table of nodes, in the order of its columns."""

    at: RecordedTime
    uid: str
    node: str
    deleted: bool
    gpus: int
    unschedulable: bool
    labels: int
    upgrade: str
    annotations: str


# Rows in the order in which they were written: times may go back, and each table has its own ids.
_REPORTS = """
SELECT at, uid, node, boot, sequence, age, digest, health, data_status, agent, catalogue, leaving,
       passing, inventory, findings, unreadable FROM report ORDER BY id
"""
_NODES = (
    "SELECT at, uid, node, deleted, gpus, unschedulable, labels, upgrade, annotations FROM node ORDER BY id"
)
_STALE = "SELECT at, name, node, text = 'true' FROM note WHERE kind = 'stale' ORDER BY id"

_NOTES = """
SELECT at, kind, name, node, text FROM note
WHERE kind IN ('incident', 'decision', 'marks', 'rule', 'gap') ORDER BY id
"""
# Old rows are deleted, except current values: the history is complete from the row after the last hole. The
# first row of a table has the id 1, and no hole before it. Without a hole it is complete from its first row,
# which may be the policy: an aggregator writes it before it has seen a Node.
_COMPLETE = """
SELECT coalesce(max(at), (SELECT min(at) FROM (SELECT at FROM note UNION ALL SELECT at FROM node))) FROM (
    SELECT at FROM note WHERE id = (SELECT max(id) FROM note AS row
        WHERE id > 1 AND NOT EXISTS (SELECT 1 FROM note WHERE id = row.id - 1))
    UNION ALL SELECT at FROM node WHERE id = (SELECT max(id) FROM node AS row
        WHERE id > 1 AND NOT EXISTS (SELECT 1 FROM node WHERE id = row.id - 1)))
"""

_Columns = TypeVar("_Columns")

_FINDINGS = JsonDecoder(tuple[ReportedFinding, ...])
_UNREADABLE = JsonDecoder(tuple[UnreadableTargets, ...])
_PASSING = JsonDecoder(tuple[ReportedPassing, ...])
_INVENTORY = JsonDecoder(Inventory)
_TEXTS = JsonDecoder(dict[str, str])


def read_history(path: str, now: float = float("inf")) -> RecordedHistory:
    """Return the history in a file or in a directory, for a command that also reads bundles.

    now: seconds since the epoch; no time is later, see in_time_order. Raises HistoryError, also while
    its steps are read.
    """
    connection, file, last_alive = _opened(path, f"{_HISTORY_FILE}, or bundles")
    future: list[float] = []
    return RecordedHistory(_steps(connection, file, now, future), min(last_alive, now), future)


class RecordedTransitions(NamedTuple):
    """The transitions of Nodes, agents, incidents, decisions and marks in a history, and its gaps; without
    reports.

    since: from when on it is complete. until: when its writer was last running; seconds since the epoch.
    """

    events: list[HistoryEvent]
    since: float
    until: float


def read_transitions(path: str) -> RecordedTransitions:
    """Return the transitions in a history, a file or a directory. Raises HistoryError."""
    connection, file, last_alive = _opened(path, _HISTORY_FILE)
    try:
        with closing(connection):
            reader = _Reader(connection)
            events: list[HistoryEvent] = [*reader.nodes(), *reader.liveness(), *reader.notes()]
            [row] = connection.execute(_COMPLETE)
            [since] = msgspec.convert(row, tuple[RecordedTime | None])
            return RecordedTransitions(events, last_alive if since is None else since, last_alive)
    except (sqlite3.Error, *DAMAGED_ROW) as error:
        raise HistoryError(f"{file}: damaged ({error}): name a copy") from None


def _opened(path: str, expected: str) -> tuple[sqlite3.Connection, str, float]:
    """Open a history; returns it with its file, and when its writer was last running. Raises HistoryError.

    expected: the files that the command reads, for an error.
    """
    file = history_path(path)
    try:
        connection = open_for_reading(file)
        last_alive = last_written(connection)
    except FileNotFoundError:
        problem = "there is no history.sqlite in it" if os.path.isdir(path) else "no such file or directory"
        raise HistoryError(f"{path}: {problem}: name {expected}") from None
    except OSError as error:
        raise HistoryError(f"{file}: {error.strerror}: make it readable, or copy it") from None
    except DamagedFileError as error:
        raise HistoryError(f"{file}: damaged ({error}): name a copy") from None
    except (HistoryFileError, sqlite3.Error) as error:
        raise HistoryError(f"{file}: {error}") from None
    return connection, file, last_alive


@contextmanager
def reading(file: str) -> Iterator[sqlite3.Connection]:
    """Open a history that this aggregator writes, until the context ends. Raises HistoryError, also for an
    error of the context.
    """
    try:
        with closing(open_for_reading(file)) as connection:
            yield connection
    except FileNotFoundError:
        raise HistoryError("nothing is recorded yet") from None
    except OSError as error:
        raise HistoryError(f"{file}: {error.strerror}: make it readable for the aggregator's user") from None
    except (HistoryFileError, sqlite3.Error, *DAMAGED_ROW) as error:
        remedy = ": the aggregator renames it at its next change, and begins a new one"
        raise HistoryError(f"{file}: {error}{remedy if is_damaged(error) else ''}") from None


def _steps(
    connection: sqlite3.Connection, file: str, now: float, future: list[float]
) -> Iterator[HistoryEvent]:
    reader = _Reader(connection)
    try:
        yield from heapq.merge(
            in_time_order(reader.nodes(), now, future),
            in_time_order(reader.reports(), now, future),
            in_time_order(reader.liveness(), now, future),
            key=_at,
        )
    except (sqlite3.Error, *DAMAGED_ROW) as error:
        raise HistoryError(f"{file}: damaged ({error}): leave it out, or name a copy") from None
    finally:
        connection.close()


class _Reader:
    """Converts the rows of a history to steps. Shared texts are decoded once for each type: an empty
    inventory and no labels have the same text.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._decoded: dict[tuple[int, JsonDecoder[Any]], Any] = {}

    def reports(self) -> Iterator[ReportReceived]:
        for *row, findings, unreadable in self._connection.execute(_REPORTS):
            columns = msgspec.convert(row, _Row, strict=False)
            yield ReportReceived(
                columns.at,
                columns.uid,
                Report(
                    version=VERSION,
                    node=columns.node,
                    boot_id=columns.boot,
                    sequence=columns.sequence,
                    health=columns.health,
                    data_status=columns.data_status,
                    digest=columns.digest,
                    agent=columns.agent,
                    catalogue=columns.catalogue,
                    age=columns.age,
                    findings=_FINDINGS.decode(findings),
                    unreadable=_UNREADABLE.decode(unreadable),
                    inventory=self._shared(columns.inventory, _INVENTORY),
                    leaving=columns.leaving,
                    passing=self._shared(columns.passing, _PASSING),
                ),
            )

    def nodes(self) -> Iterator[NodeObserved | NodeRemoved]:
        for row in self._rows(_NODES, _NodeRow):
            if row.deleted:
                yield NodeRemoved(row.at, row.uid, row.node)
                continue
            annotations = _TEXTS.decode(row.annotations)
            node = InventoryNode(
                row.uid,
                row.node,
                labels={**self._shared(row.labels, _TEXTS), **_TEXTS.decode(row.upgrade)},
                gpus=row.gpus,
                out_by_operator=row.unschedulable,
                hold=annotated_reason(annotations, HOLD_ANNOTATION),
                maintenance=annotated_reason(annotations, MAINTENANCE_ANNOTATION),
            )
            yield NodeObserved(row.at, node)

    def liveness(self) -> Iterator[AgentLivenessChanged]:
        for at, uid, name, stale in self._rows(_STALE, tuple[RecordedTime, str, str, bool]):
            yield AgentLivenessChanged(at, uid, name, stale)

    def notes(self) -> Iterator[HistoryNote]:
        for columns in self._rows(_NOTES, tuple[RecordedTime, NoteKind, str, str, str]):
            yield HistoryNote(*columns)

    def _rows(self, query: str, columns: type[_Columns]) -> Iterator[_Columns]:
        """Yield the rows of a query. SQLite stores any type in any column: raises DecodeError for another."""
        return (msgspec.convert(row, columns, strict=False) for row in self._connection.execute(query))

    def _shared(self, number: int, decoder: JsonDecoder[Any]) -> Any:
        decoded = self._decoded.get((number, decoder))
        if decoded is None:
            query = "SELECT text FROM shared WHERE id = ?"
            [text] = self._connection.execute(query, (number,)).fetchone() or ("",)
            decoded = self._decoded[number, decoder] = decoder.decode(text)
        return decoded


def _at(step: HistoryEvent) -> float:
    return step.at


def merge_histories(histories: Sequence[Iterator[HistoryEvent]]) -> Iterator[HistoryEvent]:
    """Merge the histories of one fleet: each report once, by node, boot and sequence. An agent is stale if
    it is stale for all replicas that know it.
    """
    if len(histories) == 1:
        return histories[0]
    numbered = (_numbered(number, steps) for number, steps in enumerate(histories))
    is_new = _Deduplicator()
    merged = heapq.merge(*numbered, key=lambda item: item[1].at)
    return (step for history, step in merged if is_new(history, step))


class _Deduplicator:
    """Detects steps that another history has already had."""

    def __init__(self) -> None:
        # The highest sequence by uid and boot: an aggregator has accepted all of these reports.
        self._sequences: dict[tuple[str, str], int] = {}
        self._digests: dict[str, tuple[str, str]] = {}
        self._nodes: dict[str, InventoryNode] = {}
        self._stale: dict[str, dict[int, bool]] = {}

    def __call__(self, history: int, step: HistoryEvent) -> bool:
        match step:
            case ReportReceived():
                self._stale.setdefault(step.uid, {})[history] = False
                return self._reported(step.uid, step.report)
            case NodeObserved(_, node):
                before, self._nodes[node.key] = self._nodes.get(node.key), node
                return before != node
            case NodeRemoved():
                return self._nodes.pop(step.uid, None) is not None
            case AgentLivenessChanged():
                return self._liveness_changed(history, step)
        return True

    def _reported(self, uid: str, report: Report) -> bool:
        boot = uid, report.boot_id
        if report.sequence <= self._sequences.get(boot, -1):
            return False
        self._sequences[boot] = report.sequence
        before, now = self._digests.get(uid), (report.boot_id, report.digest)
        self._digests[uid] = now
        return before != now or not report.digest

    def _liveness_changed(self, history: int, step: AgentLivenessChanged) -> bool:
        by_history = self._stale.setdefault(step.uid, {})
        before = bool(by_history) and all(by_history.values())
        by_history[history] = step.stale
        return all(by_history.values()) != before


def _numbered(number: int, steps: Iterable[HistoryEvent]) -> Iterator[tuple[int, HistoryEvent]]:
    return ((number, step) for step in steps)
