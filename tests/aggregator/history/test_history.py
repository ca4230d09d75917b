from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeguard.aggregator.history.history import History
from nodeguard.aggregator.history.reader import read_history
from nodeguard.aggregator.history.writer import HistoryLimits, HistoryWriter
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    NodeObserved,
    NodeRemoved,
    ReportReceived,
)
from nodeguard.model.incident import OperatorDecision
from tests.aggregator.history.scene import report, rows
from tests.fleet.scene import Fleet, finding

ONE = Caller("node-1", "uid-1")


class Scene:
    """A fleet whose aggregator keeps a history."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fleet = Fleet(3)
        self.writer = HistoryWriter(str(path), HistoryLimits(30.0, 64.0), lambda: self.fleet.wall, gather=0.0)
        self.decisions: dict[str, OperatorDecision] = {}
        self.said: list[str] = []
        planner = self.fleet.planner
        self.history = History(
            planner, lambda: self.decisions, self.writer, self.said.append, self.fleet.mono - 100.0
        )
        self.hearing = ReportHandler(
            planner, InstructionOutbox(), lambda: self.fleet.now, lambda: None, history=self.history
        )

    def look(self, seconds: float = 10.0) -> None:
        self.fleet.after(seconds)
        self.history.tick(self.fleet.now)

    def plan(self, *, acts: bool = True) -> None:
        plan = self.fleet.plan()
        self.history.plan_made(plan, self.fleet.now, acts=acts)
        if acts:
            self.fleet.planner.record_issued(plan)
            self.fleet.write(plan)

    def told(self, kind: str) -> list[str]:
        return rows(self.path, f"SELECT text FROM told WHERE kind = '{kind}' ORDER BY id")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    one = Scene(tmp_path / "history.sqlite")
    yield one
    one.writer.close()


def test_what_is_heard_seen_planned_and_written_is_remembered(scene: Scene) -> None:
    scene.look()
    scene.hearing(ONE, report(1, 7, finding()))
    scene.plan()
    scene.look()
    scene.hearing(ONE, report(1, 8))
    scene.plan()
    scene.fleet.change(2, labels={"rack": "r9"})
    scene.fleet.planner.remove_node("uid-0")
    scene.look()
    scene.writer.close()
    steps = list(read_history(str(scene.path)).steps)
    assert [one.report.sequence for one in steps if isinstance(one, ReportReceived)] == [7, 8]
    seen = [one.node for one in steps if isinstance(one, NodeObserved)]
    assert [one.name for one in seen] == ["node-0", "node-1", "node-2", "node-2"]
    assert (seen[1].labels, seen[3].labels, seen[1].gpus) == ({"rack": "r0", "pool": "a"}, {"rack": "r9"}, 8)
    assert not [one for one in seen if one.taints or one.annotations or one.condition]
    assert [one.node for one in steps if isinstance(one, NodeRemoved)] == ["node-0"]
    assert ['"Marked"' in one for one in scene.told("incident")] == [True, False]
    assert len(scene.told("plan")) == 2
    assert [one.startswith('{"causes"') for one in scene.told("marks")] == [True, False]
    assert ['"reason":"proven"' in one for one in scene.told("released")] == [True]


def test_who_does_not_act_tells_of_incidents_alone(scene: Scene) -> None:
    scene.hearing(ONE, report(1, 7, finding()))
    scene.plan(acts=False)
    scene.writer.close()
    assert (len(scene.told("incident")), scene.told("plan"), scene.told("released")) == (1, [], [])


def test_what_people_decide_is_remembered_when_it_changes(scene: Scene) -> None:
    scene.look()
    scene.fleet.planner.paused = "a bad driver, said alice"
    scene.decisions = {"i": OperatorDecision("i", acknowledged="bob")}
    for _ in range(3):
        scene.look()
    scene.fleet.planner.paused = ""
    scene.look()
    scene.writer.close()
    assert scene.told("pause") == ["a bad driver, said alice", ""]
    assert scene.told("decision") == ['{"incident":"i","acknowledged":"bob"}']


def test_who_falls_silent_and_who_speaks_again_is_remembered(scene: Scene) -> None:
    scene.look()
    report = scene.fleet.reports.pop("uid-2")
    for _ in range(7):
        scene.look()
    scene.fleet.reports["uid-2"] = report
    scene.look()
    scene.writer.close()
    quiet = [one for one in read_history(str(scene.path)).steps if isinstance(one, AgentLivenessChanged)]
    assert [(one.node, one.stale) for one in quiet] == [("node-2", True), ("node-2", False)]


def test_who_was_not_heard_yet_is_not_silent_at_the_start(scene: Scene) -> None:
    scene.history = History(scene.fleet.planner, dict, scene.writer, scene.said.append, scene.fleet.mono)
    scene.fleet.reports.clear()
    for uid in list(scene.fleet.planner.last_reports):
        scene.fleet.planner.state.liveness.forget(uid)
    scene.look()
    scene.look(40.0)
    scene.hearing(ONE, report(1, 1))
    scene.look(20.0)
    scene.writer.close()
    quiet = [one for one in read_history(str(scene.path)).steps if isinstance(one, AgentLivenessChanged)]
    assert {(one.node, one.stale) for one in quiet} == {("node-0", True), ("node-2", True)}


def test_what_is_wrong_with_the_file_is_told_to_the_log(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_bytes(b"nothing of ours" * 100)
    scene = Scene(tmp_path / "history.sqlite")
    scene.look()
    scene.writer.close()
    scene.look()
    assert [one for one in scene.said if "renamed to" in one]
