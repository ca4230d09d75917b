from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.backends.standalone import StandaloneBackend
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.leadership import Candidacy
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.aggregator.service import AggregatorService, pause_after, withdraw_writes
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.plan_loop import PlanLoop
from nodeguard.fleet.planner import Planner
from nodeguard.local.open_files import ConnectionCapacity
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.policy import GracePeriods
from nodeguard.model.refused_request import RefusedRequest
from nodeguard.wire.report import ReportedFinding
from tests.aggregator.test_report_handler import report
from tests.fleet.scene import AT_ONCE, CHECKS, finding
from tests.logs import LogLines
from tests.waiting import PATIENCE, until_async

# Without Kubernetes the uid of a node is its name.
CALLER = Caller("node-1", "node-1")


class RecordingBackend(StandaloneBackend):
    """A backend that records the plans and the candidacy. is_leader, missing: what it returns to the service.
    during_renewal: is called while the lease is renewed.
    """

    def __init__(self, planner: Planner, inputs: FleetInputs) -> None:
        super().__init__(None, planner, inputs)
        self.is_leader, self.missing, self.plans = True, "", list[Plan]()
        self.candidacy = Candidacy()
        self.during_renewal: Callable[[], object] = lambda: None
        self.refused: tuple[RefusedRequest, ...] = ()

    def missing_inputs(self) -> str:
        return self.missing

    async def renew_leadership(self, _now: float, candidacy: Candidacy) -> bool:
        self.candidacy = candidacy
        self.during_renewal()
        return self.is_leader

    def refused_requests(self) -> tuple[RefusedRequest, ...]:
        return self.refused

    def publish(self, plan: Plan, now: Instant) -> None:
        self.plans.append(plan)
        super().publish(plan, now)


class Scene:
    """A service on a recording backend, and a clock."""

    def __init__(self, on_detected: Callable[[ReportedFinding, float], object] = lambda *_: None) -> None:
        self.planner, outbox, self.wake = Planner(AT_ONCE, CHECKS), InstructionOutbox(), asyncio.Event()
        self.mono = 0.0
        self.inputs = FleetInputs(self.planner, self.wake.set, lambda: self.now)
        self.backend = RecordingBackend(self.planner, self.inputs)
        self.handler = ReportHandler(
            self.planner,
            self.inputs,
            outbox,
            lambda: self.now,
            self.backend.node_reported,
            on_detected=on_detected,
        )
        self.reloads = 0
        self.service = AggregatorService(
            self.planner, self.inputs, self.backend, self.handler, self._reload, self.wake
        )
        self.service.started_at = self.mono = 1000.0

    def _reload(self, _: Instant) -> None:
        self.reloads += 1

    @property
    def now(self) -> Instant:
        return Instant(1e9 + self.mono, self.mono, "")

    async def turn(self, seconds: float = 0.0) -> None:
        self.mono += seconds
        await self.service.turn(lambda: self.now)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def reason(scene: Scene) -> str:
    """Return why the service writes nothing; empty if it writes."""
    obstacle = scene.service.obstacle(scene.now)
    return obstacle.reason if obstacle is not None else ""


async def test_a_leader_is_inactive_until_most_agents_have_reported(scene: Scene) -> None:
    for number in range(10):
        scene.backend.node_reported(Caller(f"n{number}", f"n{number}"), report())
        scene.planner.state.add_agent(f"n{number}")
    scene.handler(Caller("n1", "n1"), report(fatal=True))
    await scene.turn(1.0)
    assert (scene.service.is_active, scene.backend.plans) == (False, [])
    assert reason(scene).startswith("1 of 10 agents have reported")
    for number in range(9):
        scene.handler(Caller(f"n{number}", f"n{number}"), report(2, fatal=number == 1))
    await scene.turn(1.0)
    assert scene.service.is_active
    assert [decision.name for decision in scene.backend.plans[0].decisions] == ["n1"]


async def test_after_a_minute_agents_without_a_report_are_stale_and_freeze_marks(scene: Scene) -> None:
    for number in range(10):
        scene.backend.node_reported(Caller(f"n{number}", f"n{number}"), report())
        scene.planner.state.add_agent(f"n{number}")
    await scene.turn(60.0)
    scene.handler(Caller("n1", "n1"), report(fatal=True))
    await scene.turn(1.0)
    assert scene.service.is_active
    assert scene.planner.stale_agents.frozen.startswith("9 of 10 agents do not report")
    assert not any(plan.decisions for plan in scene.backend.plans)


async def test_a_leader_without_reports_releases_the_lease_after_a_minute(scene: Scene) -> None:
    for number in range(10):
        scene.backend.node_reported(Caller(f"n{number}", f"n{number}"), report())
        scene.handler(Caller(f"n{number}", f"n{number}"), report())
    await scene.turn(1.0)
    assert scene.backend.candidacy.wanted
    wanted: list[bool] = []
    for _ in range(110):
        await scene.turn(1.0)
        wanted.append(scene.backend.candidacy.wanted)
    # The agents are stale after 45 s.
    assert wanted.index(False) in range(100, 110)


async def test_a_finding_that_arrives_while_the_lease_is_renewed_has_its_grace_period(scene: Scene) -> None:
    scene.planner.set_policy(replace(AT_ONCE, grace=GracePeriods(quarantine=30.0)))

    def receive() -> None:
        scene.mono += 5.0
        scene.handler(CALLER, replace(report(fatal=True), findings=(finding(age=0.0),)))

    scene.backend.during_renewal = receive
    await scene.turn(1.0)
    assert not any(plan.decisions for plan in scene.backend.plans)
    scene.backend.during_renewal = lambda: None
    await scene.turn(29.0)
    assert not any(plan.decisions for plan in scene.backend.plans)
    await scene.turn(1.0)
    assert len(scene.backend.plans[-1].decisions) == 1


async def test_a_follower_plans_and_writes_no_marks(scene: Scene) -> None:
    scene.backend.is_leader = False
    scene.handler(CALLER, report(fatal=True))
    await scene.turn(1.0)
    assert (scene.service.plans, scene.backend.plans) == (1, [])
    scene.backend.is_leader = True
    await scene.turn(0.1)
    assert len(scene.backend.plans[0].decisions) == 1


async def test_without_all_inputs_there_is_no_plan(scene: Scene) -> None:
    scene.backend.missing = "Nodes"
    scene.handler(CALLER, report(fatal=True))
    await scene.turn(100.0)
    assert scene.service.plans == 0
    assert reason(scene) == "not read yet: Nodes"


async def test_a_report_is_planned_for_at_once_and_the_policy_reloaded_each_second(scene: Scene) -> None:
    running = asyncio.create_task(scene.service.run())
    async with asyncio.timeout(PATIENCE):
        while not scene.service.plans:
            await asyncio.sleep(0.001)
        before = scene.service.plans
        scene.handler(CALLER, report(fatal=True))
        while scene.service.plans == before:
            await asyncio.sleep(0.001)
    running.cancel()
    assert scene.planner.tracker.decisions
    assert scene.reloads >= 1


async def test_a_pause_of_twice_its_duration_follows_a_plan(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(_: Instant, _limit: int | None) -> Plan:
        time.sleep(0.02)
        scene.planner.state.touch_fleet()
        scene.wake.set()
        return Plan()

    monkeypatch.setattr(scene.planner, "plan", slow)
    began = time.monotonic()
    running = asyncio.create_task(scene.service.run())
    await until_async(lambda: scene.service.plans > 5)
    running.cancel()
    assert time.monotonic() - began >= 5 * (0.02 + pause_after(0.02))


def test_a_plan_that_defers_marks_gives_the_executor_time() -> None:
    assert pause_after(0.01, is_partial=True) == pause_after(60.0, is_partial=True) == 0.5


def test_the_pause_after_a_plan_has_limits() -> None:
    assert pause_after(0.0) == 0.005
    assert pause_after(0.03) == 0.06
    assert pause_after(20.0) == 0.25


async def test_a_failed_plan_is_logged_once_and_the_loop_goes_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, log: LogLines
) -> None:
    scene.handler(CALLER, report(fatal=True))
    with monkeypatch.context() as broken:
        broken.setattr(scene.planner, "plan", lambda *_: 1 / 0)
        for _ in range(3):
            await scene.turn(1.0)
    assert (scene.service.errors, scene.service.plans, scene.backend.plans) == (3, 0, [])
    assert log.text() == [
        "ERROR internal error in the planner, please report it error=ZeroDivisionError: division by zero"
    ]
    await scene.turn(1.0)
    assert scene.backend.plans[0].decisions


async def test_an_error_of_a_listener_does_not_stop_the_plans(scene: Scene, log: LogLines) -> None:
    scene.service.plan_listeners.append(lambda _, __: 1 // 0)
    scene.handler(CALLER, report(fatal=True))
    await scene.turn(1.0)
    assert (scene.service.errors, len(scene.backend.plans)) == (1, 1)
    assert "internal error in a listener of plans, please report it" in log.messages()


async def test_a_fleet_that_exceeds_the_limit_on_connections_is_logged_once(
    scene: Scene, log: LogLines
) -> None:
    scene.service.capacity = ConnectionCapacity(64, 2)
    for number in range(4):
        scene.planner.update_node(InventoryNode(f"uid-{number}", f"node-{number}", gpus=8))
        await scene.turn(1.0)
    assert scene.service.capacity_problem.startswith("4 agents are expected, and an aggregator accepts 2")
    [line] = log.text()
    assert line.startswith("ERROR not all agents can connect reason=3 agents are expected")


async def test_an_active_service_issues_many_new_marks_in_several_plans(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.backend, "desired", lambda _: None)
    for number in range(70):
        caller = Caller(f"n{number}", f"n{number}")
        scene.backend.node_reported(caller, report())
        scene.handler(caller, report(fatal=True))
    scene.backend.is_leader = False
    await scene.turn(1.0)
    assert len(scene.planner.tracker.pending) == 70, "a plan that is not issued is whole"
    scene.backend.is_leader = True
    sizes = []
    for _ in range(3):
        scene.wake.clear()
        await scene.turn()
        sizes.append((len(scene.backend.plans[-1].decisions), scene.wake.is_set()))
    assert sizes == [(50, True), (20, False), (0, False)]


async def test_requested_removals_replace_the_marks_of_a_plan_until_none_is_left(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    monkeypatch.setattr(scene.backend, "marks_removed", removed.append)
    scene.handler(CALLER, report(fatal=True))
    await scene.turn(1.0)
    [uid] = scene.planner.state.nodes
    assert scene.planner.state.marks.observed(uid).present
    scene.inputs.fleet_decided("paused by ann", "ann")
    await scene.turn(1.0)
    assert scene.backend.plans[-1].decisions == ()
    assert not scene.planner.state.marks.observed(uid).present
    assert removed == []
    await scene.turn(1.0)
    assert (removed, scene.inputs.removal_requested_by) == (["ann"], "")
    await scene.turn(1.0)
    assert not scene.backend.plans[-1].decisions, "the pause sets no mark again"


async def test_a_changed_policy_withdraws_the_writes_that_have_not_begun(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        caller = Caller(f"n{number}", f"n{number}")
        scene.backend.node_reported(caller, report())
        scene.handler(caller, report(fatal=True))
    PlanLoop(scene.planner).step(scene.now)
    assert scene.planner.state.marks.pending_nodes() == ("n0", "n1")
    withdrawn: list[str] = []
    monkeypatch.setattr(scene.backend, "withdraw", withdrawn.extend)
    monkeypatch.setattr(scene.backend, "is_in_flight", lambda uid: uid == "n0")
    withdraw_writes(scene.planner, scene.backend)
    assert (withdrawn, scene.planner.state.marks.pending_nodes()) == (["n1"], ("n0",))
    scene.planner.set_policy(replace(AT_ONCE, pause=True))
    withdraw_writes(scene.planner, scene.backend)
    assert (withdrawn, scene.planner.state.marks.pending_nodes()) == (["n1", "n0"], ())
