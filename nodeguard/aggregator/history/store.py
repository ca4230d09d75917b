"""The history store: adds new transitions to the file, and removes old ones to keep its limits."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence, Set
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import msgspec

from nodeguard.aggregator.history.file import last_written, open_for_writing
from nodeguard.aggregator.history.file_identity import FileIdentity
from nodeguard.fleet.policy_rules import UPGRADE_LABELS
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    FleetListed,
    HistoryNote,
    NodeObserved,
    NodeRemoved,
    NoteKind,
    RecordedEvent,
    ReportReceived,
)
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION

# Kinds with a current value, the latest one; the others are events.
_CURRENT = (NoteKind.MARKS, NoteKind.RULE, NoteKind.DECISION, NoteKind.PAUSE, NoteKind.POLICY)
_MARKS = frozenset({NoteKind.MARKS.value, NoteKind.RULE.value})
STALE = "stale"

# Cached ids of shared texts, and cached latest values by name.
_TEXTS = 20_000
_NAMES = 200_000

_DAY = 86_400.0

# Seconds from a write to the first transition of the next one after which a gap is recorded: three times the
# recorder's interval. The transitions of one write have no gap between them: the recorder ran.
MAX_SILENCE = 180.0

# A history that is too large loses its oldest tenth, then more, until it fits.
_CUTS = 10

# Files of SQLite beside a database, and the suffix under which a replaced database is for an instant.
_BESIDE = ("-wal", "-shm")
_REPLACED_SUFFIX = ".replaced"

_json = msgspec.json.Encoder(order="deterministic").encode


class HistoryStore:
    """An open history file. It and its methods raise HistoryFileError, OSError and sqlite3.Error.

    added: transitions since it was opened. was_empty: whether it had no current values when it was opened.
    """

    def __init__(self, path: str) -> None:
        self.added = self._new = 0
        self._connection = open_for_writing(path)
        self._path, self._file = path, os.stat(path)
        self._texts: dict[bytes, int] = {}
        run = self._connection.execute
        self._reports: dict[str, tuple[object, ...]] = {
            uid: tuple(rest) for uid, *rest in run(_LATEST_REPORTS)
        }
        self._nodes: dict[str, tuple[object, ...]] = {
            uid: tuple(rest) for uid, *rest in run(_LATEST_NODES) if not rest[1]
        }
        self._latest = {(kind, name): _hashed(text) for kind, name, text in run(_LATEST_NOTES)}
        self._alive = last_written(self._connection)
        self._stale = {
            uid for (kind, uid), digest in self._latest.items() if kind == STALE and digest == _YES
        }
        self.was_empty = not (self._reports or self._nodes or self._latest)
        self._beside = [(path + suffix, os.stat(path + suffix)) for suffix in _BESIDE]
        [page_bytes] = run("PRAGMA page_size").fetchone()
        [clock_page] = run("SELECT rootpage FROM sqlite_schema WHERE name = 'clock'").fetchone()
        # Each write sets the clock.
        self._identity = FileIdentity(path, page_bytes, clock_page)

    def is_in_place(self) -> bool:
        """Return whether the file still has its path: SQLite also writes to one that was removed."""
        try:
            return os.path.samestat(self._file, os.stat(self._path))
        except FileNotFoundError:
            return False

    def is_overwritten(self) -> bool:
        """Return whether another program wrote over the file, and it is no database now."""
        return self._identity.is_overwritten()

    def is_written_by_others(self) -> bool:
        """Return whether another program wrote to the history, with SQLite."""
        return self._identity.is_written_by_others()

    def is_replaced(self) -> bool:
        """Return whether another history has the path, or was copied over this file, such as a backup."""
        return os.path.exists(self._path) and (not self.is_in_place() or self._identity.is_copied_over())

    def abandon(self) -> None:
        """Close the file after it was replaced, and keep the file that is there now as it is.

        SQLite would write the journal of the old file into the new one, and would read it with the new one.
        It does not write to a file without its path, so a file that was copied over is renamed meanwhile.
        """
        renamed = self._path + _REPLACED_SUFFIX if self.is_in_place() else ""
        if renamed:
            os.rename(self._path, renamed)
        try:
            with suppress(sqlite3.Error):
                self.close()
            for path, old in self._beside:
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.stat(path), old):
                        os.unlink(path)
        finally:
            if renamed:
                os.rename(renamed, self._path)

    def close(self) -> None:
        """Close the file."""
        try:
            self._connection.close()
        finally:
            self._identity.close()

    def add(self, steps: Sequence[RecordedEvent], alive: float) -> None:
        """Add the new transitions, all or none. After an error this store must not be used again.

        steps: they may have waited for the disk. alive: now, in seconds since the epoch.
        """
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        covered_from = _covered_from(steps[0]) if steps else alive
        if self._alive and covered_from - self._alive > MAX_SILENCE:
            self._add_note(covered_from, NoteKind.GAP.value, "", "", repr(self._alive))
        for step in steps:
            self._add(step)
        run("UPDATE clock SET alive = ?", (alive,))
        run("COMMIT")
        self._identity.record()
        self._alive = alive
        self.added += self._new
        self._new = 0

    def _add(self, step: RecordedEvent) -> None:
        match step:
            case ReportReceived():
                self._report(step)
            case NodeObserved(at, node):
                upgrade = {key: node.labels[key] for key in UPGRADE_LABELS if key in node.labels}
                rest = {key: value for key, value in node.labels.items() if key not in UPGRADE_LABELS}
                row = (node.name, 0, node.gpus, int(node.out_by_operator), self._text(_json(rest)))
                self._node(at, node.key, (*row, _text(upgrade), _text(_operator_settings(node))))
            case NodeRemoved(at, uid, name):
                self._remove_node(at, uid, name)
            case FleetListed(at, nodes, marks):
                self._end_unlisted(at, nodes, marks)
            case AgentLivenessChanged(at, uid, name, stale):
                self._add_liveness(at, uid, name, stale=stale)
            case HistoryNote(at, kind, name, node, text):
                self._add_note(at, kind.value, name, node, text)

    def _remove_node(self, at: float, uid: str, name: object) -> None:
        if uid in self._nodes:
            self._node(at, uid, (name, 1, 0, 0, 0, "{}", "{}"))
            del self._nodes[uid]
        self._reports.pop(uid, None)

    def _end_unlisted(self, at: float, nodes: Set[str], marks: Set[tuple[str, str]]) -> None:
        """Add the end of the nodes and marks that are not in a list."""
        for uid in self._nodes.keys() - nodes:
            self._remove_node(at, uid, self._nodes[uid][0])
        for kind, name in self._latest.keys() - marks:
            if kind in _MARKS and self._latest[kind, name] != _NOTHING:
                row = self._connection.execute(_NODE_OF_NOTE, (kind, name)).fetchone()
                # Trimming removes the marks of a node that was deleted with marks.
                if row is not None:
                    self._add_note(at, kind, name, row[0], "")

    def _report(self, step: ReportReceived) -> None:
        report = step.report
        if step.uid in self._stale:
            self._add_liveness(step.at, step.uid, report.node, stale=False)
        passing = self._text(_json(report.passing))
        if self._reports.get(step.uid) == (report.boot_id, report.digest, passing):
            return
        row = (
            step.at, step.uid, report.node, report.boot_id, report.sequence, report.age, report.digest,
            report.health.value, report.data_status.value, report.agent, report.catalogue,
            int(report.leaving), _text(report.findings),
            _text(report.unreadable), passing, self._text(_json(report.inventory)),
        )  # fmt: skip
        self._insert("report", row)
        self._reports[step.uid] = report.boot_id, report.digest, passing

    def _node(self, at: float, uid: str, row: tuple[object, ...]) -> None:
        if self._nodes.get(uid) != row:
            self._insert("node", (at, uid, *row))
            self._nodes[uid] = row

    def _add_liveness(self, at: float, uid: str, node: str, *, stale: bool) -> None:
        (self._stale.add if stale else self._stale.discard)(uid)
        self._add_note(at, STALE, uid, node, "true" if stale else "false")

    def _add_note(self, at: float, kind: str, name: str, node: str, text: str) -> None:
        digest = _hashed(text)
        if self._latest.get((kind, name)) == digest:
            return
        self._insert("note", (at, kind, name, node, text))
        if len(self._latest) >= _NAMES:
            self._latest = {
                key: digest for key, digest in self._latest.items() if key[0] in {STALE, *_CURRENT}
            }
        self._latest[kind, name] = digest

    def _insert(self, table: str, row: tuple[object, ...]) -> None:
        placeholders = ", ".join("?" * len(row))
        self._connection.execute(f"INSERT INTO {table} VALUES (NULL, {placeholders})", row)  # noqa: S608 - ours
        self._new += 1

    def _text(self, text: bytes) -> int:
        """Return the id of a shared text; equal texts are stored once."""
        name = _hashed(text)
        cached = self._texts.get(name)
        if cached is not None:
            return cached
        if len(self._texts) >= _TEXTS:
            self._texts.clear()
        run = self._connection.execute
        row = run("SELECT id FROM shared WHERE hash = ?", (name,)).fetchone()
        if row is None:
            row = run(
                "INSERT INTO shared (hash, text) VALUES (?, ?) RETURNING id", (name, text.decode())
            ).fetchone()
        self._texts[name] = row[0]
        return int(row[0])

    def size(self) -> int:
        """Return the used bytes of the file."""
        run = self._connection.execute
        pages, free, size = (
            run(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def trim(self, now: float, days: float, most: int) -> bool:
        """Remove transitions older than `days`, and more while the file is larger than `most` bytes.

        Keeps the values that were current at the earliest remaining time: each Node, its report, its marks.
        Returns whether the file fits. now: seconds since the epoch.
        """
        self._remove_before(now - days * _DAY)
        cut = 0
        while self.size() > most and cut < _CUTS:
            cut += 1
            count = self._value("SELECT (SELECT count(*) FROM report) + (SELECT count(*) FROM note)")
            horizon = self._value(_QUANTILE, (int(count) * cut // _CUTS - 1,)) if count >= _CUTS else None
            if horizon is not None:
                self._remove_before(horizon)
        # Each step of the statement frees one page, and `execute` runs one step only.
        self._connection.executescript("PRAGMA incremental_vacuum")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._identity.record()
        return self.size() <= most

    def _value(self, query: str, values: tuple[object, ...] = ()) -> Any:
        row = self._connection.execute(query, values).fetchone()
        return None if row is None else row[0]

    def _remove_before(self, horizon: float) -> None:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        if sum(run(query, {"horizon": horizon}).rowcount for query in _FORGET):
            run(_UNSHARED)
            self._texts.clear()
        run("COMMIT")


_LATEST_REPORTS = """
SELECT uid, boot, digest, passing FROM report WHERE id IN (SELECT max(id) FROM report GROUP BY uid)
"""
_LATEST_NODES = """
SELECT uid, node, deleted, gpus, unschedulable, labels, upgrade, annotations FROM node
WHERE id IN (SELECT max(id) FROM node GROUP BY uid)
"""
_LATEST_NOTES = """
SELECT kind, name, text FROM note
WHERE kind IN ('marks', 'rule', 'decision', 'action', 'pause', 'policy', 'stale')
    AND id IN (SELECT max(id) FROM note GROUP BY kind, name)
"""
_NODE_OF_NOTE = "SELECT node FROM note WHERE kind = ? AND name = ? ORDER BY id DESC LIMIT 1"
_QUANTILE = """
SELECT at FROM (SELECT at FROM report UNION ALL SELECT at FROM note) ORDER BY at LIMIT 1 OFFSET ?
"""

# Removes a node that was deleted before the horizon entirely, and keeps the latest values of other nodes.
_FORGET = (
    """
    DELETE FROM report WHERE at < :horizon AND (uid IN (SELECT uid FROM deleted_node WHERE at < :horizon)
        OR id NOT IN (SELECT max(id) FROM report WHERE at < :horizon GROUP BY uid))
    """,
    """
    DELETE FROM note WHERE at < :horizon AND (kind NOT IN ('marks', 'rule', 'decision', 'pause', 'policy',
    'stale') OR (kind = 'rule' AND text = '') OR (kind IN ('marks', 'stale') AND name IN (SELECT uid FROM
    deleted_node WHERE at < :horizon)) OR id NOT IN (SELECT max(id) FROM note WHERE at < :horizon GROUP BY
    kind, name))
    """,
    """
    DELETE FROM node WHERE at < :horizon AND (deleted
        OR id NOT IN (SELECT max(id) FROM node WHERE at < :horizon GROUP BY uid))
    """,
)
_UNSHARED = """
DELETE FROM shared WHERE id NOT IN (
    SELECT passing FROM report UNION SELECT inventory FROM report UNION SELECT labels FROM node)
"""


def _covered_from(step: RecordedEvent) -> float:
    """Return since when a transition covers the time: a gap of lost ones does since the first of them."""
    if isinstance(step, HistoryNote) and step.kind is NoteKind.GAP:
        return float(step.text)
    return step.at


def _operator_settings(node: InventoryNode) -> dict[str, str]:
    """Return what operators set on a node, by annotation."""
    settings = {HOLD_ANNOTATION: node.hold, MAINTENANCE_ANNOTATION: node.maintenance}
    return {key: reason for key, reason in settings.items() if reason}


def _text(value: object) -> str:
    return _json(value).decode()


def _hashed(text: bytes | str) -> bytes:
    data = text if isinstance(text, bytes) else text.encode(errors="replace")
    return blake2b(data, digest_size=12).digest()


_YES, _NOTHING = _hashed("true"), _hashed("")
