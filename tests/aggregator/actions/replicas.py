"""A cluster with the objects of incidents and actions, replicas of the aggregator that are killed at any request,
and agents: what random histories of actions are made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, cast

import msgspec

from nodeguard.aggregator.actions.loop import ActionBackend, ActionLoop
from nodeguard.aggregator.outbox import InstructionOutbox, instructions
from nodeguard.fleet.planner import Planner
from nodeguard.kube.action_object import ObservedAction, decode_action
from nodeguard.kube.action_store import KubernetesActionStore
from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from nodeguard.model.action import ActionState
from nodeguard.model.action_store import ActionStoreError
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState, OperatorDecision, Symptom
from nodeguard.model.instant import Instant
from nodeguard.wire.instruction import (
    ClearFinding,
    Instruction,
    InstructionInbox,
    add_instructions,
    record_result,
)
from nodeguard.wire.report import InstructionResult
from tests.kube.model_api import NAMESPACE, ModelApi

NODES = ("uid-0", "uid-1")
INCIDENTS = {f"incident-{number}": NODES[number % 2] for number in range(3)}


@lru_cache(maxsize=10_000)
def _decode(data: bytes) -> ObservedAction:
    return decode_action(data)


def observed_action(stored: Mapping[str, Any]) -> ObservedAction:
    """Return what a replica reads of a stored object. A history reads most of them hundreds of times."""
    return _decode(msgspec.json.encode(stored))


class KilledError(BaseException):
    """The process was killed."""


class UnreliableApi:
    """Requests to the model that may fail. fault: what happens at the next requests: their number until the
    fault, and the fault.
    """

    def __init__(self, model: ModelApi) -> None:
        self._model = model
        self.fault: tuple[int, str] = (0, "")

    async def request(self, *arguments: Any, **keywords: Any) -> bytes:
        left, fault = self.fault
        self.fault = (left - 1, fault)
        kind = fault if left == 0 else ""
        match kind:
            case "lost request":
                raise ApiError(0, "Timeout", "no response")
            case "killed before":
                raise KilledError
        response = await self._model.request(*arguments, **keywords)
        match kind:
            case "lost response":
                raise ApiError(0, "Disconnected", "no response")
            case "killed after":
                raise KilledError
        return response


FAULTS = ("lost request", "lost response", "killed before", "killed after")


class SharedCluster:
    """What replicas and agents share. decisions: clears of operators, by name of the incident."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.api = ModelApi()
        self.nodes = set(NODES)
        self.incidents = {name: _incident(name, uid) for name, uid in INCIDENTS.items()}
        self.decisions: dict[str, OperatorDecision] = {}

    def check_sent(self, offered: tuple[Instruction, ...]) -> None:
        """Check that each instruction belongs to an action that was stored as running before."""
        running = {
            instruction.id
            for _, stored in self.api.history
            if stored.get("status", {}).get("state") == ActionState.RUNNING
            for instruction in _instructions(stored)
        }
        assert {instruction.id for instruction in offered} <= running


class FleetDouble:
    """What the action loop reads of a planner. nodes: uids. incidents, quarantined: the incidents, and the nodes
    with a recorded quarantine, as this replica knows them.
    """

    def __init__(self, nodes: Collection[str], incidents: Mapping[str, Incident] = {}) -> None:
        self._nodes = nodes
        self.incidents = incidents
        self.quarantined: Collection[str] = ()
        self.reports: dict[str, object] = {}
        self.state = self

    def drain_marks(self, uid: str) -> list[tuple[None, None]]:
        return [(None, None)] if uid in self.quarantined else []

    def node(self, uid: str) -> object:
        return uid if uid in self._nodes else None

    def incident(self, name: str) -> Incident | None:
        return self.incidents.get(name)


class ActionReader:
    """What each process of an aggregator reads of the stored actions, as late as the history wants."""

    def __init__(self, model: ModelApi) -> None:
        self.api = UnreliableApi(model)
        self.action_store = KubernetesActionStore(cast("ApiClient", self.api), NAMESPACE, lambda: None)
        for stored in model.objects.values():
            self.action_store.changed(observed_action(stored))
        self.action_store.synced()
        self._history = model.history
        self._position = len(model.history)

    def watch(self, events: int) -> None:
        """Receive the next events of the watch."""
        for kind, stored in self._history[self._position : self._position + events]:
            self._position += 1
            if kind == "DELETED":
                self.action_store.gone(stored["metadata"]["uid"])
            else:
                self.action_store.changed(observed_action(stored))

    def missing_inputs(self) -> str:
        return ""


class Replica(ActionReader):
    """One process of an aggregator. It reads requests and actions as late as the history wants."""

    def __init__(self, world: SharedCluster) -> None:
        super().__init__(world.api)
        self.world = world
        self.is_leader = False
        self.outbox = InstructionOutbox()
        self.fleet = FleetDouble(world.nodes, dict(world.incidents))
        self.read_requests()
        self.loop = ActionLoop(
            cast("ActionBackend", self),
            self.outbox,
            cast("Planner", self.fleet),
            may_write=lambda: self.is_leader,
            now=lambda: Instant(world.now, world.now, ""),
        )

    async def turn(self) -> None:
        """Act once. Raises KilledError."""
        with suppress(ActionStoreError):
            await self.loop.turn()

    def read_requests(self) -> None:
        """Read the objects of incidents: the clear, and whether it is recorded as open."""
        self._requests = dict(self.world.decisions)
        self._recorded = {name for name, incident in self.world.incidents.items() if incident.is_open}

    def decisions(self) -> Mapping[str, OperatorDecision]:
        return self._requests

    def open_decisions(self) -> Mapping[str, OperatorDecision]:
        return {name: decision for name, decision in self._requests.items() if name in self._recorded}

    def read_incidents(self) -> None:
        self.fleet.incidents = dict(self.world.incidents)

    def catch_up(self) -> None:
        self.read_requests()
        self.read_incidents()
        self.watch(len(self.world.api.history))


class Agent:
    """An agent, with its stored inbox. carried_out: by id of the instruction; cleared: by check."""

    def __init__(self) -> None:
        self.inbox = InstructionInbox()
        self.carried_out: Counter[str] = Counter()
        self.cleared: Counter[str] = Counter()
        self._offered: dict[int, tuple[str, ...]] = {}

    def exchange(self, number: int, replica: Replica, uid: str, *, is_reply_lost: bool) -> None:
        """Send a heartbeat to a replica, and take the instructions of its reply."""
        done = set(self.inbox.done)
        acknowledged = [name for name in self._offered.get(number, ()) if name in done]
        results = [result for result in self.inbox.results if result.id in acknowledged]
        replica.outbox.acknowledge(uid, acknowledged, results)
        offered = replica.outbox.pending(uid)
        replica.world.check_sent(offered)
        if not is_reply_lost:
            self._offered[number] = tuple(instruction.id for instruction in offered)
            self.inbox, _ = add_instructions(self.inbox, offered)

    def work(self) -> None:
        """Carry out one instruction."""
        if self.inbox.waiting:
            instruction = self.inbox.waiting[0]
            name = instruction.id
            self.carried_out[name] += 1
            if isinstance(instruction, ClearFinding):
                self.cleared[instruction.check] += 1
            self.inbox = record_result(self.inbox, InstructionResult(name, done=True, message="cleared"))


def checks_of(name: str) -> tuple[str, str]:
    return f"{name}-lost", f"{name}-ecc"


def _incident(name: str, uid: str) -> Incident:
    symptoms = tuple(Symptom(check, "node", Health.FATAL) for check in checks_of(name))
    return Incident(
        name, f"node of {uid}", uid, "node", "gpu-lost", Health.FATAL, IncidentState.MARKED, 1.0, 1.0,
        symptoms=symptoms,
    )  # fmt: skip


def _instructions(stored: Mapping[str, Any]) -> tuple[Instruction, ...]:
    action = observed_action(stored).action
    return instructions(action) if action is not None else ()
