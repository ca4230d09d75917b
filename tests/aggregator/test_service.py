from __future__ import annotations

import asyncio
import time

import pytest

from nodeguard.aggregator.backends.standalone import StandaloneBackend
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.aggregator.service import AggregatorService, pause_after
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.local.open_files import ConnectionCapacity
from nodeguard.model.instant import Instant
from nodeguard.model.node import Node
from tests.aggregator.test_report_handler import report
from tests.fleet.scene import AT_ONCE, CHECKS
from tests.waiting import PATIENCE, until_async

# Where there is no Kubernetes, a name is all there is.
ONE = Caller("node-1", "node-1")


class Watched(StandaloneBackend):
    """A world that remembers what it was asked to carry out, leads when it is told to, and knows little."""

    def __init__(self, planner: Planner, outbox: InstructionOutbox) -> None:
        super().__init__(
            None, planner, outbox, wake=lambda: None, on_incident=lambda _: None, log=lambda _: None
        )
        self.leads, self.lacks, self.plans = True, "", list[Plan]()

    def missing_inputs(self) -> str:
        return self.lacks

    async def renew_leadership(self, _now: float) -> bool:
        return self.leads

    def apply_plan(self, plan: Plan, now: Instant) -> None:
        self.plans.append(plan)
        super().apply_plan(plan, now)


class Scene:
    def __init__(self) -> None:
        self.planner, outbox, self.woken = Planner(AT_ONCE, CHECKS), InstructionOutbox(), asyncio.Event()
        self.world = Watched(self.planner, outbox)
        self.mono = 0.0
        self.hearing = ReportHandler(
            self.planner, outbox, lambda: self.now, self.woken.set, self.world.node_reported
        )
        self.reloads = 0
        self.service = AggregatorService(self.planner, self.world, self.hearing, self._reload, self.woken)
        self.service.started_at = self.mono = 1000.0

    def _reload(self, _: Instant) -> None:
        self.reloads += 1

    @property
    def now(self) -> Instant:
        return Instant(1e9 + self.mono, self.mono, "")

    async def turn(self, seconds: float = 0.0) -> None:
        self.mono += seconds
        await self.service.turn(self.now)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_nothing_is_carried_out_before_enough_is_heard_or_a_minute_is_over(scene: Scene) -> None:
    for number in range(10):
        scene.world.node_reported(Caller(f"n{number}", f"n{number}"), report())
        scene.planner.state.add_agent(f"n{number}")
    scene.hearing(Caller("n1", "n1"), report(fatal=True))
    await scene.turn(1.0)
    assert (scene.service.is_active, scene.world.plans) == (False, [])
    assert scene.service.inactive_reason(scene.now).startswith("1 of 10 agents have reported")
    for number in range(9):
        scene.hearing(Caller(f"n{number}", f"n{number}"), report(2, fatal=number == 1))
    await scene.turn(1.0)
    assert scene.service.is_active
    assert [one.name for one in scene.world.plans[0].nodes] == ["n1"]


async def test_after_a_minute_who_was_not_heard_is_silent_and_freezes(scene: Scene) -> None:
    for number in range(10):
        scene.world.node_reported(Caller(f"n{number}", f"n{number}"), report())
        scene.planner.state.add_agent(f"n{number}")
    await scene.turn(60.0)
    scene.hearing(Caller("n1", "n1"), report(fatal=True))
    await scene.turn(1.0)
    assert scene.service.is_active
    assert scene.planner.stale_agents.frozen.startswith("9 of 10 agents are stale")
    assert not any(plan.nodes for plan in scene.world.plans)


async def test_who_follows_plans_and_has_nothing_written(scene: Scene) -> None:
    scene.world.leads = False
    scene.hearing(ONE, report(fatal=True))
    await scene.turn(1.0)
    assert (scene.service.plans, scene.world.plans) == (1, [])
    scene.world.leads = True
    await scene.turn(0.1)
    assert len(scene.world.plans[0].nodes) == 1


async def test_who_does_not_know_the_world_yet_does_not_plan(scene: Scene) -> None:
    scene.world.lacks = "Nodes"
    scene.hearing(ONE, report(fatal=True))
    await scene.turn(100.0)
    assert scene.service.plans == 0
    assert scene.service.inactive_reason(scene.now) == "not read yet: Nodes"


async def test_news_are_planned_for_at_once_and_the_policy_is_looked_at_each_second(scene: Scene) -> None:
    running = asyncio.create_task(scene.service.run())
    async with asyncio.timeout(PATIENCE):
        while not scene.service.plans:
            await asyncio.sleep(0.001)
        before = scene.service.plans
        scene.hearing(ONE, report(fatal=True))
        while scene.service.plans == before:
            await asyncio.sleep(0.001)
    running.cancel()
    assert scene.planner.decisions
    assert scene.reloads >= 1


async def test_a_plan_that_takes_long_leaves_the_loop_to_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(_: Instant) -> Plan:
        time.sleep(0.02)
        scene.woken.set()
        return Plan()

    monkeypatch.setattr(scene.planner, "plan", slow)
    began = time.monotonic()
    running = asyncio.create_task(scene.service.run())
    await until_async(lambda: scene.service.plans > 5)
    running.cancel()
    # A rest of twice the time after each plan.
    assert time.monotonic() - began >= 5 * (0.02 + pause_after(0.02))


def test_who_was_frozen_while_it_planned_does_not_rest_for_twice_as_long() -> None:
    assert pause_after(0.0) == 0.005
    assert pause_after(0.03) == 0.06
    assert pause_after(20.0) == 1.0


async def test_a_plan_that_fails_ends_nothing_and_is_told_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    scene.service = AggregatorService(
        scene.planner, scene.world, scene.hearing, scene._reload, scene.woken, told.append
    )
    scene.hearing(ONE, report(fatal=True))
    with monkeypatch.context() as broken:
        broken.setattr(scene.planner, "plan", lambda _: 1 / 0)
        for _ in range(3):
            await scene.turn(1.0)
    assert (scene.service.errors, scene.service.plans, scene.world.plans) == (3, 0, [])
    assert told == ["internal error in the planner, please report it: ZeroDivisionError: division by zero"]
    await scene.turn(1.0)
    assert scene.world.plans[0].nodes


async def test_a_fleet_that_outgrows_the_limit_on_open_files_is_logged_once(scene: Scene) -> None:
    told: list[str] = []
    scene.service = AggregatorService(
        scene.planner, scene.world, scene.hearing, scene._reload, scene.woken, told.append
    )
    scene.service.capacity = ConnectionCapacity(64, 2)
    for number in range(4):
        scene.planner.update_node(Node(f"node-{number}", f"uid-{number}", gpus=8))
        await scene.turn(1.0)
    assert scene.service.capacity_problem.startswith("4 agents are expected, and an aggregator accepts 2")
    assert [line.partition(",")[0] for line in told] == ["3 agents are expected"]
