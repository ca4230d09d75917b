"""A history that is open for writing: what is news to it is added, what is too old or too much is let go."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from nodeguard.aggregator.history.file import open_for_writing
from nodeguard.fleet.policy_rules import UPGRADE_LABELS
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryEvent,
    HistoryNote,
    NodeObserved,
    NodeRemoved,
    NoteKind,
    ReportReceived,
)

# Kinds of which the latest word stands until another is said; the others are of a moment.
_STANDING = (NoteKind.MARKS, NoteKind.DECISION, NoteKind.PAUSE)
STALE = "silent"

# Texts whose place is remembered; what was said last of so many names.
_TEXTS = 20_000
_NAMES = 200_000

_DAY = 86_400.0

# A history that is too large is cut, oldest first: by a tenth, then by more, until it fits.
_CUTS = 10

_json = msgspec.json.Encoder(order="deterministic").encode


class HistoryStore:
    """An open history. Raises FileError, OSError, sqlite3.Error, here and in its methods.

    added: transitions that were added since it was opened.
    """

    def __init__(self, path: str) -> None:
        self.added = self._new = 0
        self._connection = open_for_writing(path)
        self._texts: dict[bytes, int] = {}
        run = self._connection.execute
        self._reports: dict[str, tuple[object, ...]] = {
            uid: tuple(rest) for uid, *rest in run(_LATEST_REPORTS)
        }
        self._nodes: dict[str, tuple[object, ...]] = {
            uid: tuple(rest) for uid, *rest in run(_LATEST_NODES) if not rest[1]
        }
        self._said = {(kind, name): _hashed(text) for kind, name, text in run(_LATEST_TOLD)}
        self._silent = {uid for (kind, uid), said in self._said.items() if kind == STALE and said == _YES}

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def add(self, steps: Iterable[HistoryEvent], alive: float) -> None:
        """Add what is news, all of it or, where that fails, nothing: then this is not to be used any more.
        alive: now, in seconds since the epoch.
        """
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        for one in steps:
            self._add(one)
        run("UPDATE clock SET alive = ?", (alive,))
        run("COMMIT")
        self.added += self._new
        self._new = 0

    def _add(self, one: HistoryEvent) -> None:
        match one:
            case ReportReceived():
                self._report(one)
            case NodeObserved(at, node):
                upgrade = {key: node.labels[key] for key in UPGRADE_LABELS if key in node.labels}
                rest = {key: value for key, value in node.labels.items() if key not in UPGRADE_LABELS}
                row = (node.name, 0, node.gpus, int(node.unschedulable), self._text(_json(rest)))
                self._node(at, node.uid, (*row, _text(upgrade), _text(node.annotations)))
            case NodeRemoved(at, uid, name):
                if uid in self._nodes:
                    self._node(at, uid, (name, 1, 0, 0, 0, "{}", "{}"))
                    del self._nodes[uid]
                self._reports.pop(uid, None)
            case AgentLivenessChanged(at, uid, name, silent):
                self._quiet(at, uid, name, silent=silent)
            case HistoryNote(at, kind, name, node, text):
                self._tell(at, kind.value, name, node, text)

    def _report(self, one: ReportReceived) -> None:
        said = one.report
        if one.uid in self._silent:
            self._quiet(one.at, one.uid, said.node, silent=False)
        proven = self._text(_json(said.passing))
        if self._reports.get(one.uid) == (said.boot_id, said.digest, proven):
            return
        row = (
            one.at, one.uid, said.node, said.boot_id, said.sequence, said.age, said.digest, said.health.value,
            said.data_status.value, said.agent, said.catalogue, int(said.leaving), _text(said.findings),
            _text(said.unreadable), proven, self._text(_json(said.inventory)),
        )  # fmt: skip
        self._insert("report", row)
        self._reports[one.uid] = said.boot_id, said.digest, proven

    def _node(self, at: float, uid: str, row: tuple[object, ...]) -> None:
        if self._nodes.get(uid) != row:
            self._insert("node", (at, uid, *row))
            self._nodes[uid] = row

    def _quiet(self, at: float, uid: str, node: str, *, silent: bool) -> None:
        (self._silent.add if silent else self._silent.discard)(uid)
        self._tell(at, STALE, uid, node, "true" if silent else "false")

    def _tell(self, at: float, kind: str, name: str, node: str, text: str) -> None:
        said = _hashed(text)
        if self._said.get((kind, name)) == said:
            return
        self._insert("told", (at, kind, name, node, text))
        if len(self._said) >= _NAMES:
            self._said = {key: one for key, one in self._said.items() if key[0] in {STALE, *_STANDING}}
        self._said[kind, name] = said

    def _insert(self, table: str, row: tuple[object, ...]) -> None:
        places = ", ".join("?" * len(row))
        self._connection.execute(f"INSERT INTO {table} VALUES (NULL, {places})", row)  # noqa: S608 - ours
        self._new += 1

    def _text(self, text: bytes) -> int:
        """Where a text is that is kept once."""
        name = _hashed(text)
        known = self._texts.get(name)
        if known is not None:
            return known
        if len(self._texts) >= _TEXTS:
            self._texts.clear()
        run = self._connection.execute
        found = run("SELECT id FROM shared WHERE hash = ?", (name,)).fetchone()
        if found is None:
            found = run(
                "INSERT INTO shared (hash, text) VALUES (?, ?) RETURNING id", (name, text.decode())
            ).fetchone()
        self._texts[name] = found[0]
        return int(found[0])

    def size(self) -> int:
        """Bytes of the file that hold anything."""
        run = self._connection.execute
        pages, free, size = (
            run(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def trim(self, now: float, days: float, most: int) -> bool:
        """Let go of what is older than some days, and of more where there are more bytes than may be. What
        holds at the first moment that is kept stays: each Node, its report, its marks. Returns whether it
        fits. now: seconds since the epoch.
        """
        self._forget(now - days * _DAY)
        cut = 0
        while self.size() > most and cut < _CUTS:
            cut += 1
            count = self._one("SELECT (SELECT count(*) FROM report) + (SELECT count(*) FROM told)")
            horizon = self._one(_QUANTILE, (int(count) * cut // _CUTS - 1,)) if count >= _CUTS else None
            if horizon is not None:
                self._forget(horizon)
        # Each step gives back one page, and `execute` takes one alone.
        self._connection.executescript("PRAGMA incremental_vacuum")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return self.size() <= most

    def _one(self, query: str, values: tuple[object, ...] = ()) -> Any:
        found = self._connection.execute(query, values).fetchone()
        return None if found is None else found[0]

    def _forget(self, horizon: float) -> None:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        if sum(run(query, {"horizon": horizon}).rowcount for query in _FORGET):
            run(_UNSHARED)
            self._texts.clear()
        run("COMMIT")


_LATEST_REPORTS = """
SELECT uid, boot, digest, proven FROM report WHERE id IN (SELECT max(id) FROM report GROUP BY uid)
"""
_LATEST_NODES = """
SELECT uid, node, gone, gpus, out, labels, upgrade, said FROM node
WHERE id IN (SELECT max(id) FROM node GROUP BY uid)
"""
_LATEST_TOLD = """
SELECT kind, name, text FROM told
WHERE kind IN ('marks', 'decision', 'pause', 'silent')
    AND id IN (SELECT max(id) FROM told GROUP BY kind, name)
"""
_QUANTILE = """
SELECT at FROM (SELECT at FROM report UNION ALL SELECT at FROM told) ORDER BY at LIMIT 1 OFFSET ?
"""

# What is gone before the horizon goes with all that was told of it; of everything else, the last word stays.
_FORGET = (
    """
    DELETE FROM report WHERE at < :horizon AND (uid IN (SELECT uid FROM gone WHERE at < :horizon)
        OR id NOT IN (SELECT max(id) FROM report WHERE at < :horizon GROUP BY uid))
    """,
    """
    DELETE FROM told WHERE at < :horizon AND (kind NOT IN ('marks', 'decision', 'pause', 'silent')
        OR (kind IN ('marks', 'silent') AND name IN (SELECT uid FROM gone WHERE at < :horizon))
        OR id NOT IN (SELECT max(id) FROM told WHERE at < :horizon GROUP BY kind, name))
    """,
    """
    DELETE FROM node WHERE at < :horizon AND (gone
        OR id NOT IN (SELECT max(id) FROM node WHERE at < :horizon GROUP BY uid))
    """,
)
_UNSHARED = """
DELETE FROM shared WHERE id NOT IN (
    SELECT proven FROM report UNION SELECT inventory FROM report UNION SELECT labels FROM node)
"""


def _text(what: object) -> str:
    return _json(what).decode()


def _hashed(text: bytes | str) -> bytes:
    data = text if isinstance(text, bytes) else text.encode(errors="replace")
    return blake2b(data, digest_size=12).digest()


_YES = _hashed("true")
