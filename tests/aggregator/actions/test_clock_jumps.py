"""The action loop: jumps of the wall clock end no action, and keep none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import pytest

from nodeguard.aggregator.actions.loop import ActionLoop
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.act.detaches import requested_detach
from nodeguard.fleet.planner import Planner
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.wire.report import InstructionResult
from tests.fleet.scene import Fleet

HOUR, DAY = 3_600.0, 86_400.0
NODE = "uid-0"


class Actions:
    """A store, and a backend with it and without decisions."""

    def __init__(self) -> None:
        self.stored: dict[str, NodeAction] = {}

    @property
    def action_store(self) -> Actions:
        return self

    def is_synced(self) -> bool:
        return True

    def problem(self) -> str:
        return ""

    def missing_inputs(self) -> str:
        return ""

    def decisions(self) -> Mapping[str, OperatorDecision]:
        return {}

    def open_decisions(self) -> Mapping[str, OperatorDecision]:
        return {}

    def actions(self) -> Collection[NodeAction]:
        return self.stored.values()

    async def reserve(self, action: NodeAction) -> None:
        self.stored[action.key] = action

    async def advance(self, before: NodeAction, after: NodeAction) -> None:
        assert self.stored[before.key] == before
        self.stored[after.key] = after

    async def refresh(self) -> None:
        pass

    async def delete(self, action: NodeAction) -> None:
        del self.stored[action.key]


class Scene:
    def __init__(self) -> None:
        self.fleet, self.backend, self.outbox = Fleet(1), Actions(), InstructionOutbox()
        planner = cast("Planner", self.fleet.planner)
        self.loop = ActionLoop(
            self.backend, self.outbox, planner, may_write=lambda: True, now=lambda: self.now
        )

    @property
    def now(self) -> Instant:
        return self.fleet.now

    async def after(self, seconds: float, jump: float = 0.0) -> list[ActionState]:
        """Advance the time by some seconds, then the wall clock jumps. Returns the states of the actions."""
        self.fleet.after(seconds)
        self.fleet.wall += jump
        while await self.loop.turn():
            pass
        return [action.state for action in self.backend.stored.values()]


@pytest.mark.parametrize("jump", [0.0, -DAY, -HOUR, HOUR, DAY])
async def test_a_detach_waits_for_its_answer_as_long_as_it_says(jump: float) -> None:
    scene = Scene()
    await scene.after(1.0)
    node = scene.fleet.planner.node(NODE)
    assert node is not None
    await scene.backend.reserve(requested_detach(node, (), 1_800, "ann", scene.now.wall))
    assert await scene.after(10.0) == [ActionState.RUNNING]
    assert await scene.after(10.0, jump) == [ActionState.RUNNING]
    assert await scene.after(500.0) == [ActionState.RUNNING]
    assert await scene.after(100.0) == [ActionState.UNKNOWN]


@pytest.mark.parametrize("jump", [0.0, -DAY, -HOUR, HOUR, DAY])
async def test_a_finished_action_stays_for_a_day_that_has_passed(jump: float) -> None:
    scene = Scene()
    await scene.after(1.0)
    node = scene.fleet.planner.node(NODE)
    assert node is not None
    action = requested_detach(node, (), 1_800, "ann", scene.now.wall)
    await scene.backend.reserve(action)
    await scene.after(10.0)
    scene.outbox.acknowledge(NODE, [action.key], [InstructionResult(action.key, done=True, message="")])
    assert await scene.after(10.0) == [ActionState.SUCCEEDED]
    await scene.after(10.0, jump)
    assert await scene.after(DAY - HOUR) == [ActionState.SUCCEEDED]
    assert await scene.after(HOUR + max(0.0, -jump)) == []
