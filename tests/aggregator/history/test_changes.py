"""Changes that a real history file has, as operators read them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from nodeguard.aggregator.history import changes as changes_module
from nodeguard.aggregator.history.changes import read_history_view
from nodeguard.aggregator.history.component_faults import load_component_faults
from nodeguard.aggregator.history.file import DamagedFileError
from nodeguard.aggregator.history.history import policy_text
from nodeguard.aggregator.history.node_findings import read_finding_periods
from nodeguard.aggregator.history.reader import HistoryError, read_history, reading
from nodeguard.aggregator.history.store import HistoryStore
from nodeguard.fleet.components.repeat_offenders import FaultHistory
from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.fleet.state.history_events import HistoryNote, NoteKind, RecordedChange
from nodeguard.fleet_api import history as history_module
from nodeguard.fleet_api.schema.history import HistoryView
from nodeguard.model.action import ActionKind, ActionState, FindingKey, NodeAction
from nodeguard.model.finding import Health
from nodeguard.model.incident import FalseAlarm, OperatorDecision
from nodeguard.model.mark import HOLD_ANNOTATION
from nodeguard.model.policy import Mode, ModeRule, NodeLocation, Policy, Pool
from tests.aggregator.history.scene import report, rows
from tests.aggregator.history.test_history import CALLER, Scene
from tests.fleet.scene import AT_ONCE, finding

DAY = 86_400.0


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "history.sqlite")


def view(scene: Scene, name: str = "", since: float = DAY) -> HistoryView:
    scene.writer.close()
    now = scene.fleet.wall
    return read_history_view(str(scene.path), name, now - since, now)


def changes(scene: Scene, name: str = "") -> list[tuple[str, str]]:
    return [(entry.change, entry.text) for entry in view(scene, name).entries]


def carry_out(scene: Scene) -> None:
    for _ in range(3):
        scene.plan()
        scene.tick(1.0)


def test_a_fault_its_mark_and_their_end_are_changes_of_the_node(scene: Scene) -> None:
    scene.tick()
    scene.handler(CALLER, report(1, 7, finding()))
    carry_out(scene)
    scene.handler(CALLER, report(1, 8))
    carry_out(scene)
    scene.fleet.change(2, unschedulable=True)
    scene.tick()
    assert [(entry.change, entry.node) for entry in view(scene).entries] == [
        ("opened", "node-1"),
        ("marked", "node-1"),
        ("resolved", "node-1"),
        ("released", "node-1"),
        ("cordon", "node-2"),
    ]
    [opened, marked, _, released] = view(scene, "node-1").entries
    assert opened.text.startswith("fatal: gpu-lost on GPU 0000:3b:00: ")
    assert (marked.text, released.text) == (
        "quarantine: gpu-lost on GPU 0000:3b:00",
        "quarantine: gpu-lost on GPU 0000:3b:00 (proven)",
    )
    assert [entry.change for entry in view(scene, opened.incident).entries] == ["opened", "resolved"]
    assert view(scene, "node-77").entries == ()
    assert view(scene, since=1.0).entries[-1].change == "cordon"
    assert len(view(scene, since=1.0).entries) == 1


def test_a_release_is_a_change_once_it_is_observed_and_a_refused_one_is_named(scene: Scene) -> None:
    scene.tick()
    scene.handler(CALLER, report(1, 7, finding()))
    carry_out(scene)
    scene.handler(CALLER, report(1, 8))
    planner, fleet = scene.fleet.planner, scene.fleet
    plan = fleet.issue()
    scene.history.plan_made(plan, fleet.now, acts=True)
    planner.unobserved_writes.record_error("uid-1", WriteError("nodes is forbidden", is_refused=True))
    for _ in range(2):
        scene.tick(400.0)
        scene.history.plan_made(fleet.plan(), fleet.now, acts=True)
    fleet.write(plan)
    scene.tick()
    scene.plan()
    *_, refused, resolved, released = view(scene, "node-1").entries
    assert refused.text == (
        "gpu-lost on GPU 0000:3b:00 is not released: the write that removes the mark is refused: nodes is forbidden"
    )
    assert [entry.change for entry in (refused, resolved, released)] == ["changed", "resolved", "released"]
    assert released.text == "quarantine: gpu-lost on GPU 0000:3b:00 (proven)"
    [recorded] = rows(scene.path, "SELECT at FROM note WHERE kind = 'released'")
    assert float(recorded) > fleet.wall - 20.0


def test_a_mark_that_an_operator_removes_has_no_earlier_reason(scene: Scene) -> None:
    scene.tick()
    scene.handler(CALLER, report(1, 7, finding()))
    carry_out(scene)
    scene.handler(CALLER, report(1, 8))
    fleet = scene.fleet
    # The release is planned, and its fault is back before it is written.
    scene.history.plan_made(fleet.plan(), fleet.now, acts=True)
    scene.handler(CALLER, report(1, 9, finding("gpu-ecc"), finding()))
    carry_out(scene)
    fleet.change(1, annotations={}, taints=())
    scene.tick()
    released = [text for change, text in changes(scene, "node-1") if change == "released"]
    assert "quarantine: gpu-lost on GPU 0000:3b:00" in released


def test_a_mark_of_a_device_is_a_change_of_its_node(scene: Scene) -> None:
    scene.fleet.publish(1)
    scene.tick()
    scene.handler(CALLER, report(1, 7, finding()))
    carry_out(scene)
    assert scene.fleet.rules
    scene.handler(CALLER, report(1, 8))
    carry_out(scene)
    assert [change for change, _ in changes(scene, "node-1")] == ["opened", "marked", "resolved", "released"]


def test_an_action_has_a_begin_and_an_end_that_a_restart_does_not_repeat(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    request = "ada at 2026-11-21T10:00:00Z"
    findings = FindingKey("gpu-lost", "gpu/0000:3b:00"), FindingKey("gpu-ecc", "gpu/0000:3b:00")
    clear = NodeAction(ActionKind.CLEAR, "node-1", "uid-1", request, 1, incident="i", findings=findings)
    detach = NodeAction(ActionKind.DETACH_GPUS, "node-2", "uid-2", request, 1, gpus=("5",), seconds=1800)
    attach = replace(detach, request="bob at 2026-11-21T10:01:00Z", gpus=(), seconds=0)
    running, succeeded = ActionState.RUNNING, ActionState.SUCCEEDED
    stored = [
        [],
        [clear, detach],
        [replace(clear, state=running), replace(detach, state=running)],
        [
            replace(clear, state=ActionState.FAILED, message="its condition holds now"),
            replace(detach, state=succeeded, message="detached"),
            replace(attach, state=ActionState.UNKNOWN, message="the agent did not answer in time"),
        ],
    ]
    for actions in (*stored, stored[-1]):
        scene = Scene(path)  # as after a restart
        scene.actions = actions
        scene.tick()
        scene.writer.close()
    about = "clear gpu-lost on GPU 0000:3b:00 and 1 more finding"
    of_incident = [
        ("action", f"the agent is asked to {about}, by {request}"),
        ("action", f"the request to {about} has failed: its condition holds now"),
    ]
    assert changes(scene, "i") == changes(scene, "node-1") == of_incident
    assert [text for _, text in changes(scene, "node-2")] == [
        f"the agent is asked to detach from GPU 5 for 30 min, by {request}",
        "the request to detach from GPU 5 for 30 min has succeeded: detached",
        "the agent is asked to attach to all GPUs again, by bob at 2026-11-21T10:01:00Z",
        "the request to attach to all GPUs again has an unknown result: the agent did not answer in time",
    ]
    assert len(scene.notes("action")) == 7


def test_decisions_of_operators_have_their_names_and_times(scene: Scene) -> None:
    scene.tick()
    planner = scene.fleet.planner
    planner.paused = "paused by alice at 2026-11-21T09:12:33Z: a bad driver"
    scene.decisions = {"i": OperatorDecision("i", acknowledged="bob")}
    scene.tick()
    planner.paused, scene.resumed = "", "resumed by bob at 2026-11-21T10:12:33Z"
    clear, statement = "eve at 2026-11-21T10:00:00Z", FalseAlarm("eve", "2026-11-21T10:00:00Z", "a sensor")
    scene.decisions = {"i": OperatorDecision("i", "bob", clear, false_alarm=statement)}
    scene.tick()
    statement = FalseAlarm("ann", "2026-11-21T11:00:00Z", "a real fault", withdrawn=True)
    scene.decisions = {"i": OperatorDecision("i", "bob", clear, false_alarm=statement)}
    scene.tick()
    scene.fleet.change(2, annotations={HOLD_ANNOTATION: "unmarked by carol: a false alarm"})
    scene.tick()
    scene.fleet.change(2, annotations={})
    scene.tick()
    planner.remove_node("uid-0")
    scene.tick()
    assert changes(scene) == [
        ("paused", "paused by alice at 2026-11-21T09:12:33Z: a bad driver"),
        ("acknowledged", "acknowledged by bob"),
        ("resumed", "resumed by bob at 2026-11-21T10:12:33Z"),
        ("cleared", "clear requested by eve at 2026-11-21T10:00:00Z"),
        ("false-alarm", "recorded as a false alarm by eve at 2026-11-21T10:00:00Z: a sensor"),
        ("false-alarm", "false alarm withdrawn by ann at 2026-11-21T11:00:00Z: a real fault"),
        ("hold", "hold: unmarked by carol: a false alarm"),
        ("hold", "hold is removed"),
        ("deleted", "the Node was deleted"),
    ]


def test_a_changed_policy_names_the_values_also_after_a_restart(scene: Scene) -> None:
    scene.tick()
    planner = scene.fleet.planner
    planner.set_policy(replace(planner.policy, pause=True))
    scene.tick()
    scene.tick()
    assert changes(scene) == [("policy", "another policy is in use: pause: false → true")]
    again = Scene(scene.path)
    again.fleet.wall = scene.fleet.wall + 60.0
    again.fleet.planner.set_policy(replace(planner.policy, pause=True))
    again.tick()
    again.fleet.planner.set_policy(replace(planner.policy, pause=False))
    again.tick()
    assert [text for _, text in changes(again)][1:] == ["another policy is in use: pause: true → false"]


def test_several_changes_of_a_policy_are_listed(scene: Scene) -> None:
    scene.tick()
    rules = (ModeRule(Mode.ENFORCE, check="gpu-lost"),)
    scene.fleet.planner.set_policy(replace(scene.fleet.planner.policy, pause=True, modes=rules))
    scene.tick()
    [entry] = view(scene).entries
    assert entry.text == "another policy is in use, with 2 changes"
    assert entry.details == (
        "modeRules: added {check: gpu-lost, marks: [quarantine, suspect], mode: enforce}",
        "pause: false → true",
    )


def test_a_large_table_of_locations_is_a_digest() -> None:
    locations = tuple(NodeLocation(f"node-{number}", {"rack": "r"}) for number in range(7_500))
    text = policy_text(replace(AT_ONCE, locations=locations))
    assert "7500 items, digest " in text
    assert len(text) < 8_000


def test_a_policy_that_an_earlier_version_recorded_with_other_fields_is_no_change() -> None:
    before = '{"budget.check.checks":"[\\"*\\"]","diagnosis.weak_share":"0.25","pause":"true"}'
    change = RecordedChange(1.0, NoteKind.POLICY, "", "", policy_text(Policy()), before, "")
    assert history_module.history_view([change], "", 0.0, 2.0, recorded_since=0.0).entries == ()


def test_a_long_change_of_a_policy_is_cut_between_two_words(scene: Scene) -> None:
    scene.tick()
    rules = (ModeRule(Mode.OBSERVE, check=" ".join(["gpu-lost"] * 36)),)
    scene.fleet.planner.set_policy(replace(scene.fleet.planner.policy, modes=rules))
    scene.tick()
    [(_, text)] = changes(scene)
    assert text.endswith(" [quarantine,…")
    assert len(text) <= 400


def test_the_paths_of_a_policy_are_those_of_its_file() -> None:
    policy = Policy(pools=(Pool("a", {"y": "1", "x": "2"}),))
    values = msgspec.json.decode(policy_text(policy), type=dict[str, str])
    assert values["soak.initial"] == "600.0"
    assert values["gracePeriod.sharedHardware"] == "90.0"
    assert values["staleNodes.freezeAbove"] == "0.1"
    assert values["defaultMode"] == '"observe"'
    assert values["pools"] == '[{"labels":{"x":"2","y":"1"},"name":"a"}]'


def test_notes_of_another_version_are_left_out(scene: Scene) -> None:
    scene.tick()
    scene.writer.close()
    store = HistoryStore(str(scene.path))
    for kind in set(NoteKind) - {NoteKind.GAP}:
        store.add([HistoryNote(scene.fleet.wall, kind, "x", "node-1", '{"unknown": [1'), ], 0.0)  # fmt: skip
    store.close()
    assert {change for change, _ in changes(scene)} <= {"paused", "resumed"}


def test_only_the_latest_changes_are_shown(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MAX_ENTRIES", 3)
    scene.tick()
    for number in range(5):
        scene.fleet.change(2, annotations={HOLD_ANNOTATION: f"{number}"})
        scene.tick()
    shown = view(scene)
    assert ([entry.text for entry in shown.entries], shown.is_complete) == (
        ["hold: 2", "hold: 3", "hold: 4"],
        False,
    )


def test_changes_beyond_the_rows_that_are_read_are_reported_as_left_out(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_module, "_ROWS", 2)
    scene.tick()
    for number in range(4):
        scene.fleet.change(2, annotations={HOLD_ANNOTATION: f"{number}"})
        scene.tick()
    shown = view(scene)
    assert [entry.text for entry in shown.entries] == ["hold: 2", "hold: 3"]
    assert not shown.is_complete


@pytest.mark.parametrize("days", [0.0, 0.5, 3.0, 9.5, 30.0])
def test_the_changes_since_a_time_are_found_between_removed_rows(scene: Scene, days: float) -> None:
    scene.tick()
    for number in range(40):
        scene.fleet.change(2, annotations={HOLD_ANNOTATION: f"{number}"})
        scene.tick(DAY / 4)
    scene.writer.close()
    with closing(sqlite3.connect(scene.path)) as connection:
        connection.execute("DELETE FROM node WHERE id % 3 = 1 AND id < 30")
        connection.commit()
        # The first row of a Node is no change.
        [recorded] = connection.execute(
            "SELECT count(*) FROM node AS row WHERE at >= ? "
            "AND id > (SELECT min(id) FROM node WHERE uid = row.uid)",
            (scene.fleet.wall - days * DAY,),
        ).fetchone()
    assert len(view(scene, since=days * DAY).entries) == recorded


def test_a_worse_fault_and_a_withheld_mark_are_changes(scene: Scene) -> None:
    scene.tick()
    scene.fleet.planner.paused = "paused by alice"
    scene.handler(CALLER, report(1, 7, finding(health=Health.WARNING)))
    carry_out(scene)
    scene.handler(CALLER, report(1, 8, finding()))
    carry_out(scene)
    texts = [text for change, text in changes(scene, "node-1") if change == "changed"]
    assert texts == [
        "gpu-lost on GPU 0000:3b:00 is fatal now, it was warning",
        "gpu-lost on GPU 0000:3b:00 is not marked: paused by alice",
    ]


def test_a_missing_and_a_foreign_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="nothing is recorded yet"):
        read_history_view(str(tmp_path / "none"), "", 0.0, 1.0)
    (tmp_path / "directory").mkdir()
    problem = "directory: Is a directory: make it readable for the aggregator's user"
    with pytest.raises(HistoryError, match=problem):
        read_history_view(str(tmp_path / "directory"), "", 0.0, 1.0)
    (tmp_path / "text").write_text("no database")
    with pytest.raises(HistoryError, match="not a history"):
        read_history_view(str(tmp_path / "text"), "", 0.0, 1.0)


def test_the_error_of_a_damaged_file_has_what_becomes_of_it(scene: Scene) -> None:
    scene.tick()
    scene.writer.close()
    problem = "a page is malformed: the aggregator renames it at its next change"
    with pytest.raises(HistoryError, match=problem), reading(str(scene.path)):
        raise DamagedFileError("a page is malformed")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("report", "at"),
        ("node", "at"),
        ("note", "at"),
        ("note", "node"),
        ("note", "text"),
        ("shared", "text"),
    ],
)
@pytest.mark.parametrize("value", [b"\xff", "text"])
def test_a_row_of_another_type_is_read_or_refused_with_the_file(
    scene: Scene, table: str, column: str, value: str | bytes
) -> None:
    """SQLite does not enforce the types of columns: a damaged page may have any."""
    scene.tick()
    scene.handler(CALLER, report(1, 7, finding()))
    carry_out(scene)
    scene.writer.close()
    path = str(scene.path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
        connection.commit()
    faults = FaultHistory()
    asyncio.run(load_component_faults(path, faults))
    readings: tuple[Callable[[], object], ...] = (
        lambda: list(read_history(path).steps),
        lambda: view(scene),
        lambda: read_finding_periods(path, "uid-1", 0.0),
    )
    for read in readings:
        try:
            read()
        except HistoryError as error:
            assert path in str(error)
