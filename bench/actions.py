"""CPU time and API requests of the action loop at 7,500 nodes: with nothing to do, and with 100 clears.

`python bench/actions.py`. A tenth of the nodes has an open incident; a clear has one finding, and its agent
answers. A turn with nothing to do comes every ten seconds, and after each change of a decision or an action.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent.parent))

import msgspec

from nodeguard.aggregator.actions.loop import ActionBackend, ActionLoop
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.fleet.planner import Planner
from nodeguard.kube.action_object import decode_action
from nodeguard.kube.action_store import KubernetesActionStore
from nodeguard.kube.client import ApiClient
from nodeguard.model.incident import OperatorDecision
from nodeguard.wire.report import InstructionResult
from tests.fleet.scene import Fleet, finding
from tests.kube.model_api import NAMESPACE, ModelApi

NODES, FAULTS, CLEARS, TURNS = 7_500, 750, 100, 50


class CountingApi(ModelApi):
    """Counts the requests by method."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = Counter[str]()

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        """Answer as the API server."""
        self.requests[method] += 1
        return await super().request(method, path, **more)


class Backend:
    """Decisions on incidents that are recorded as open, and the store of actions."""

    def __init__(self, api: CountingApi, decisions: dict[str, OperatorDecision]) -> None:
        self.action_store = KubernetesActionStore(cast("ApiClient", api), NAMESPACE, lambda: None)
        self.action_store.synced()
        self._api, self._decisions, self._read = api, decisions, 0

    def missing_inputs(self) -> str:
        """Return that all is read."""
        return ""

    def decisions(self) -> dict[str, OperatorDecision]:
        """Return the decisions, as the backend of Kubernetes looks for them."""
        return {name: item for name, item in self._decisions.items() if item != OperatorDecision(name)}

    def open_decisions(self) -> dict[str, OperatorDecision]:
        """Return the clears, as the backend of Kubernetes looks for them."""
        return {name: item for name, item in self._decisions.items() if item.clear}

    def watch(self) -> None:
        """Receive the changes of actions."""
        for _, stored in self._api.history[self._read :]:
            self.action_store.changed(decode_action(msgspec.json.encode(stored)))
        self._read = len(self._api.history)


async def main() -> None:
    """Print the figures."""
    fleet = Fleet(NODES)
    for number in range(FAULTS):
        fleet.report(number, finding())
    fleet.carry_out(rounds=10)
    names = [incident.name for incident in fleet.planner.all_incidents()]
    decisions = {name: OperatorDecision(name) for name in names}
    api, outbox = CountingApi(), InstructionOutbox()
    backend = Backend(api, decisions)
    loop = ActionLoop(
        cast("ActionBackend", backend), outbox, cast("Planner", fleet.planner),
        may_write=lambda: True, now=lambda: fleet.now,
    )  # fmt: skip
    began = time.process_time()
    for _ in range(TURNS):
        await loop.turn()
    idle = (time.process_time() - began) / TURNS
    assert not api.requests
    print(f"{len(names)} open incidents; load {os.getloadavg()[0]:.1f}")
    print(f"nothing to do: {idle * 1e3:.2f} ms a turn ({idle * 10:.3f}% of a core), no request")
    decisions |= {name: OperatorDecision(name, clear=f"ada at {name}") for name in names[:CLEARS]}
    began = time.process_time()
    for _ in range(4):
        while await loop.turn():
            backend.watch()
        for uid in fleet.planner.reports:
            ids = [instruction.id for instruction in outbox.pending(uid)]
            outbox.acknowledge(uid, ids, [InstructionResult(name, done=True) for name in ids])
    spent = time.process_time() - began
    states = Counter(action.state.value for action in backend.action_store.actions())
    print(f"{CLEARS} clears: {dict(states)}; {spent * 1e3:.0f} ms, requests {dict(api.requests)}")
    began = time.process_time()
    for _ in range(TURNS):
        await loop.turn()
    print(f"{CLEARS} answered clears: {(time.process_time() - began) / TURNS * 1e3:.2f} ms a turn")


if __name__ == "__main__":
    asyncio.run(main())
