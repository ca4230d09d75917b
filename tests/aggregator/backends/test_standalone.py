from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.aggregator.backends.standalone import StandaloneBackend
from nodeguard.aggregator.backends.standalone_state import StandaloneStateError, state_path
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.planner import Planner
from nodeguard.model.diagnosis import DiagnosisPolicy
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Mark
from nodeguard.model.policy import NodeLocation, Policy
from nodeguard.model.target import gpu_target
from nodeguard.wire.instruction import ClearFinding
from nodeguard.wire.report import VERSION, Inventory, Report, ReportedComponent, ReportedFinding
from tests.fleet.scene import AT_ONCE, CHECKS, finding, in_order

GPUS = {gpu_target(f"0000:{number:02x}:00"): ReportedComponent() for number in range(8)}
DAY = 86_400.0


class Scene:
    """An aggregator's world on a directory, begun anew as often as wanted, and the nodes that it hears."""

    def __init__(self, directory: Path, policy: Policy = AT_ONCE) -> None:
        self.path, self.policy = state_path(str(directory / "state")), policy
        self.mono, self.sequence = 1000.0, 0
        self.told: list[str] = []
        self.happened: list[tuple[str, str]] = []
        self.begin()

    def begin(self) -> None:
        """As after a kill: nothing is known but what the file holds."""
        self.planner, self.outbox = Planner(self.policy, CHECKS), InstructionOutbox()
        self.world = StandaloneBackend(
            self.path, self.planner, self.outbox,
            wake=lambda: None, on_incident=self._happened, log=self.told.append, now=lambda: self.now,
        )  # fmt: skip

    @property
    def now(self) -> Instant:
        return Instant(1e9 + self.mono, self.mono, "")

    def hear(self, name: str, *findings: ReportedFinding, parts: dict[str, ReportedComponent] = GPUS) -> None:
        self.sequence += 1
        health = max((one.health for one in findings), key=lambda one: one.rank, default=Health.OK)
        said = Report(
            version=VERSION, node=name, boot_id="b", sequence=self.sequence, health=health,
            findings=findings, passing=() if findings else (in_order(),), inventory=Inventory(components=parts),
        )  # fmt: skip
        self.world.node_reported(Caller(name, name), said)
        self.planner.record_report(name, said, self.now)

    async def turn(self, seconds: float = 2.0) -> None:
        self.mono += seconds
        self.planner.tick(self.now)
        self.world.apply_plan(self.planner.plan(self.now), self.now)
        await self.world.wait_idle()

    async def ends(self, name: str) -> None:
        """Let a node report that all is in order until its incidents are resolved."""
        for _ in range(1000):
            self.hear(name)
            await self.turn(30.0)
            if not any(one.is_open for one in self.planner.incidents[name].values()):
                return
        raise AssertionError(self.planner.incidents[name])

    def marked(self) -> dict[str, list[str]]:
        """Taints by node."""
        nodes = self.planner.state.nodes.values()
        return {node.name: [taint.key for taint in node.taints] for node in nodes if node.taints}

    def name(self) -> str:
        return next(one.name for told in self.planner.incidents.values() for one in told.values())

    def _happened(self, one: Incident) -> None:
        self.happened.append((one.node, one.state.value))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


QUARANTINED = {"gpu-1": [Mark.QUARANTINE.key]}


async def test_what_is_advised_is_told_once_and_outlives_a_kill(scene: Scene) -> None:
    scene.hear("gpu-1", finding())
    scene.hear("gpu-2")
    for _ in range(3):
        await scene.turn()
    assert scene.marked() == QUARANTINED
    assert scene.happened == [("gpu-1", "Marked")]
    scene.begin()
    scene.hear("gpu-1", finding())
    await scene.turn()
    assert scene.marked() == QUARANTINED
    assert scene.planner.stale_agents.expected == 2
    assert scene.happened == [("gpu-1", "Marked")]
    scene.hear("gpu-1")
    await scene.turn()
    await scene.turn()
    assert scene.marked() == {}
    assert scene.happened[-1] == ("gpu-1", "Resolved")
    assert scene.told == []


async def test_a_pause_outlives_a_kill(scene: Scene) -> None:
    await scene.world.pause("row 4 is rewired", "Ann")
    scene.begin()
    scene.hear("gpu-1", finding())
    await scene.turn()
    assert scene.marked() == {}
    incident = scene.planner.incident(scene.name())
    assert incident is not None
    assert (incident.state, incident.detail) == (IncidentState.WITHHELD, "paused by Ann: row 4 is rewired")
    await scene.world.resume("Bob")
    await scene.turn()
    assert scene.marked() == QUARANTINED
    scene.begin()
    assert scene.planner.paused == ""
    assert scene.told == ["no new marks are advised: paused by Ann: row 4 is rewired", "resumed by Bob"]


async def test_all_marks_are_taken_away_and_do_not_come_back(scene: Scene) -> None:
    scene.hear("gpu-1", finding())
    await scene.turn()
    await scene.world.unmark("Ann")
    await scene.turn()
    assert scene.marked() == {}
    scene.begin()
    scene.hear("gpu-1", finding())
    await scene.turn()
    assert scene.marked() == {}
    assert scene.planner.paused == "paused by Ann: all marks are removed"


async def test_what_people_decide_of_an_incident_is_asked_again_after_a_kill(scene: Scene) -> None:
    scene.hear("gpu-1", finding())
    await scene.turn()
    name = scene.name()
    await scene.world.acknowledge(name, "Ann")
    await scene.world.clear(name, "Bob")
    asked = scene.outbox.pending("gpu-1")
    assert [(one.check, one.target) for one in asked if isinstance(one, ClearFinding)] == [
        ("gpu-lost", "gpu/0000:3b:00")
    ]
    scene.begin()
    decision = scene.world.decisions()[name]
    assert (decision.acknowledged, decision.clear.partition(" at ")[0]) == ("Ann", "Bob")
    assert scene.outbox.pending("gpu-1") == asked


async def test_a_clear_does_not_count_for_a_fault_that_begins_later(scene: Scene) -> None:
    scene.hear("gpu-1", finding())
    await scene.turn()
    name = scene.name()
    await scene.world.acknowledge(name, "Ann")
    await scene.world.clear(name, "Bob")
    await scene.ends("gpu-1")
    assert scene.world.decisions()[name].clear.startswith("Bob at ")
    scene.hear("gpu-1", finding(age=0.0))
    await scene.turn()
    await scene.turn()
    assert scene.planner.incidents["gpu-1"][name].is_open
    scene.begin()
    assert scene.outbox.pending("gpu-1") == ()
    assert (scene.world.decisions()[name].acknowledged, scene.world.decisions()[name].clear) == ("Ann", "")


async def test_a_check_that_is_held_is_cleared_once_and_on_nobodys_old_word(tmp_path: Path) -> None:
    places = (NodeLocation("gpu-*", {"rack": "r1"}),)
    scene = Scene(tmp_path, replace(AT_ONCE, diagnosis=DiagnosisPolicy(), locations=places))

    async def misfires(nodes: range) -> None:
        for number in nodes:
            scene.hear(f"gpu-{number}", finding(age=0.0))
        for _ in range(6):
            await scene.turn(5.0)

    for _ in range(24):  # until it is known for ten minutes what is usual
        await scene.turn(30.0)
        for number in range(40):
            scene.hear(f"gpu-{number}")
    await misfires(range(6))
    [name] = scene.planner.incidents[""]
    assert "gpu-lost" in scene.planner.diagnosis.suppressed_checks
    await scene.world.acknowledge(name, "Ann")
    said = await scene.world.clear(name, "Bob")
    assert said.startswith(f"{name} is cleared: only new findings count")
    assert "gpu-lost" not in scene.planner.diagnosis.suppressed_checks
    assert scene.outbox.pending("") == ()
    await scene.turn()
    assert scene.planner.incidents[""][name].state == IncidentState.RESOLVED
    await misfires(range(10, 20))
    assert "gpu-lost" in scene.planner.diagnosis.suppressed_checks
    scene.begin()
    await scene.turn()
    assert "gpu-lost" in scene.planner.diagnosis.suppressed_checks
    assert scene.world.decisions()[name].acknowledged == "Ann"


async def test_of_what_is_not_there_nothing_is_decided(scene: Scene) -> None:
    with pytest.raises(OperatorActionError, match="incident gone not found: see nodeguard get incidents"):
        await scene.world.clear("gone", "Ann")


async def test_what_cannot_be_written_down_is_not_done(scene: Scene) -> None:
    scene.hear("gpu-1", finding())
    await scene.turn()
    new = Path(f"{scene.path}.new")
    new.mkdir()
    for decide in (scene.world.pause("why", "Ann"), scene.world.acknowledge(scene.name(), "Ann")):
        with pytest.raises(OperatorActionError, match=r"not done, .*: make room there, or make it writable"):
            await decide
    assert scene.planner.paused == ""
    assert scene.world.decisions() == {}
    scene.hear("gpu-2", finding())
    await scene.turn()
    await scene.turn()
    assert scene.marked().keys() == {"gpu-1", "gpu-2"}
    assert len(scene.told) == 1
    new.rmdir()
    await scene.turn()
    scene.begin()
    assert scene.marked().keys() == {"gpu-1", "gpu-2"}


def test_the_gpus_of_a_node_are_known_and_not_forgotten_with_what_cannot_be_read(scene: Scene) -> None:
    scene.hear("gpu-1")
    scene.hear("gpu-1", parts={})
    assert scene.planner.state.nodes["gpu-1"].gpus == 8
    scene.hear("login", parts={})
    assert scene.planner.state.nodes["login"].gpus == 0


async def test_a_node_that_has_left_is_expected_for_a_day(scene: Scene) -> None:
    scene.hear("gpu-1", finding())
    scene.hear("gpu-2")
    await scene.turn()
    scene.begin()
    await scene.turn()
    await scene.turn(DAY - 100.0)
    assert scene.planner.state.nodes.keys() == {"gpu-1", "gpu-2"}
    await scene.turn(200.0)
    assert scene.planner.state.nodes.keys() == {"gpu-1"}
    assert scene.told == ["gpu-2: no report for a day, no longer expected"]
    await scene.turn()
    scene.begin()
    assert scene.planner.state.nodes.keys() == {"gpu-1"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is damaged, and with it the operators' decisions: restore a copy, or move it away"),
        ('{"nodes": []}', "is damaged"),
        ('{"version": 2}', r"written by a newer version \(2\): upgrade, or move it away"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(scene: Scene, content: str, said: str) -> None:
    Path(scene.path).write_text(content)
    with pytest.raises(StandaloneStateError, match=f"decisions.json.*{said}"):
        scene.begin()
    assert Path(scene.path).read_text() == content


def test_nobody_else_may_read_it(scene: Scene) -> None:
    path = Path(scene.path)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert json.loads(path.read_text()) == {}


async def test_a_file_that_is_too_long_is_refused_with_a_remedy(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeguard.aggregator.backends.standalone_state.SIZE_LIMIT", 100)
    Path(scene.path).write_text(json.dumps({"pause": "x" * 100}))
    with pytest.raises(
        StandaloneStateError, match="has more than 100 bytes: restore a copy, or move it away"
    ):
        scene.begin()


async def test_decisions_that_come_together_are_all_durable(scene: Scene) -> None:
    scene.hear("gpu-1", finding())
    await scene.turn()
    name = scene.name()
    await asyncio.gather(
        scene.world.pause("why", "Ann"), scene.world.acknowledge(name, "Bob"), scene.world.clear(name, "Eve")
    )
    scene.begin()
    decision = scene.world.decisions()[name]
    assert scene.planner.paused == "paused by Ann: why"
    assert (decision.acknowledged, decision.clear.partition(" at ")[0]) == ("Bob", "Eve")
