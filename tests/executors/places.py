"""The places in which executors carry decisions out, as the conformance suite uses them.

Each has the nodes NODES. `desired` and `withdraw` give decisions to the executor, and `settled` waits until it has
nothing to do. `shown` returns the kinds of marks that the place shows, `record` what a successor reads back, and
`writes` a number that changes with each write. The others let something happen there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from nodeguard.aggregator.backends.standalone import StandaloneBackend
from nodeguard.aggregator.backends.standalone_state import state_path
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.delivery.attempt import Destination
from nodeguard.executors.kube.cluster import ObservedCluster
from nodeguard.executors.webhook.executor import RESYNC, WebhookExecutor
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.kube import nodes as node_objects
from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.kube.executor import WriteResult
from nodeguard.model.decision import NodeDecision
from nodeguard.model.instant import Instant
from nodeguard.model.mark import HOLD_ANNOTATION, STATE_ANNOTATION, MarkRecord
from nodeguard.model.policy import MarkWrites
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node as node_object
from tests.executors.receiver import MarkReceiver
from tests.executors.slurm_model import FEATURE, OURS, Slurm, SlurmExecutor, SlurmNode, record_of
from tests.fleet.scene import AT_ONCE, CHECKS
from tests.kube.detour import Detour
from tests.kube.writing import Writing, writing
from tests.waiting import until_async

NODES = ("node-0", "node-1", "node-2")
NOW = 1_700_000_000.0


class Reports:
    """Records the refused decisions of an executor."""

    def __init__(self, refused: list[str]) -> None:
        self._refused = refused

    def observed(self, executor: str, node: str, revision: str) -> None:
        pass

    def failed(self, executor: str, node: str, revision: str, reason: str, *, is_refused: bool) -> None:
        assert is_refused
        assert reason
        self._refused.append(node)


class SlurmPlace:
    """The model of Slurm."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.slurm = Slurm()
        self._executor = SlurmExecutor(self.slurm, Reports(self.refused))

    def key(self, name: str) -> str:
        return name

    def desired(self, *decisions: NodeDecision) -> None:
        self._executor.desired(decisions)

    def withdraw(self, name: str) -> None:
        self._executor.withdraw([name])

    async def settled(self) -> None:
        while self._executor.step():
            pass

    async def shown(self, name: str) -> set[str]:
        node = self.slurm.node(name)
        kinds = {"quarantine"} if node.reason.startswith(OURS) else set()
        return kinds if FEATURE in node.features else kinds | {"suspect"}

    async def record(self, name: str) -> MarkRecord | None:
        return record_of(self.slurm.node(name))

    async def writes(self) -> int:
        return self.slurm.changes

    async def refuse(self, *, refuses: bool) -> None:
        self.slurm.refuses = refuses

    async def lose_answers(self) -> None:
        self.slurm.lose = 1

    async def kill(self) -> None:
        self._executor = SlurmExecutor(self.slurm, Reports(self.refused))

    async def change_by_others(self, name: str) -> None:
        self.slurm.nodes[name] = SlurmNode(comment=self.slurm.node(name).comment)

    async def set_by_operator(self, name: str) -> None:
        self.slurm.nodes[name] = SlurmNode(reason="cabling, by ops")

    async def is_set_by_operator(self, name: str) -> bool:
        return self.slurm.node(name).reason == "cabling, by ops"


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
        self._executor.tick()
        delivery = self._executor.delivery
        await until_async(lambda: not (delivery.waiting("scheduler") or delivery.in_transit("scheduler")))

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
        self._waiting: list[NodeDecision] = []
        self._start()

    def _start(self) -> None:
        planner = Planner(AT_ONCE, CHECKS)
        self._now = Instant(NOW + self._mono, self._mono, "")
        inputs = FleetInputs(planner, lambda: None, lambda: self._now)
        self._backend = StandaloneBackend(self._path, planner, inputs)

    def key(self, name: str) -> str:
        return name

    def desired(self, *decisions: NodeDecision) -> None:
        self._waiting += decisions

    def withdraw(self, name: str) -> None:
        self._waiting = [decision for decision in self._waiting if decision.node != name]

    async def settled(self) -> None:
        self._mono += 60.0
        decisions, self._waiting = tuple(self._waiting), []
        self._backend.apply_plan(Plan(decisions), Instant(NOW + self._mono, self._mono, ""))
        await self._backend.close()
        self._start()

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


class KubePlace:
    """Nodes of a real API server, behind a proxy."""

    def __init__(self, cluster: Cluster, far: ApiClient, near: ApiClient, detour: Detour) -> None:
        self.refused: list[str] = []
        self._cluster, self._far, self._near, self._detour = cluster, far, near, detour
        self._epoch = 0
        self._stack = AsyncExitStack()
        self._decisions: list[NodeDecision] = []
        self._uids: dict[str, str] = {}
        self._first_versions: dict[str, str] = {}

    async def start(self) -> None:
        for name in NODES:
            if name not in self._uids:
                made = self._cluster.api.post(node_objects.PATH, node_object(name))
                self._uids[name] = made["metadata"]["uid"]
        self._epoch += 1
        self._writing: Writing = await self._stack.enter_async_context(writing(self._far, self._epoch))

    async def stop(self) -> None:
        await self._stack.aclose()

    def key(self, name: str) -> str:
        return self._uids[name]

    def desired(self, *decisions: NodeDecision) -> None:
        self._decisions += decisions

    def withdraw(self, name: str) -> None:
        self._decisions = [item for item in self._decisions if item.name != name]

    async def settled(self) -> None:
        decisions: Iterable[NodeDecision] = self._decisions
        self._decisions = []
        cluster = ObservedCluster()
        for name in NODES:
            node = node_objects.decode_node(await self._near.request("GET", f"{node_objects.PATH}/{name}"))
            cluster.update_node(node)
            self._writing.nodes[name] = node
        for desired in cluster.writes(decisions, MarkWrites()).nodes:
            self._writing.executor.set_desired(desired)
        await self._writing.idle()
        self.refused += [
            outcome.desired.uid for outcome in self._writing.outcomes if outcome.result == WriteResult.REFUSED
        ]
        self._writing.outcomes.clear()

    async def _node(self, name: str) -> Any:
        return self._cluster.api.get(f"{node_objects.PATH}/{name}")

    async def shown(self, name: str) -> set[str]:
        taints = (await self._node(name))["spec"].get("taints", ())
        prefix = "nodeguard.dev/"
        return {taint["key"].removeprefix(prefix) for taint in taints if taint["key"].startswith(prefix)}

    async def record(self, name: str) -> MarkRecord | None:
        annotations = (await self._node(name))["metadata"].get("annotations", {})
        return decode_record(annotations.get(STATE_ANNOTATION, ""))

    async def writes(self) -> int:
        return sum([int((await self._node(name))["metadata"]["resourceVersion"]) for name in NODES])

    async def _patch(self, name: str, patch: dict[str, Any]) -> None:
        await self._near.request("PATCH", f"{node_objects.PATH}/{name}", body=patch, content_type=MERGE_PATCH)

    async def refuse(self, *, refuses: bool) -> None:
        for name in NODES:
            hold = "by the test" if refuses else None
            await self._patch(name, {"metadata": {"annotations": {HOLD_ANNOTATION: hold}}})

    async def lose_answers(self) -> None:
        self._detour.delay = 0.3
        asyncio.get_running_loop().call_later(0.2, self._lose)

    def _lose(self) -> None:
        self._detour.cut()
        self._detour.delay = 0.0
        self._detour.restore()

    async def kill(self) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()
        await self.start()

    async def change_by_others(self, name: str) -> None:
        await self._patch(name, {"spec": {"taints": None}})

    async def set_by_operator(self, name: str) -> None:
        taint = {"key": "example.com/cabling", "effect": "NoSchedule"}
        await self._patch(name, {"spec": {"unschedulable": True, "taints": [taint]}})

    async def is_set_by_operator(self, name: str) -> bool:
        spec = (await self._node(name))["spec"]
        keys = [taint["key"] for taint in spec.get("taints", ())]
        return spec.get("unschedulable") is True and "example.com/cabling" in keys
