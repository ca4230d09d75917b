"""The places in which executors carry decisions out, as the conformance suite uses them.

Each has the nodes NODES. `desired` and `withdraw` give decisions to the executor, and `settled` waits until it has
nothing to do. `shown` returns the kinds of marks that the place shows, `record` what a successor reads back, and
`writes` a number that changes with each write. The others let something happen there.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from nodeguard.aggregator.backends.standalone import StandaloneBackend
from nodeguard.aggregator.backends.standalone_state import state_path
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.delivery.attempt import Destination
from nodeguard.executors.webhook.executor import RESYNC, WebhookExecutor
from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.model.decision import NodeDecision
from nodeguard.model.instant import Instant
from nodeguard.model.mark import MarkRecord
from tests.executors.receiver import MarkReceiver
from tests.fleet.scene import AT_ONCE, CHECKS
from tests.waiting import until_async

NODES = ("node-0", "node-1", "node-2")
NOW = 1_700_000_000.0


class Reports:
    """Records the refused decisions of an executor."""

    def __init__(self, refused: list[str]) -> None:
        self._refused = refused

    def marks_written(self, node: str, record: MarkRecord) -> None:
        pass

    def write_failed(self, node: str, error: WriteError) -> None:
        assert error.message
        if error.is_refused:
            self._refused.append(node)


class WebhookPlace:
    """A receiver of marks in front of a scheduler, on its own."""

    def __init__(self, receiver: MarkReceiver, stack: AsyncExitStack) -> None:
        self.refused: list[str] = []
        self._receiver, self._stack = receiver, stack
        self._wall = NOW
        self._epoch = 0

    async def start(self) -> None:
        self._epoch += 1
        self._executor = WebhookExecutor(
            Destination("scheduler", self._receiver.url, bytes),
            Reports(self.refused),
            wall=lambda: self._wall,
        )
        self._executor.begin(self._epoch)
        self._task = asyncio.create_task(self._executor.run())
        self._stack.callback(self._task.cancel)

    def key(self, name: str) -> str:
        return name

    def desired(self, *decisions: NodeDecision) -> None:
        self._executor.desired(decisions)

    def withdraw(self, name: str) -> None:
        self._executor.withdraw([name])

    async def settled(self) -> None:
        await until_async(self._is_settled)

    def _is_settled(self) -> bool:
        self._executor.tick()
        delivery = self._executor.delivery
        return not (delivery.waiting("scheduler") or delivery.in_transit("scheduler"))

    async def shown(self, name: str) -> set[str]:
        return self._receiver.drained.get(name, set())

    async def record(self, name: str) -> MarkRecord | None:
        return None

    async def writes(self) -> int:
        return self._receiver.requests

    async def refuse(self, *, refuses: bool) -> None:
        self._receiver.status = 422 if refuses else 200
        self._wall += 0 if refuses else RESYNC + 1

    async def lose_answers(self) -> None:
        self._receiver.lose = 1

    async def kill(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.start()

    async def change_by_others(self, name: str) -> None:
        self._receiver.drained.pop(name)
        self._wall += RESYNC + 1
        self._receiver.restart()


class AdvicePlace:
    """The state file of the standalone mode."""

    def __init__(self, directory: Path) -> None:
        self.refused: list[str] = []
        self._path = state_path(str(directory / "state"))
        self._mono = 1000.0
        self._start()

    def _start(self) -> None:
        planner = Planner(AT_ONCE, CHECKS)
        self._now = Instant(NOW + self._mono, self._mono, "")
        inputs = FleetInputs(planner, lambda: None, lambda: self._now)
        self._backend = StandaloneBackend(self._path, planner, inputs)

    def key(self, name: str) -> str:
        return name

    def desired(self, *decisions: NodeDecision) -> None:
        self._backend.desired(decisions)

    def withdraw(self, name: str) -> None:
        self._backend.withdraw([name])

    async def settled(self) -> None:
        self._mono += 60.0
        self._backend.publish(Plan(), Instant(NOW + self._mono, self._mono, ""))
        await self._backend.wait_idle()

    def _content(self) -> Any:
        return json.loads(Path(self._path or "").read_text()) if Path(self._path or "").exists() else {}

    async def shown(self, name: str) -> set[str]:
        record = await self.record(name)
        return set() if record is None else {mark.value for mark in record.marks}

    async def record(self, name: str) -> MarkRecord | None:
        advised = self._content().get("nodes", {}).get(name)
        return None if advised is None else decode_record(advised["state"])

    async def kill(self) -> None:
        await self._backend.close()
        self._start()
