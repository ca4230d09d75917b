from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.actions.loop import ActionLoop
from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.aggregator.backends.standalone import StandaloneBackend
from nodeguard.aggregator.backends.standalone_state import StandaloneStateError, state_path
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.plan_loop import PlanLoop
from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health
from nodeguard.model.incident import FalseAlarm, IncidentState, OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Mark
from nodeguard.model.policy import NodeLocation, Policy
from nodeguard.model.target import gpu_target
from nodeguard.wire.instruction import ClearFinding
from nodeguard.wire.report import VERSION, Inventory, Report, ReportedComponent, ReportedFinding
from tests.fleet.scene import AT_ONCE, CHECKS, finding, in_order
from tests.logs import LogLines
from tests.policies import diagnosis_policy

GPUS = {gpu_target(f"0000:{number:02x}:00"): ReportedComponent() for number in range(8)}
DAY = 86_400.0


class Scene:
    """A standalone backend on a directory, which can be restarted, and the nodes that report to it."""

    def __init__(self, directory: Path, policy: Policy = AT_ONCE) -> None:
        self.path, self.policy = state_path(str(directory / "state")), policy
        self.mono, self.sequence = 1000.0, 0
        self.restart()

    def restart(self) -> None:
        """Restart from the state file, as after a kill."""
        self.planner, self.outbox = Planner(self.policy, CHECKS), InstructionOutbox()
        self.inputs = FleetInputs(self.planner, lambda: None, lambda: self.now)
        self.backend = StandaloneBackend(self.path, self.planner, self.inputs)
        self.actions = ActionLoop(
            self.backend, self.outbox, self.planner, may_write=lambda: True, now=lambda: self.now
        )

    async def act(self) -> None:
        """Carry the actions on."""
        while await self.actions.turn():
            pass

    @property
    def now(self) -> Instant:
        return Instant(1e9 + self.mono, self.mono, "")

    def report(
        self, name: str, *findings: ReportedFinding, components: dict[str, ReportedComponent] = GPUS
    ) -> None:
        self.sequence += 1
        health = max(
            (finding.health for finding in findings), key=lambda health: health.rank, default=Health.OK
        )
        report = Report(
            version=VERSION, node=name, boot_id="b", sequence=self.sequence, health=health, findings=findings,
            passing=() if findings else (in_order(),), inventory=Inventory(components=components),
        )  # fmt: skip
        self.backend.node_reported(Caller(name, name), report)
        self.planner.record_report(name, report, self.now)

    async def turn(self, seconds: float = 2.0) -> None:
        self.mono += seconds
        self.planner.tick(self.now)
        for _ in range(2):  # the second plan has the incidents of the advice that the first one gives
            plan = PlanLoop(self.planner).step(self.now).plan
            self.backend.desired(plan.decisions)
            self.backend.publish(plan, self.now)
        await self.backend.wait_idle()

    async def resolve(self, name: str) -> None:
        """Report a healthy node until its incidents are resolved."""
        for _ in range(1000):
            self.report(name)
            await self.turn(30.0)
            if not any(incident.is_open for incident in self.planner.tracker.recorded.by_uid[name].values()):
                return
        raise AssertionError(self.planner.tracker.recorded.by_uid[name])

    def marked(self) -> dict[str, list[str]]:
        """Return the taints by node."""
        state = self.planner.state
        present = {node.name: state.marks.observed(uid).present for uid, node in state.nodes.items()}
        return {name: [mark.key for mark in marks] for name, marks in present.items() if marks}

    def name(self) -> str:
        """Return the name of the first incident."""
        by_node = self.planner.tracker.recorded.by_uid.values()
        return next(incident.name for by_name in by_node for incident in by_name.values())


def logged_incidents(log: LogLines) -> list[tuple[object, object]]:
    """Return node and state of the logged changes of incidents."""
    return [(line["node"], line["state"]) for line in log.lines if line["msg"] == "incident changed"]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


QUARANTINED = {"gpu-1": [Mark.QUARANTINE.key]}


async def test_an_advised_mark_is_logged_once_and_survives_a_restart(scene: Scene, log: LogLines) -> None:
    scene.report("gpu-1", finding())
    scene.report("gpu-2")
    for _ in range(3):
        await scene.turn()
    assert scene.marked() == QUARANTINED
    assert logged_incidents(log) == [("gpu-1", "Marked")]
    scene.restart()
    scene.report("gpu-1", finding())
    await scene.turn()
    assert scene.marked() == QUARANTINED
    assert scene.planner.stale_agents.expected == 2
    assert logged_incidents(log) == [("gpu-1", "Marked")]
    scene.report("gpu-1")
    await scene.turn()
    await scene.turn()
    assert scene.marked() == {}
    assert logged_incidents(log)[-1] == ("gpu-1", "Resolved")
    assert set(log.messages()) == {"incident changed"}


async def test_a_file_with_the_taints_of_advised_marks_is_read(scene: Scene) -> None:
    scene.report("gpu-1", finding())
    await scene.turn()
    path = Path(scene.path)
    content = json.loads(path.read_text())
    content["nodes"]["gpu-1"]["taints"] = [{"key": Mark.QUARANTINE.key, "effect": "NoSchedule"}]
    path.write_text(json.dumps(content))
    scene.restart()
    assert scene.marked() == QUARANTINED


async def test_an_advised_mark_is_not_advised_again(scene: Scene) -> None:
    scene.report("gpu-1", finding())
    await scene.turn()
    plan = scene.planner.plan(scene.now)
    assert plan.decisions == ()


async def test_a_pause_survives_a_restart(scene: Scene, log: LogLines) -> None:
    await scene.backend.pause("row 4 is rewired", "Ann")
    scene.restart()
    scene.report("gpu-1", finding())
    await scene.turn()
    assert scene.marked() == {}
    incident = scene.planner.incident(scene.name())
    assert incident is not None
    assert incident.state == IncidentState.WITHHELD
    assert re.fullmatch(r"paused by Ann at 20\S+Z: row 4 is rewired", incident.detail)
    await scene.backend.resume("Bob")
    await scene.turn()
    assert scene.marked() == QUARANTINED
    scene.restart()
    assert scene.planner.paused == ""
    assert log.text()[0] == f"INFO new marks are paused reason={incident.detail}"
    assert "INFO new marks are resumed by=Bob" in log.text()


async def test_the_time_for_which_an_aggregator_led_is_stored_each_minute(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: scene.now.wall)
    scene.restart()
    began = scene.now.mono
    assert scene.planner.diagnosis.voting.earlier_term[1] == began
    scene.report("gpu-1")
    for _ in range(10):
        await scene.turn(15.0)
    scene.restart()
    restored_began, ended = scene.planner.diagnosis.voting.earlier_term
    assert restored_began == began
    assert scene.mono - 60.0 <= ended <= scene.mono


async def test_removed_marks_are_not_set_again_after_a_restart(scene: Scene) -> None:
    scene.report("gpu-1", finding())
    await scene.turn()
    await scene.backend.unmark("Ann")
    await scene.turn()
    assert scene.marked() == {}
    scene.restart()
    scene.report("gpu-1", finding())
    await scene.turn()
    assert scene.marked() == {}
    assert re.fullmatch(r"paused by Ann at 20\S+Z: all marks are removed", scene.planner.paused)


async def test_one_node_is_not_unmarked_as_it_cannot_be_held(scene: Scene) -> None:
    scene.report("gpu-1", finding())
    await scene.turn()
    marked = scene.marked()
    with pytest.raises(OperatorActionError, match="the advice about gpu-1 would return at once"):
        await scene.backend.unmark_nodes(["gpu-1"], "a false alarm", "Ann")
    await scene.turn()
    assert scene.marked() == marked != {}


async def test_decisions_survive_a_restart_and_their_instructions_are_sent_again(scene: Scene) -> None:
    scene.report("gpu-1", finding())
    await scene.turn()
    name = scene.name()
    await scene.backend.acknowledge(name, "Ann")
    await scene.backend.clear(name, "Bob")
    assert scene.outbox.pending("gpu-1") == ()
    await scene.act()
    instructions = scene.outbox.pending("gpu-1")
    clears = [instruction for instruction in instructions if isinstance(instruction, ClearFinding)]
    assert [(clear.check, clear.target) for clear in clears] == [("gpu-lost", "gpu/0000:3b:00")]
    scene.restart()
    decision = scene.backend.decisions()[name]
    assert (decision.acknowledged, decision.clear.partition(" at ")[0]) == ("Ann", "Bob")
    await scene.act()
    assert scene.outbox.pending("gpu-1") == instructions


async def test_an_action_with_another_name_than_its_content_has_is_carried_on_once(scene: Scene) -> None:
    """Another version may have named it, or a person has edited the file."""
    scene.report("gpu-1", finding())
    await scene.turn()
    await scene.backend.clear(scene.name(), "Bob")
    await scene.act()
    path = Path(scene.path)
    state = json.loads(path.read_text())
    [action] = state["actions"].values()
    path.write_text(json.dumps({**state, "actions": {"clear-1": {**action, "state": "Reserved"}}}))
    scene.restart()
    assert [await scene.actions.turn() for _ in range(3)] == [True, False, False]
    assert len(scene.outbox.pending("gpu-1")) == 1


async def test_a_clear_and_a_false_alarm_do_not_count_for_a_later_fault(scene: Scene) -> None:
    scene.report("gpu-1", finding())
    await scene.turn()
    name = scene.name()
    await scene.backend.acknowledge(name, "Ann")
    await scene.backend.clear(name, "Bob")
    await scene.act()
    await scene.resolve("gpu-1")
    await scene.act()
    assert scene.backend.decisions()[name].clear.startswith("Bob at ")
    statement = FalseAlarm("Ann", "2026-11-21T10:00:00Z", "a sensor")
    recorded = await scene.backend.record_false_alarm(name, statement)
    assert recorded == f"{name} is recorded as a false alarm"
    scene.restart()
    assert scene.backend.decisions()[name].false_alarm == statement
    withdrawn = replace(statement, withdrawn=True)
    recorded = await scene.backend.record_false_alarm(name, withdrawn)
    assert recorded == f"{name} is no longer recorded as a false alarm"
    scene.restart()
    assert scene.backend.decisions()[name].false_alarm == withdrawn
    scene.report("gpu-1", finding(age=0.0))
    await scene.turn()
    await scene.turn()
    assert scene.planner.tracker.recorded.by_uid["gpu-1"][name].is_open
    await scene.act()
    assert scene.outbox.pending("gpu-1") == ()
    scene.restart()
    await scene.act()
    assert scene.outbox.pending("gpu-1") == ()
    assert scene.backend.decisions()[name] == OperatorDecision(name, "Ann")


async def test_a_clear_of_a_suppressed_check_does_not_count_for_a_later_suppression(tmp_path: Path) -> None:
    locations = (NodeLocation("gpu-*", {"rack": "r1"}),)
    scene = Scene(tmp_path, replace(AT_ONCE, diagnosis=diagnosis_policy(), locations=locations))

    async def report_false_alarms(nodes: range) -> None:
        for number in nodes:
            scene.report(f"gpu-{number}", finding(age=0.0))
        for _ in range(6):
            await scene.turn(5.0)

    for _ in range(24):  # twelve minutes without a finding
        await scene.turn(30.0)
        for number in range(40):
            scene.report(f"gpu-{number}")
    await report_false_alarms(range(6))
    [name] = scene.planner.tracker.recorded.by_uid[""]
    assert "gpu-lost" in scene.planner.diagnosis.suppressed_checks
    await scene.backend.acknowledge(name, "Ann")
    message = await scene.backend.clear(name, "Bob")
    assert message.startswith(f"{name} is cleared: only new findings count")
    assert "gpu-lost" not in scene.planner.diagnosis.suppressed_checks
    await scene.act()
    assert scene.outbox.pending("") == ()
    await scene.turn()
    assert scene.planner.tracker.recorded.by_uid[""][name].state == IncidentState.RESOLVED
    await report_false_alarms(range(10, 20))
    assert "gpu-lost" in scene.planner.diagnosis.suppressed_checks
    scene.restart()
    await scene.turn()
    assert "gpu-lost" in scene.planner.diagnosis.suppressed_checks
    assert scene.backend.decisions()[name].acknowledged == "Ann"


async def test_a_decision_about_an_unknown_incident_is_refused(scene: Scene) -> None:
    with pytest.raises(OperatorActionError, match="incident gone not found: see nodeguard get incidents"):
        await scene.backend.clear("gone", "Ann")


async def test_an_action_that_cannot_be_stored_is_not_done(scene: Scene, log: LogLines) -> None:
    scene.report("gpu-1", finding())
    await scene.turn()
    new = Path(f"{scene.path}.new")
    new.mkdir()
    for action in (scene.backend.pause("reason", "Ann"), scene.backend.acknowledge(scene.name(), "Ann")):
        with pytest.raises(OperatorActionError, match=r"not done, .*: make room there, or make it writable"):
            await action
    assert scene.planner.paused == ""
    assert scene.backend.decisions() == {}
    scene.report("gpu-2", finding())
    await scene.turn()
    await scene.turn()
    assert scene.marked().keys() == {"gpu-1", "gpu-2"}
    assert "ERROR cannot store the state" in " ".join(log.text())
    assert scene.backend.state_problem.endswith(": make room there, or make it writable")
    new.rmdir()
    await scene.turn()
    assert scene.backend.state_problem == ""
    scene.restart()
    assert scene.marked().keys() == {"gpu-1", "gpu-2"}


def test_an_inventory_without_gpus_does_not_change_the_gpus_of_a_node(scene: Scene) -> None:
    scene.report("gpu-1")
    scene.report("gpu-1", components={})
    assert scene.planner.state.nodes["gpu-1"].gpus == 8
    scene.report("login", components={})
    assert scene.planner.state.nodes["login"].gpus == 0


async def test_a_node_without_reports_is_expected_for_a_day(scene: Scene, log: LogLines) -> None:
    scene.report("gpu-1", finding())
    scene.report("gpu-2")
    await scene.turn()
    scene.restart()
    await scene.turn()
    await scene.turn(DAY - 100.0)
    assert scene.planner.state.nodes.keys() == {"gpu-1", "gpu-2"}
    await scene.turn(200.0)
    assert scene.planner.state.nodes.keys() == {"gpu-1"}
    assert "INFO node without a report for a day is no longer expected node=gpu-2" in log.text()
    await scene.turn()
    scene.restart()
    assert scene.planner.state.nodes.keys() == {"gpu-1"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is damaged, and with it the operators' decisions: restore a copy, or move it away"),
        ('{"nodes": []}', "is damaged"),
        ('{"version": 2}', r"written by a newer version \(2\): upgrade, or move it away"),
    ],
)
def test_the_error_names_an_unusable_file(scene: Scene, content: str, problem: str) -> None:
    Path(scene.path).write_text(content)
    with pytest.raises(StandaloneStateError, match=f"decisions.json.*{problem}"):
        scene.restart()
    assert Path(scene.path).read_text() == content


def test_only_the_owner_may_read_the_file(scene: Scene) -> None:
    path = Path(scene.path)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert json.loads(path.read_text()).keys() == {"led"}


async def test_a_file_that_is_too_long_is_refused_with_a_remedy(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeguard.aggregator.backends.standalone_state.SIZE_LIMIT", 100)
    Path(scene.path).write_text(json.dumps({"pause": "x" * 100}))
    with pytest.raises(
        StandaloneStateError, match="has more than 100 bytes: restore a copy, or move it away"
    ):
        scene.restart()


async def test_simultaneous_decisions_are_all_durable(scene: Scene) -> None:
    scene.report("gpu-1", finding())
    await scene.turn()
    name = scene.name()
    await asyncio.gather(
        scene.backend.pause("reason", "Ann"),
        scene.backend.acknowledge(name, "Bob"),
        scene.backend.clear(name, "Eve"),
    )
    scene.restart()
    decision = scene.backend.decisions()[name]
    assert re.fullmatch(r"paused by Ann at 20\S+Z: reason", scene.planner.paused)
    assert (decision.acknowledged, decision.clear.partition(" at ")[0]) == ("Bob", "Eve")
