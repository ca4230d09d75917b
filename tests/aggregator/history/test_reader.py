from __future__ import annotations

from pathlib import Path

import pytest

from nodeguard.agent.state import AgentState
from nodeguard.agent.state_file import StateFile
from nodeguard.aggregator.history.file import history_path
from nodeguard.aggregator.history.reader import HistoryError, merge_histories, read_history
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryEvent,
    NodeObserved,
    NodeRemoved,
    ReportReceived,
)
from nodeguard.model.node import Node
from nodeguard.worker.lane import filesystem_lane
from tests.aggregator.history.scene import START, said, sick

NODE = Node("node-1", "uid-1", gpus=8)


def merged(*of: tuple[HistoryEvent, ...]) -> list[HistoryEvent]:
    return list(merge_histories([iter(steps) for steps in of]))


def quiet(after: float, *, silent: bool) -> AgentLivenessChanged:
    return AgentLivenessChanged(START + after, "uid-1", "node-1", stale=silent)


def test_replicas_tell_of_each_thing_once() -> None:
    one = (
        NodeObserved(START, NODE),
        said(1.0, 1, 10),
        sick(5.0, 1, 20),
        NodeRemoved(START + 9.0, "uid-1", "node-1"),
    )
    two = (
        NodeObserved(START + 1.0, NODE),
        said(1.2, 1, 10),
        sick(5.1, 1, 20),
        NodeRemoved(START + 9.5, "uid-1", "node-1"),
    )
    assert merged(one, two) == list(one)


def test_what_one_replica_missed_another_tells() -> None:
    one = (said(1.0, 1, 10), sick(5.0, 1, 20), said(90.0, 1, 40))
    two = (said(1.2, 1, 10), said(50.0, 1, 30), said(90.1, 1, 40))
    sequences = [each.report.sequence for each in merged(one, two) if isinstance(each, ReportReceived)]
    assert sequences == [10, 20, 30]  # The last tells what stands already.


def test_a_report_that_comes_late_is_not_heard_after_a_newer_one() -> None:
    one = (said(1.0, 1, 10), said(50.0, 1, 30))
    two = (said(1.2, 1, 10), sick(60.0, 1, 20))
    assert [each.at - START for each in merged(one, two)] == [1.0]


def test_a_node_is_silent_where_it_is_so_for_everyone_who_knows_it() -> None:
    one = (said(1.0), quiet(50.0, silent=True), quiet(200.0, silent=False))
    two = (said(1.1), quiet(100.0, silent=True))
    assert [each for each in merged(one, two) if isinstance(each, AgentLivenessChanged)] == [
        quiet(100.0, silent=True),
        quiet(200.0, silent=False),
    ]
    assert [
        each.at - START for each in merged(one, (said(1.1, 2),)) if isinstance(each, AgentLivenessChanged)
    ] == [50, 200]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (None, "{}: no such file or directory: name the file that aggregator --history writes, or bundles"),
        (b"", "{}: it is empty: nothing was recorded yet, or it is another file"),
        (
            b"mode: enforce\n" * 100,
            "{}: it is not a history of nodeguard, or damaged (file is not a database): name the file of aggregator --history",
        ),
    ],
)
def test_what_is_no_history_is_said_to_be_none(tmp_path: Path, made: bytes | None, why: str) -> None:
    path = tmp_path / "history.sqlite"
    if made is not None:
        path.write_bytes(made)
    with pytest.raises(HistoryError) as error:
        read_history(str(path))
    assert str(error.value) == why.format(path)


def test_a_directory_without_one_is_said_to_have_none(tmp_path: Path) -> None:
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


def test_a_history_in_a_missing_directory_leaves_room_for_an_agents_state(tmp_path: Path) -> None:
    directory = tmp_path / "nodeguard"
    HistoryStore(history_path(str(directory))).close()
    assert (directory / "history.sqlite").is_file()
    assert directory.stat().st_mode & 0o777 == 0o700
    lane = filesystem_lane()
    file = StateFile(str(directory), lane)
    assert file.save(AgentState()) == ""
    file.close()


def test_a_row_that_is_damaged_names_its_file(tmp_path: Path) -> None:
    path = str(tmp_path / "history.sqlite")
    store = HistoryStore(path)
    store.add([said(0.0)], START)
    store._connection.execute("UPDATE report SET findings = '{'")
    store.close()
    with pytest.raises(HistoryError, match=f"{path}: damaged .*: leave it out, or name a copy"):
        list(read_history(path).steps)


def test_a_clock_that_was_put_back_puts_nothing_out_of_order(tmp_path: Path) -> None:
    path = str(tmp_path / "history.sqlite")
    store = HistoryStore(path)
    store.add([said(10.0, 1), said(3.0, 2), said(12.0, 3)], START)
    store.close()
    assert [one.at - START for one in read_history(path).steps] == [10.0, 10.0, 12.0]
