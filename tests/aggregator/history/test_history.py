from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.history import queue as queue_module
from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.history.reader import read_history
from nodeguard.aggregator.history.writer import HistoryLimits, HistoryWriter
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryNote,
    NodeObserved,
    NodeRemoved,
    NoteKind,
    ReportReceived,
)
from nodeguard.model.action import NodeAction
from nodeguard.model.incident import OperatorDecision
from tests.aggregator.history.scene import report, rows
from tests.fleet.scene import Fleet, finding
from tests.logs import LogLines
from tests.waiting import until

CALLER = Caller("node-1", "uid-1")


class Scene:
    """A fleet with an aggregator that records a history."""

    def __init__(self, path: Path, nodes: int = 3) -> None:
        self.path = path
        self.fleet = Fleet(nodes)
        self.writer = HistoryWriter(str(path), HistoryLimits(30.0, 64.0), lambda: self.fleet.wall, 0.01, 0.0)
        self.decisions: dict[str, OperatorDecision] = {}
        planner = self.fleet.planner
        self.actions: list[NodeAction] = []
        self.resumed = ""
        self.history = History(
            planner,
            lambda: self.decisions,
            self.writer,
            self.fleet.mono - 100.0,
            resumed=lambda: self.resumed,
            actions=lambda: self.actions,
        )
        outbox = InstructionOutbox()
        inputs = FleetInputs(planner, lambda: None)
        self.handler = ReportHandler(planner, inputs, outbox, lambda: self.fleet.now, history=self.history)

    def tick(self, seconds: float = 10.0) -> None:
        self.fleet.after(seconds)
        self.history.tick(self.fleet.now)

    def plan(self, *, acts: bool = True) -> None:
        plan = self.fleet.issue() if acts else self.fleet.plan()
        self.history.plan_made(plan, self.fleet.now, acts=acts)
        if acts:
            self.fleet.write(plan)

    def notes(self, kind: str) -> list[str]:
        """Return the texts of the recorded notes of a kind."""
        return rows(self.path, f"SELECT text FROM note WHERE kind = '{kind}' ORDER BY id")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "history.sqlite")
    yield scene
    scene.writer.close()


def test_reports_nodes_plans_and_marks_are_recorded(scene: Scene) -> None:
    scene.tick()
    scene.handler(CALLER, report(1, 7, finding()))
    scene.plan()
    scene.tick()
    scene.plan()  # a mark is reported once it is observed
    scene.handler(CALLER, report(1, 8))
    scene.plan()
    scene.plan()
    scene.fleet.change(2, labels={"rack": "r9"})
    scene.fleet.planner.remove_node("uid-0")
    scene.tick()
    scene.writer.close()
    steps = list(read_history(str(scene.path)).steps)
    assert [step.report.sequence for step in steps if isinstance(step, ReportReceived)] == [7, 8]
    nodes = [step.node for step in steps if isinstance(step, NodeObserved)]
    assert [node.name for node in nodes] == ["node-0", "node-1", "node-2", "node-2"]
    assert (nodes[1].labels, nodes[3].labels) == ({"rack": "r0", "pool": "a"}, {"rack": "r9"})
    assert nodes[1].gpus == 8
    assert not [node for node in nodes if node.out_by_operator or node.hold or node.maintenance]
    assert [step.node for step in steps if isinstance(step, NodeRemoved)] == ["node-0"]
    assert ['"Marked"' in text for text in scene.notes("incident")] == [True, False]
    assert len(scene.notes("plan")) == 2
    assert [text.startswith('{"causes"') for text in scene.notes("marks")] == [True, False]
    assert ['"reason":"proven"' in text for text in scene.notes("released")] == [True]


def test_an_inactive_aggregator_records_incidents_but_no_marks(scene: Scene) -> None:
    scene.handler(CALLER, report(1, 7, finding()))
    scene.plan(acts=False)
    scene.tick()
    scene.plan(acts=False)
    scene.writer.close()
    assert (len(scene.notes("incident")), scene.notes("plan"), scene.notes("released")) == (1, [], [])


def test_changed_decisions_are_recorded_once(scene: Scene) -> None:
    scene.tick()
    scene.fleet.planner.paused = "paused by alice: a bad driver"
    scene.decisions = {"i": OperatorDecision("i", acknowledged="bob")}
    for _ in range(3):
        scene.tick()
    scene.fleet.planner.paused = ""
    scene.tick()
    scene.writer.close()
    assert scene.notes("pause") == ["paused by alice: a bad driver", ""]
    assert scene.notes("decision") == ['{"incident":"i","acknowledged":"bob"}']


def test_an_agent_that_becomes_stale_and_returns_is_recorded(scene: Scene) -> None:
    scene.tick()
    report = scene.fleet.reports.pop("uid-2")
    for _ in range(7):
        scene.tick()
    scene.fleet.reports["uid-2"] = report
    scene.tick()
    scene.writer.close()
    assert liveness_changes(scene) == [("node-2", True), ("node-2", False)]


def liveness_changes(scene: Scene) -> list[tuple[str, bool]]:
    steps = read_history(str(scene.path)).steps
    return [(step.node, step.stale) for step in steps if isinstance(step, AgentLivenessChanged)]


def test_agents_without_a_report_are_not_stale_shortly_after_the_start(scene: Scene) -> None:
    scene.history = History(scene.fleet.planner, dict, scene.writer, scene.fleet.mono)
    scene.fleet.reports.clear()
    for uid in list(scene.fleet.planner.last_reports):
        scene.fleet.planner.state.liveness.forget(uid)
    scene.tick()
    scene.tick(40.0)
    scene.handler(CALLER, report(1, 1))
    scene.tick(20.0)
    scene.writer.close()
    assert set(liveness_changes(scene)) == {("node-0", True), ("node-2", True)}


def test_a_damaged_file_is_logged(tmp_path: Path, log: LogLines) -> None:
    (tmp_path / "history.sqlite").write_bytes(b"not a database" * 100)
    scene = Scene(tmp_path / "history.sqlite")
    scene.tick()
    scene.writer.close()
    assert "renamed a damaged history and created a new one" in log.messages()


def test_a_time_without_an_aggregator_is_a_gap_and_a_quiet_fleet_is_none(scene: Scene) -> None:
    for _ in range(40):
        scene.tick(30.0)
        until(lambda: is_idle(scene))
    scene.writer.close()
    assert scene.notes("gap") == []
    stopped = scene.fleet.wall
    scene.fleet.after(3_600.0)
    after = Scene(scene.path)
    after.fleet = scene.fleet
    after.writer.put(HistoryNote(scene.fleet.wall, NoteKind.RESUME, "", "", "resumed"))
    after.writer.close()
    [since] = after.notes("gap")
    assert stopped - 60.0 <= float(since) <= stopped


def test_a_new_file_receives_the_present_state_after_the_old_one_was_removed(scene: Scene) -> None:
    scene.tick()
    scene.handler(CALLER, report(1, 7, finding()))
    scene.plan()
    scene.fleet.planner.paused = "paused by alice: a bad driver"
    scene.decisions = {"i": OperatorDecision("i", acknowledged="bob")}
    scene.tick()
    scene.plan()  # a mark is reported once it is observed
    scene.tick()
    until(lambda: is_idle(scene) and scene.notes("decision"))
    for file in scene.path.parent.glob("history.sqlite*"):
        file.unlink()
    scene.fleet.change(2, labels={"rack": "r9"})
    scene.tick()  # the writer finds that the file was removed
    until(lambda: is_idle(scene) and scene.writer.is_renewed)
    scene.fleet.planner.remove_node("uid-2")
    scene.tick(1.0)
    until(lambda: is_idle(scene))
    scene.handler(CALLER, report(1, 8))
    scene.plan()
    scene.plan()
    scene.tick()
    scene.writer.close()
    nodes = [(node, bool(deleted)) for node, deleted in rows(scene.path, "SELECT node, deleted FROM node")]
    assert nodes == [("node-2", False), ("node-2", True), ("node-0", False), ("node-1", False)]
    assert [text.startswith('{"causes"') for text in scene.notes("marks")] == [True, False]
    assert len(scene.notes("released")) == len(scene.notes("policy")) == len(scene.notes("decision")) == 1
    assert scene.notes("pause") == ["paused by alice: a bad driver"]
    assert not scene.writer.is_renewed


def test_a_new_file_receives_the_reports_of_nodes_that_do_not_change(scene: Scene) -> None:
    scene.tick()
    scene.fleet.report(2, finding("gpu-hot", age=60.0))
    del scene.fleet.reports["uid-0"]
    for _ in range(7):
        scene.tick()
    until(lambda: is_idle(scene) and scene.writer.added)
    for file in scene.path.parent.glob("history.sqlite*"):
        file.unlink()
    scene.writer.put(HistoryNote(scene.fleet.wall, NoteKind.RESUME, "", "", "resumed"))
    until(lambda: is_idle(scene) and scene.writer.is_renewed)
    scene.tick(1.0)
    scene.writer.close()
    steps = list(read_history(str(scene.path)).steps)
    reports = {step.report.node: step for step in steps if isinstance(step, ReportReceived)}
    assert set(reports) == {"node-0", "node-1", "node-2"}
    [hot] = reports["node-2"].report.findings
    assert reports["node-2"].at - hot.age == pytest.approx(scene.fleet.started + 10.0 - 60.0)
    assert liveness_changes(scene) == [("node-0", True)]
    assert isinstance(steps[-1], AgentLivenessChanged)


def test_the_present_state_is_recorded_after_transitions_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "MAX_BYTES", 20_000)
    scene = Scene(tmp_path / "no" / "such" / "history.sqlite", nodes=40)
    scene.tick()
    for sequence in range(20):
        scene.handler(CALLER, report(1, sequence, *[finding()] * (sequence % 2)))
    lost_at = scene.fleet.wall
    until(lambda: scene.writer.error)
    scene.path.parent.parent.mkdir()
    scene.tick(60.0)
    until(lambda: is_idle(scene) and not scene.writer.error)
    lost = scene.writer.lost
    for _ in range(10):
        scene.tick(1.0)
        until(lambda: is_idle(scene))
    added = scene.writer.added
    scene.tick(1.0)
    scene.writer.close()
    names = {f"node-{number}" for number in range(40)}
    steps = list(read_history(str(scene.path)).steps)
    assert {step.node.name for step in steps if isinstance(step, NodeObserved)} == names
    assert {step.report.node for step in steps if isinstance(step, ReportReceived)} == names
    assert [float(text) for text in scene.notes("gap")] == [lost_at]
    assert (scene.writer.lost, scene.writer.added) == (lost, added)
    assert lost > 0


def test_marks_and_nodes_that_ended_without_an_aggregator_end_with_its_start(scene: Scene) -> None:
    scene.tick()
    scene.handler(CALLER, report(1, 7, finding()))
    scene.plan()
    scene.tick()
    scene.writer.close()
    after = Scene(scene.path)
    after.fleet.after(60.0)
    after.fleet.planner.remove_node("uid-2")
    is_read = False
    after.history = History(
        after.fleet.planner, dict, after.writer, after.fleet.mono, has_all_nodes=lambda: is_read
    )
    after.tick()
    until(lambda: is_idle(after) and after.writer.size)
    assert (after.notes("marks")[-1] != "", rows(after.path, "SELECT node FROM node WHERE deleted")) == (
        True,
        [],
    )
    is_read = True
    for _ in range(2):
        after.tick()
    after.writer.close()
    assert ([text != "" for text in after.notes("marks")]) == [True, False]
    assert rows(after.path, "SELECT node FROM note WHERE kind = 'marks'") == ["node-1", "node-1"]
    assert rows(after.path, "SELECT node FROM node WHERE deleted") == ["node-2"]


def is_idle(scene: Scene) -> bool:
    return not scene.writer._queue and scene.writer._busy is None
