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
    FleetListed,
    HistoryEvent,
    HistoryNote,
    NodeObserved,
    NodeRemoved,
    NoteKind,
)
from nodeguard.model.inventory import InventoryNode
from tests.aggregator.history.scene import DAY, START, received, rows, unhealthy

NODE = InventoryNode("uid-1", "node-1", labels={"rack": "r1", "pool": "a"}, gpus=8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def write_history(path: Path, *steps: HistoryEvent, alive: float = START) -> None:
    store = HistoryStore(str(path))
    store.add(steps, alive)
    store.close()


def test_written_steps_are_read_back(path: Path) -> None:
    upgrading = InventoryNode(
        "uid-1", "node-1", labels={**NODE.labels, UPGRADE_LABELS[0]: "drain-required"}, hold="alice",
        out_by_operator=True, gpus=8,
    )  # fmt: skip
    steps = (
        NodeObserved(START, NODE),
        received(1.0),
        unhealthy(2.0),
        NodeObserved(START + 3.0, upgrading),
        AgentLivenessChanged(START + 4.0, "uid-1", "node-1", stale=True),
        NodeRemoved(START + 5.0, "uid-1", "node-1"),
    )
    write_history(path, *steps, alive=START + 60.0)
    recorded = read_history(str(path))
    assert (tuple(recorded.steps), recorded.last_alive) == (steps, START + 60.0)
    assert tuple(read_history(str(path.parent)).steps) == steps


def test_only_transitions_are_added_also_after_a_restart(path: Path) -> None:
    steps = (
        NodeObserved(START, NODE),
        received(1.0),
        HistoryNote(START, NoteKind.MARKS, "uid-1", "node-1", "{}"),
    )
    write_history(path, *steps)
    reworded = received(9.0, 1, 7, age=3.0)
    write_history(
        path, *steps, reworded, received(10.0, 1, 9, passing=()), NodeRemoved(START, "uid-9", "node-9")
    )
    assert rows(path, "SELECT sequence FROM report") == [1, 9]
    assert rows(path, "SELECT count(*) FROM node UNION ALL SELECT count(*) FROM note") == [1, 1]
    assert rows(path, "SELECT count(*) FROM shared") == [4]


def test_a_repeated_report_of_a_stale_agent_records_that_it_is_not_stale(path: Path) -> None:
    write_history(path, received(0.0), AgentLivenessChanged(START, "uid-1", "node-1", stale=True))
    write_history(path, received(50.0, 1, 2))
    steps = read_history(str(path)).steps
    assert [step.stale for step in steps if isinstance(step, AgentLivenessChanged)] == [True, False]


def test_an_incident_is_recorded_at_each_change(path: Path) -> None:
    write_history(
        path, *(HistoryNote(START, NoteKind.INCIDENT, "i", "node-1", text) for text in ("1", "1", "2", "1"))
    )
    assert rows(path, "SELECT text FROM note") == ["1", "2", "1"]


def test_trimming_keeps_the_current_values_at_the_horizon(path: Path) -> None:
    store = HistoryStore(str(path))
    other = InventoryNode("uid-2", "node-2", labels={"rack": "r9"})
    store.add(
        [
            NodeObserved(START, NODE), NodeObserved(START, other), received(0.0), received(0.0, 2), unhealthy(1.0), unhealthy(1.0, 2),
            received(2.0, 1, 3), NodeRemoved(START + 3.0, "uid-2", "node-2"), unhealthy(9 * DAY, 1, 4),
            HistoryNote(START, NoteKind.INCIDENT, "i", "node-1", "1"), HistoryNote(START, NoteKind.PAUSE, "", "", "alice"),
        ],
        START,
    )  # fmt: skip
    assert store.trim(START + 10 * DAY, 5.0, 1 << 30)
    assert rows(path, "SELECT uid, sequence FROM report") == [("uid-1", 3), ("uid-1", 4)]
    assert rows(path, "SELECT uid, deleted FROM node") == [("uid-1", 0)]
    assert rows(path, "SELECT kind FROM note") == ["pause"]
    shared = rows(path, "SELECT text FROM shared")
    assert not [text for text in shared if "GPU-2" in text or "r9" in text]
    assert [text for text in shared if "GPU-1" in text]
    store.add([received(9 * DAY + 1.0, 1, 5), received(9 * DAY + 2.0, 2)], START)
    assert rows(path, "SELECT uid, sequence FROM report")[2:] == [("uid-1", 5), ("uid-2", 1)]
    store.close()


def test_a_time_without_transitions_before_a_write_is_a_gap_and_a_blocked_disk_is_none(
    path: Path,
) -> None:
    store = HistoryStore(str(path))
    store.add([received(0.0)], START)
    store.add([received(60.0, 2), received(580.0, 3)], START + 600.0)
    store.add([received(1200.0, 4)], START + 1200.0)
    store.close()
    assert gaps(path) == [(600.0, 1200.0)]


def test_lost_transitions_are_a_gap_without_the_time_that_it_covers(path: Path) -> None:
    store = HistoryStore(str(path))
    store.add([received(0.0)], START)
    store.add([lost(60.0, 600.0), received(600.0, 2)], START + 600.0)
    store.add([lost(1200.0, 1500.0), received(1500.0, 3)], START + 1500.0)
    store.close()
    assert gaps(path) == [(60.0, 600.0), (600.0, 1200.0), (1200.0, 1500.0)]


def lost(since: float, until: float) -> HistoryNote:
    """Return the gap of lost transitions, in seconds after START."""
    return HistoryNote(START + until, NoteKind.GAP, "", "", repr(START + since))


def gaps(path: Path) -> list[tuple[float, float]]:
    """Return the start and end of each gap, in seconds after START."""
    notes = rows(path, "SELECT text, at FROM note WHERE kind = 'gap' ORDER BY id")
    return [(float(since) - START, until - START) for since, until in notes]


def test_a_list_of_the_fleet_after_the_marks_of_a_deleted_node_were_trimmed(path: Path) -> None:
    store = HistoryStore(str(path))
    marks = HistoryNote(START, NoteKind.MARKS, "uid-1", "node-1", "{}")
    store.add((NodeObserved(START, NODE), marks, NodeRemoved(START + 1.0, "uid-1", "node-1")), START)
    store.trim(START + 10 * DAY, 5.0, 1 << 30)
    store.add((FleetListed(START + 10 * DAY, frozenset(), frozenset()),), START + 10 * DAY)
    store.close()
    assert rows(path, "SELECT kind FROM note") == ["gap"]


def test_trimming_removes_the_oldest_transitions_until_the_file_fits(path: Path) -> None:
    store = HistoryStore(str(path))
    for number in range(2000):
        step = (
            unhealthy(number, number % 10, number)
            if number // 10 % 2
            else received(number, number % 10, number)
        )
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


def test_a_database_of_another_program_is_not_changed(path: Path) -> None:
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE numbers (number INTEGER)")
    foreign.close()
    before = path.read_bytes()
    with pytest.raises(ForeignFileError, match="it is a database of another program: name another file"):
        HistoryStore(str(path))
    assert path.read_bytes() == before


def test_a_history_of_a_newer_version_is_not_changed(path: Path) -> None:
    write_history(path, received(0.0))
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 2")
    newer.close()
    for open_history in (HistoryStore, open_for_reading):
        with pytest.raises(
            ForeignFileError,
            match=r"it was written by a newer version \(2, this program supports 1\): upgrade, or",
        ):
            open_history(str(path))
    assert rows(path, "SELECT count(*) FROM report") == [1]


def test_a_damaged_file_is_an_error(path: Path) -> None:
    write_history(path, *(received(number, number) for number in range(200)))
    data = bytearray(path.read_bytes())
    data[8192:20_000] = bytes(20_000 - 8192)
    path.write_bytes(data)
    with pytest.raises((DamagedFileError, sqlite3.DatabaseError)):
        HistoryStore(str(path))


def test_an_empty_file_of_an_interrupted_start_is_used(path: Path) -> None:
    path.touch()
    write_history(path, received(0.0))
    path.unlink()
    write_history(path, received(0.0))
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.touch()
    with pytest.raises(HistoryFileError, match="it is empty: nothing was recorded yet"):
        open_for_reading(str(path))


def test_a_history_is_read_while_it_is_written(path: Path) -> None:
    store = HistoryStore(str(path))
    store.add([received(0.0), unhealthy(1.0)], START)
    assert list(read_history(str(path)).steps) == [received(0.0), unhealthy(1.0)]
    store.close()
