"""Histories read again: what was told of a fleet, of one replica or of several together."""

from __future__ import annotations

import heapq
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from nodeguard.aggregator.history.file import HistoryFileError, history_path, open_for_reading
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryEvent,
    NodeObserved,
    NodeRemoved,
    ReportReceived,
    in_time_order,
)
from nodeguard.model.finding import DataStatus, Health
from nodeguard.model.node import Node
from nodeguard.wire.report import (
    VERSION,
    Inventory,
    PassingChecks,
    Report,
    ReportedFinding,
    UnreadableTargets,
)


class HistoryError(Exception):
    """A history cannot be read; names its file, and says why and how to remedy."""


class RecordedHistory(NamedTuple):
    """What was told. steps: in their order. until: when whoever listened did so last, in seconds since the
    epoch; 0 where that is not known.
    """

    steps: Iterator[HistoryEvent]
    last_alive: float


class _Row(Struct, array_like=True):
    """A report's row, as its columns stand."""

    at: float
    uid: str
    node: str
    boot: str
    sequence: int
    age: float
    digest: str
    health: Health
    knowledge: DataStatus
    agent: str
    catalogue: str
    leaving: bool
    proven: int
    inventory: int


# Rows of all that is replayed, in the order in which it was written: times may jump back, and ids of tables
# are their own.
_REPORTS = """
SELECT at, uid, node, boot, sequence, age, digest, health, knowledge, agent, catalogue, leaving, proven,
       inventory, findings, unread FROM report ORDER BY id
"""
_NODES = "SELECT at, uid, node, gone, gpus, out, labels, upgrade, said FROM node ORDER BY id"
_SILENT = "SELECT at, name, node, text = 'true' FROM told WHERE kind = 'silent' ORDER BY id"

_FINDINGS = msgspec.json.Decoder(tuple[ReportedFinding, ...])
_UNREAD = msgspec.json.Decoder(tuple[UnreadableTargets, ...])
_PROVEN = msgspec.json.Decoder(tuple[PassingChecks, ...])
_INVENTORY = msgspec.json.Decoder(Inventory)
_WORDS = msgspec.json.Decoder(dict[str, str])


def read_history(path: str) -> RecordedHistory:
    """What a history tells, or one in a directory. Raises HistoryError, as iterating its steps does."""
    file = history_path(path)
    try:
        connection = open_for_reading(file)
        [until] = connection.execute("SELECT alive FROM clock").fetchone()
    except FileNotFoundError:
        what = "no history.sqlite in it" if os.path.isdir(path) else "no such file or directory"
        raise HistoryError(f"{path}: {what}: name what aggregator --history writes, or bundles") from None
    except OSError as error:
        raise HistoryError(f"{file}: {error.strerror}: let it be read, or copy it") from None
    except (HistoryFileError, sqlite3.Error) as error:
        raise HistoryError(f"{file}: {error}") from None
    return RecordedHistory(_told(connection, file), until)


def _told(connection: sqlite3.Connection, file: str) -> Iterator[HistoryEvent]:
    reader = _Reader(connection)
    try:
        yield from heapq.merge(
            in_time_order(reader.nodes()),
            in_time_order(reader.silent()),
            in_time_order(reader.reports()),
            key=_at,
        )
    except (sqlite3.Error, msgspec.DecodeError, LookupError) as error:
        raise HistoryError(f"{file}: damaged ({error}): leave it out, or name a copy") from None
    finally:
        connection.close()


class _Reader:
    """The rows of a history as steps. What is kept once is made once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._made: dict[int, Any] = {}

    def reports(self) -> Iterator[ReportReceived]:
        for *row, findings, unread in self._connection.execute(_REPORTS):
            one = msgspec.convert(row, _Row, strict=False)
            yield ReportReceived(
                one.at,
                one.uid,
                Report(
                    version=VERSION,
                    node=one.node,
                    boot_id=one.boot,
                    sequence=one.sequence,
                    health=one.health,
                    data_status=one.knowledge,
                    digest=one.digest,
                    agent=one.agent,
                    catalogue=one.catalogue,
                    age=one.age,
                    findings=_FINDINGS.decode(findings),
                    unreadable=_UNREAD.decode(unread),
                    inventory=self._shared(one.inventory, _INVENTORY),
                    leaving=one.leaving,
                    passing=self._shared(one.proven, _PROVEN),
                ),
            )

    def nodes(self) -> Iterator[NodeObserved | NodeRemoved]:
        for at, uid, name, gone, gpus, out, labels, upgrade, said in self._connection.execute(_NODES):
            if gone:
                yield NodeRemoved(at, uid, name)
                continue
            every = {**self._shared(labels, _WORDS), **_WORDS.decode(upgrade)}
            node = Node(
                name, uid, labels=every, annotations=_WORDS.decode(said), unschedulable=bool(out), gpus=gpus
            )
            yield NodeObserved(at, node)

    def silent(self) -> Iterator[AgentLivenessChanged]:
        for at, uid, name, silent in self._connection.execute(_SILENT):
            yield AgentLivenessChanged(at, uid, name, bool(silent))

    def _shared(self, number: int, decoder: msgspec.json.Decoder[Any]) -> Any:
        made = self._made.get(number)
        if made is None:
            query = "SELECT text FROM shared WHERE id = ?"
            [text] = self._connection.execute(query, (number,)).fetchone() or ("",)
            made = self._made[number] = decoder.decode(text)
        return made


def _at(step: HistoryEvent) -> float:
    return step.at


def merge_histories(of: Sequence[Iterator[HistoryEvent]]) -> Iterator[HistoryEvent]:
    """What several tell of one fleet, each thing once: a report is known by node, boot and sequence. A node
    is silent where it is so for everyone who knows it.
    """
    if len(of) == 1:
        return of[0]
    numbered = (_numbered(number, steps) for number, steps in enumerate(of))
    once = _Once()
    return (one for which, one in heapq.merge(*numbered, key=lambda each: each[1].at) if once(which, one))


class _Once:
    """Whether a step tells anything that another has not."""

    def __init__(self) -> None:
        # By uid and boot: the highest sequence. An aggregator has accepted each of these reports.
        self._sequences: dict[tuple[str, str], int] = {}
        self._digests: dict[str, tuple[str, str]] = {}
        self._nodes: dict[str, Node] = {}
        self._silent: dict[str, dict[int, bool]] = {}

    def __call__(self, which: int, one: HistoryEvent) -> bool:
        match one:
            case ReportReceived():
                self._silent.setdefault(one.uid, {})[which] = False
                return self._reported(one.uid, one.report)
            case NodeObserved(_, node):
                before, self._nodes[node.uid] = self._nodes.get(node.uid), node
                return before != node
            case NodeRemoved():
                return self._nodes.pop(one.uid, None) is not None
            case AgentLivenessChanged():
                return self._quiet(which, one)
        return True

    def _reported(self, uid: str, report: Report) -> bool:
        boot = uid, report.boot_id
        if report.sequence <= self._sequences.get(boot, -1):
            return False
        self._sequences[boot] = report.sequence
        before, now = self._digests.get(uid), (report.boot_id, report.digest)
        self._digests[uid] = now
        return before != now or not report.digest

    def _quiet(self, which: int, one: AgentLivenessChanged) -> bool:
        words = self._silent.setdefault(one.uid, {})
        before = bool(words) and all(words.values())
        words[which] = one.stale
        return all(words.values()) != before


def _numbered(number: int, steps: Iterable[HistoryEvent]) -> Iterator[tuple[int, HistoryEvent]]:
    return ((number, one) for one in steps)
