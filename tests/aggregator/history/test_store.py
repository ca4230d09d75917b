from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from nodeguard.aggregator.history.file import (
    DamagedFileError,
    ForeignFileError,
    HistoryFileError,
    open_for_reading,
)
from nodeguard.aggregator.history.reader import read_history
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.fleet.policy_rules import UPGRADE_LABELS
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryEvent,
    HistoryNote,
    NodeObserved,
    NodeRemoved,
    NoteKind,
)
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.node import Node
from tests.aggregator.history.scene import DAY, START, report, rows, said, sick

NODE = Node("node-1", "uid-1", labels={"rack": "r1", "pool": "a"}, gpus=8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def kept(path: Path, *steps: HistoryEvent, alive: float = START) -> None:
    store = HistoryStore(str(path))
    store.add(steps, alive)
    store.close()


def test_what_was_told_is_read_again_as_it_was(path: Path) -> None:
    upgrading = Node(
        "node-1", "uid-1", labels={**NODE.labels, UPGRADE_LABELS[0]: "drain-required"}, annotations={HOLD_ANNOTATION: "alice"},
        unschedulable=True, gpus=8,
    )  # fmt: skip
    steps = (
        NodeObserved(START, NODE),
        said(1.0),
        sick(2.0),
        NodeObserved(START + 3.0, upgrading),
        AgentLivenessChanged(START + 4.0, "uid-1", "node-1", stale=True),
        NodeRemoved(START + 5.0, "uid-1", "node-1"),
    )
    kept(path, *steps, alive=START + 60.0)
    past = read_history(str(path))
    assert (tuple(past.steps), past.last_alive) == (steps, START + 60.0)
    assert tuple(read_history(str(path.parent)).steps) == steps


def test_only_transitions_are_added_through_restarts_too(path: Path) -> None:
    steps = (
        NodeObserved(START, NODE),
        said(1.0),
        HistoryNote(START, NoteKind.MARKS, "uid-1", "node-1", "{}"),
    )
    kept(path, *steps)
    reworded = said(9.0, 1, 7, age=3.0)
    kept(path, *steps, reworded, said(10.0, 1, 9, passing=()), NodeRemoved(START, "uid-9", "node-9"))
    assert rows(path, "SELECT sequence FROM report") == [1, 9]
    assert rows(path, "SELECT count(*) FROM node UNION ALL SELECT count(*) FROM told") == [1, 1]
    assert rows(path, "SELECT count(*) FROM shared") == [4]


def test_a_report_ends_a_silence_though_nothing_else_is_new(path: Path) -> None:
    kept(path, said(0.0), AgentLivenessChanged(START, "uid-1", "node-1", stale=True))
    kept(path, said(50.0, 1, 2))
    assert [one.stale for one in read_history(str(path)).steps if isinstance(one, AgentLivenessChanged)] == [
        True,
        False,
    ]


def test_a_step_of_an_incident_is_kept_each_time_that_it_changes(path: Path) -> None:
    kept(path, *(HistoryNote(START, NoteKind.INCIDENT, "i", "node-1", text) for text in ("1", "1", "2", "1")))
    assert rows(path, "SELECT text FROM told") == ["1", "2", "1"]


def test_what_holds_at_the_horizon_stays(path: Path) -> None:
    store = HistoryStore(str(path))
    other = Node("node-2", "uid-2", labels={"rack": "r9"})
    store.add(
        [
            NodeObserved(START, NODE), NodeObserved(START, other), said(0.0), said(0.0, 2), sick(1.0), sick(1.0, 2),
            said(2.0, 1, 3), NodeRemoved(START + 3.0, "uid-2", "node-2"), sick(9 * DAY, 1, 4),
            HistoryNote(START, NoteKind.INCIDENT, "i", "node-1", "1"), HistoryNote(START, NoteKind.PAUSE, "", "", "alice"),
        ],
        START,
    )  # fmt: skip
    assert store.trim(START + 10 * DAY, 5.0, 1 << 30)
    assert rows(path, "SELECT uid, sequence FROM report") == [("uid-1", 3), ("uid-1", 4)]
    assert rows(path, "SELECT uid, gone FROM node") == [("uid-1", 0)]
    assert rows(path, "SELECT kind FROM told") == ["pause"]
    shared = rows(path, "SELECT text FROM shared")
    assert not [text for text in shared if "GPU-2" in text or "r9" in text]
    assert [text for text in shared if "GPU-1" in text]
    store.add([said(9 * DAY + 1.0, 1, 5), said(9 * DAY + 2.0, 2)], START)
    assert rows(path, "SELECT uid, sequence FROM report")[2:] == [("uid-1", 5), ("uid-2", 1)]
    store.close()


def test_the_oldest_goes_where_there_is_too_much_and_the_latest_stays(path: Path) -> None:
    store = HistoryStore(str(path))
    for number in range(2000):
        step = sick(number, number % 10, number) if number // 10 % 2 else said(number, number % 10, number)
        store.add([step], START)
    before = store.size()
    assert store.trim(START + 2000, 30.0, before // 2)
    assert store.size() <= before // 2
    assert path.stat().st_size < before * 0.6
    sequences = rows(path, "SELECT sequence FROM report")
    assert sequences == sorted(sequences)
    assert sequences[-1] == 1999
    assert not store.trim(START + 2000, 30.0, 1000)
    assert len(rows(path, "SELECT DISTINCT uid FROM report")) == 10
    store.close()


def test_a_file_of_others_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE mine (one INTEGER)")
    theirs.close()
    was = path.read_bytes()
    with pytest.raises(ForeignFileError, match="it is a database of another program: name another file"):
        HistoryStore(str(path))
    assert path.read_bytes() == was


def test_a_newer_version_is_left_alone(path: Path) -> None:
    kept(path, said(0.0))
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 2")
    newer.close()
    for opened in (HistoryStore, open_for_reading):
        with pytest.raises(
            ForeignFileError,
            match=r"it was written by a newer version \(2, this program supports 1\): upgrade, or",
        ):
            opened(str(path))
    assert rows(path, "SELECT count(*) FROM report") == [1]


def test_a_damaged_file_is_told_of(path: Path) -> None:
    kept(path, *(said(number, number) for number in range(200)))
    data = bytearray(path.read_bytes())
    data[8192:20_000] = bytes(20_000 - 8192)
    path.write_bytes(data)
    with pytest.raises((DamagedFileError, sqlite3.DatabaseError)):
        HistoryStore(str(path))


def test_a_start_that_is_cut_short_leaves_nothing_behind(path: Path) -> None:
    path.touch()
    kept(path, said(0.0))
    path.unlink()
    kept(path, said(0.0))
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.touch()
    with pytest.raises(HistoryFileError, match="it is empty: nothing was recorded yet"):
        open_for_reading(str(path))


def test_it_is_read_while_it_is_written(path: Path) -> None:
    store = HistoryStore(str(path))
    store.add([said(0.0), sick(1.0)], START)
    assert [one.report for one in read_history(str(path)).steps] == [report(), sick(1.0).report]  # type: ignore[union-attr]
    store.close()
