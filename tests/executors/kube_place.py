"""The Nodes of a real API server as a place of executors, with and without a scheduler that owns them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodeguard.aggregator.backends.kubernetes import KubernetesBackend
from nodeguard.aggregator.clock import monotonic
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.leadership import Candidacy
from nodeguard.aggregator.notifications.settings import MarkWebhook, NotificationSettings
from nodeguard.aggregator.notifications.webhooks import OwnerReports, Webhooks
from nodeguard.executors.owners import NodeOwners, OwnedNodes
from nodeguard.executors.webhook.executor import RESYNC
from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.kube import nodes as node_objects
from nodeguard.kube.client import MERGE_PATCH, ApiClient
from nodeguard.model.decision import NodeDecision
from nodeguard.model.instant import Instant
from nodeguard.model.mark import HOLD_ANNOTATION, STATE_ANNOTATION, MarkRecord
from nodeguard.model.policy import MarkWrites
from tests.controlplane.cluster import Cluster
from tests.controlplane.objects import node as node_object
from tests.executors.places import NODES, NOW, Reports
from tests.executors.receiver import MarkReceiver
from tests.fleet.cluster_planner import ClusterPlanner
from tests.fleet.scene import AT_ONCE, CHECKS
from tests.kube.detour import Detour


class RecordedInputs(FleetInputs):
    """Passes the reports of the backend on, and records them. failed: nodes with a decision that was dropped."""

    def __init__(self, planner: Planner, reports: Reports) -> None:
        super().__init__(planner, lambda: None)
        self._reports = reports
        self.failed: set[str] = set()

    def write_failed(self, name: str, error: WriteError) -> None:
        super().write_failed(name, error)
        self._reports.write_failed(name, error)

    def marks_failed(self, uid: str) -> None:
        super().marks_failed(uid)
        self.failed.add(uid)


class KubePlace:
    """Nodes of a real API server. The backend reaches it through a proxy, by the kubeconfig `far`."""

    owners = NodeOwners()

    def __init__(self, cluster: Cluster, far: Path, near: ApiClient, detour: Detour) -> None:
        self.refused: list[str] = []
        self._cluster, self._far, self._near, self._detour = cluster, far, near, detour
        self._pod = 0
        # The decisions that are not carried out yet, by uid.
        self._waiting: dict[str, NodeDecision] = {}
        self._uids: dict[str, str] = {}

    async def start(self) -> None:
        for name in NODES:
            if name not in self._uids:
                made = self._cluster.api.post(node_objects.PATH, node_object(name))
                self._uids[name] = made["metadata"]["uid"]
        self._pod += 1
        self._planner = ClusterPlanner(AT_ONCE, CHECKS, owners=self.owners)
        self._inputs = RecordedInputs(self._planner, Reports(self.refused))
        self._backend = KubernetesBackend(
            await ApiClient.connect(str(self._far)),
            "default",
            f"pod-{self._pod}",
            self._planner,
            self._inputs,
            self._planner.cluster,
        )
        await self._observe()
        while self._backend.watches.leader is None:
            await self._lead()
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        await self._backend.close()

    def key(self, name: str) -> str:
        return self._uids[name]

    def desired(self, *decisions: NodeDecision) -> None:
        self._inputs.failed.clear()
        self._waiting.update({decision.node: decision for decision in decisions})
        self._backend.desired(decisions)

    def withdraw(self, name: str) -> None:
        self._waiting.pop(self._uids[name], None)
        self._backend.withdraw([self._uids[name]])

    async def settled(self) -> None:
        epoch = self._backend.epoch
        while self._waiting:
            await self._lead()
            await self._observe()
            if self._backend.epoch != epoch:  # the lease was lost on a busy machine, and with it the writes
                epoch = self._backend.epoch
                self._backend.desired(self._waiting.values())
            carried = [
                uid
                for uid, decision in self._waiting.items()
                if uid in self._inputs.failed or self._planner.cluster.carries(decision, MarkWrites())
            ]
            for uid in carried:
                del self._waiting[uid]
            await asyncio.sleep(0.02)

    async def _lead(self) -> None:
        await self._backend.renew_leadership(monotonic(), Candidacy(wanted=True))

    async def _observe(self) -> None:
        """Observe the Nodes, as a watch does."""
        for name in NODES:
            content = await self._near.request("GET", f"{node_objects.PATH}/{name}")
            self._backend.watches.node_changed(node_objects.decode_node(content))

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
        await self._observe()

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
        await self._backend.close()
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


class OwnerPlace(KubePlace):
    """A receiver of marks that owns the Nodes of a real API server, which has their records."""

    def __init__(
        self, cluster: Cluster, far: Path, near: ApiClient, detour: Detour, receiver: MarkReceiver
    ) -> None:
        super().__init__(cluster, far, near, detour)
        self._receiver = receiver
        self._wall = NOW
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.owners = NodeOwners([("scheduler", OwnedNodes())])
        await super().start()
        backend, planner, inputs = self._backend, self._planner, self._inputs
        settings = NotificationSettings(
            (), None, (MarkWebhook("scheduler", self._receiver.url, owns=OwnedNodes()),)
        )
        self.webhooks = Webhooks(
            settings,
            lambda: Instant(self._wall, monotonic(), ""),
            owners=self.owners,
            reports=lambda name: OwnerReports(name, self.owners, planner, inputs, backend.marks_accepted),
        )
        self._tasks.append(asyncio.create_task(self.webhooks.run()))
        self._mirror()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().stop()

    async def kill(self) -> None:
        await self.stop()
        await self.start()

    def _mirror(self) -> None:
        self.webhooks.mirror.plan_made(self._planner, self._backend.epoch)

    def desired(self, *decisions: NodeDecision) -> None:
        for decision in decisions:
            self._planner.state.record_issued(decision.node, decision.records)
        self._mirror()
        super().desired(*decisions)

    def withdraw(self, name: str) -> None:
        self._planner.state.record_failed(self._uids[name])
        super().withdraw(name)

    async def settled(self) -> None:
        delivery = self.webhooks.mirror.executors["scheduler"].delivery
        while self._waiting or delivery.waiting("scheduler") or delivery.in_transit("scheduler"):
            await self.turn()
            for uid, decision in list(self._waiting.items()):
                if uid in self.refused or self._planner.cluster.carries(decision, MarkWrites()):
                    del self._waiting[uid]

    async def turn(self) -> None:
        """Do what the service does in a turn, without a plan."""
        await self._lead()
        await self._observe()
        self._mirror()
        self.webhooks.mirror.executors["scheduler"].tick()
        await asyncio.sleep(0.02)

    def in_effect(self, name: str) -> set[str]:
        """Return the kinds of marks that count as in effect."""
        return {mark.value for mark in self._planner.state.marks_in_effect(self._uids[name]).node.marks}

    def charged(self, name: str) -> bool:
        """Return whether the node is charged to the budget of the fleet."""
        usage = self._planner.state.usage.get(self._uids[name])
        return usage is not None and None in usage.quarantined

    async def shown(self, name: str) -> set[str]:
        spec = (await self._node(name))["spec"]
        assert not [item for item in spec.get("taints", ()) if item["key"].startswith("nodeguard.dev/")]
        return self._receiver.drained.get(name, set())

    async def record(self, name: str) -> MarkRecord | None:
        record = await super().record(name)
        return None if record is None else replace(record, accepted=None)

    async def writes(self) -> int:
        return await super().writes() + self._receiver.requests

    async def refuse(self, *, refuses: bool) -> None:
        self._receiver.status = 422 if refuses else 200
        if not refuses:
            self.refused.clear()
            self._wall += RESYNC + 1

    async def lose_answers(self) -> None:
        self._receiver.lose = 1
        await super().lose_answers()

    async def change_by_others(self, name: str) -> None:
        self._receiver.drained.pop(name)
        self._receiver.restart()
        self._wall += RESYNC + 1
        self.webhooks.mirror.executors["scheduler"].tick()
