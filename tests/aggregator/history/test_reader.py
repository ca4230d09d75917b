from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from nodeguard.agent.state import AgentState
from nodeguard.agent.state_file import StateFile
from nodeguard.aggregator.history.file import history_path
from nodeguard.aggregator.history.reader import HistoryError, merge_histories, read_history, read_transitions
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.cli.main import main
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryEvent,
    HistoryNote,
    NodeObserved,
    NodeRemoved,
    NoteKind,
    ReportReceived,
)
from nodeguard.model.inventory import InventoryNode
from nodeguard.wire.report import Inventory
from nodeguard.worker.lane import filesystem_lane
from tests.aggregator.history.scene import START, received, unhealthy

NODE = InventoryNode("uid-1", "node-1", gpus=8)


def merged(*histories: tuple[HistoryEvent, ...]) -> list[HistoryEvent]:
    return list(merge_histories([iter(steps) for steps in histories]))


def liveness(after: float, *, stale: bool) -> AgentLivenessChanged:
    return AgentLivenessChanged(START + after, "uid-1", "node-1", stale=stale)


def liveness_times(steps: list[HistoryEvent]) -> list[float]:
    return [step.at - START for step in steps if isinstance(step, AgentLivenessChanged)]


def test_steps_of_two_replicas_are_merged_into_one_each() -> None:
    first = (
        NodeObserved(START, NODE),
        received(1.0, 1, 10),
        unhealthy(5.0, 1, 20),
        NodeRemoved(START + 9.0, "uid-1", "node-1"),
    )
    second = (
        NodeObserved(START + 1.0, NODE),
        received(1.2, 1, 10),
        unhealthy(5.1, 1, 20),
        NodeRemoved(START + 9.5, "uid-1", "node-1"),
    )
    assert merged(first, second) == list(first)


def test_steps_that_a_replica_missed_come_from_the_other() -> None:
    first = (received(1.0, 1, 10), unhealthy(5.0, 1, 20), received(90.0, 1, 40))
    second = (received(1.2, 1, 10), received(50.0, 1, 30), received(90.1, 1, 40))
    sequences = [step.report.sequence for step in merged(first, second) if isinstance(step, ReportReceived)]
    assert sequences == [10, 20, 30]  # The last report has the same digest as the one before.


def test_a_late_report_is_omitted_after_a_newer_one() -> None:
    first = (received(1.0, 1, 10), received(50.0, 1, 30))
    second = (received(1.2, 1, 10), unhealthy(60.0, 1, 20))
    assert [step.at - START for step in merged(first, second)] == [1.0]


def test_an_agent_is_stale_if_it_is_stale_for_all_replicas_that_know_it() -> None:
    first = (received(1.0), liveness(50.0, stale=True), liveness(200.0, stale=False))
    second = (received(1.1), liveness(100.0, stale=True))
    assert liveness_times(merged(first, second)) == [100, 200]
    assert liveness_times(merged(first, (received(1.1, 2),))) == [50, 200]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "{}: no such file or directory: name the file that aggregator --history writes, or bundles"),
        (b"", "{}: it is empty: nothing was recorded yet, or it is another file"),
        (
            b"mode: enforce\n" * 100,
            "{}: it is not a history of nodeguard, or damaged (file is not a database): name the file of aggregator --history",
        ),
    ],
)
def test_a_file_that_is_no_history_is_refused(tmp_path: Path, content: bytes | None, error: str) -> None:
    path = tmp_path / "history.sqlite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HistoryError) as caught:
        read_history(str(path))
    assert str(caught.value) == error.format(path)


def test_a_directory_without_a_history_is_refused(tmp_path: Path) -> None:
    assert history_path(str(tmp_path)) == str(tmp_path / "history.sqlite")
    with pytest.raises(
        HistoryError, match=f"{tmp_path}: there is no history.sqlite in it: name the file that aggregator"
    ):
        read_history(str(tmp_path))


def test_a_missing_path_is_a_directory_unless_it_is_named_as_a_database(tmp_path: Path) -> None:
    assert history_path(f"{tmp_path}/nodeguard") == f"{tmp_path}/nodeguard/history.sqlite"
    assert history_path(f"{tmp_path}/nodeguard/") == f"{tmp_path}/nodeguard/history.sqlite"
    assert history_path(f"{tmp_path}/fleet.sqlite") == f"{tmp_path}/fleet.sqlite"
    assert history_path(f"{tmp_path}/fleet.db") == f"{tmp_path}/fleet.db"
    (tmp_path / "history").touch()
    assert history_path(f"{tmp_path}/history") == f"{tmp_path}/history"
    with pytest.raises(HistoryError, match=f"{tmp_path}/nodeguard: no such file or directory: name the file"):
        read_history(f"{tmp_path}/nodeguard")


def test_the_directory_of_a_history_can_hold_an_agents_state(tmp_path: Path) -> None:
    directory = tmp_path / "nodeguard"
    HistoryStore(history_path(str(directory))).close()
    assert (directory / "history.sqlite").is_file()
    assert directory.stat().st_mode & 0o777 == 0o700
    lane = filesystem_lane()
    file = StateFile(str(directory), lane)
    assert file.save(AgentState()) == ""
    lane.close(0.0)


def test_an_empty_inventory_is_not_taken_for_labels(tmp_path: Path) -> None:
    """Equal texts are stored once: those of a node without labels and of a report without inventory."""
    path = str(tmp_path / "history.sqlite")
    store = HistoryStore(path)
    steps: list[HistoryEvent] = [NodeObserved(START, NODE), received(1.0, inventory=Inventory())]
    store.add(steps, START)
    store.close()
    assert list(read_history(path).steps) == steps


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE clock SET alive = 'x'",
        "UPDATE clock SET alive = 1e308",
        "DELETE FROM clock",
        "UPDATE node SET at = 'x'",
        "UPDATE node SET at = -1e308",
        "UPDATE node SET gpus = 'x'",
        "UPDATE note SET at = 'x'",
        "INSERT INTO note VALUES (NULL, 1, 'gap', '', '', 'x')",
    ],
)
def test_a_value_of_another_type_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    path = tmp_path / "history.sqlite"
    store = HistoryStore(str(path))
    store.add((NodeObserved(START, NODE), liveness(0.0, stale=True)), START)
    store.close()
    connection = sqlite3.connect(path)
    connection.execute(damage)
    connection.commit()
    connection.close()
    assert main(["report", str(path)]) == 3
    assert "damaged" in capsys.readouterr().err


def test_the_error_of_a_damaged_row_names_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "history.sqlite")
    store = HistoryStore(path)
    store.add([received(0.0)], START)
    store._connection.execute("UPDATE report SET findings = '{'")
    store.close()
    with pytest.raises(HistoryError, match=f"{path}: damaged .*: leave it out, or name a copy"):
        list(read_history(path).steps)


def test_a_clock_step_back_does_not_change_the_order(tmp_path: Path) -> None:
    path = str(tmp_path / "history.sqlite")
    store = HistoryStore(path)
    store.add([received(10.0, 1), received(3.0, 2), received(12.0, 3)], START)
    store.close()
    assert [step.at - START for step in read_history(path).steps] == [10.0, 10.0, 12.0]


def test_transitions_are_complete_from_the_first_row_of_any_kind(tmp_path: Path) -> None:
    """An aggregator writes its policy before it has seen a Node: faults from then on are in the record."""
    store = HistoryStore(history_path(str(tmp_path)))
    policy = HistoryNote(START, NoteKind.POLICY, "", "", "{}")
    store.add((policy, NodeObserved(START + 2.0, NODE)), alive=START + 3.0)
    store.close()
    transitions = read_transitions(str(tmp_path))
    assert (transitions.since, transitions.until) == (START, START + 3.0)
    assert [type(event) for event in transitions.events] == [NodeObserved]
