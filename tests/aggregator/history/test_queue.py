from __future__ import annotations

import pytest

from nodeguard.aggregator.history import queue as queue_module
from nodeguard.aggregator.history.queue import TransitionQueue
from nodeguard.fleet.state.history_events import HistoryNote, NodeObserved, NoteKind
from nodeguard.model.inventory import InventoryNode
from tests.aggregator.history.scene import START, received

REPORTS = [received(number, number, number) for number in range(6)]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> TransitionQueue:
    """Return a queue that has room for four reports."""
    monkeypatch.setattr(queue_module, "MAX_BYTES", 4 * 900)
    return TransitionQueue()


def test_the_start_of_a_fleet_of_7500_nodes_loses_nothing_before_the_first_write() -> None:
    queue = TransitionQueue()
    for number in range(7500):
        queue.put(NodeObserved(START, InventoryNode(f"uid-{number}", f"node-{number}", gpus=8)))
    for _ in range(7500):
        queue.put(REPORTS[0])
    assert (len(queue), queue.lost, queue.has_dropped) == (15_000, 0, False)


def test_the_oldest_are_lost_and_the_next_ones_follow_a_gap(queue: TransitionQueue) -> None:
    for report in REPORTS:
        queue.put(report)
    gap = HistoryNote(START + 2.0, NoteKind.GAP, "", "", repr(START))
    assert queue.take(3) == [gap, *REPORTS[2:5]]
    assert (queue.take(3), queue.take(3)) == (REPORTS[5:], [])
    assert (queue.lost, queue.has_dropped) == (2, True)


def test_transitions_that_are_returned_have_the_gap_before_them_still(queue: TransitionQueue) -> None:
    for report in REPORTS[:5]:
        queue.put(report)
    queue.put_back(queue.take(2))
    queue.put(REPORTS[5])
    assert queue.take(1) == [HistoryNote(START + 2.0, NoteKind.GAP, "", "", repr(START)), REPORTS[2]]


def test_returned_transitions_are_lost_before_later_ones(queue: TransitionQueue) -> None:
    for report in REPORTS[:3]:
        queue.put(report)
    taken = queue.take(2)
    for report in REPORTS[3:]:
        queue.put(report)
    queue.put_back(taken)
    assert queue.take(9)[1:] == REPORTS[2:]
    queue.clear()
    assert queue.lost == 2


def test_a_transition_that_is_dropped_is_lost_with_a_gap(queue: TransitionQueue) -> None:
    for report in REPORTS[1:3]:
        queue.put(report)
    queue.drop(REPORTS[0])
    assert (queue.lost, queue.has_dropped) == (1, True)
    assert queue.take(1) == [HistoryNote(START + 1.0, NoteKind.GAP, "", "", repr(START)), REPORTS[1]]


def test_a_note_takes_the_memory_of_its_text(queue: TransitionQueue) -> None:
    for _ in range(4):
        queue.put(HistoryNote(START, NoteKind.INCIDENT, "i", "node-1", "x" * 1000))
    assert (len(queue), queue.lost) == (2, 2)
