"""Random histories of actions: two replicas are killed at any request, responses are lost, and watches are late.
No request is carried out twice, and none is forgotten.

`NODEGUARD_ACTION_HISTORIES=20000` sets the number of histories.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.detaches import requested_detach
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.action_store import ActionStoreError
from nodeguard.model.incident import IncidentState, OperatorDecision
from nodeguard.model.inventory import InventoryNode
from tests.aggregator.actions.replicas import (
    FAULTS,
    INCIDENTS,
    NODES,
    Agent,
    KilledError,
    Replica,
    SharedCluster,
    checks_of,
    observed_action,
)

pytestmark = pytest.mark.slow

HISTORIES = int(os.environ.get("NODEGUARD_ACTION_HISTORIES", "200"))
STEPS = 300


class World(SharedCluster):
    """A cluster, two replicas and the agents. requested: all clears of operators that ever were;
    answered: incidents with the answer to their present one; repeated: those with one that was requested before
    with the same text, which may be answered already or carried out again. carried_out_before: how often an incident was
    cleared before its first request of a text and an occurrence.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.requested: set[tuple[str, str]] = set()
        self.answered: set[str] = set()
        self.detaches: list[NodeAction] = []
        self.repeated: set[str] = set()
        self.carried_out_before: dict[tuple[str, str, int], int] = {}
        self.agents = {uid: Agent() for uid in NODES}
        self.replicas = [Replica(self), Replica(self)]
        self.replicas[0].is_leader = True

    async def step(self) -> None:
        number = self.random.randrange(2)
        replica = self.replicas[number]
        step = self.random.choice(_STEPS)
        if step == "turn":
            await self.turn(number)
        elif step == "detach":
            await self.detach(number)
        elif step in {"clear", "end", "later"}:
            self.change(step)
        else:
            self.move(step, number, replica)
        self.check()

    def move(self, step: str, number: int, replica: Replica) -> None:
        """Let a replica or the agents do something else than write."""
        match step:
            case "kill":
                self.replicas[number] = Replica(self)
            case "lead":
                # For a while both may believe that they lead, or none.
                replica.is_leader = not replica.is_leader
            case "read":
                self.read(replica)
            case "agent":
                for uid, agent in self.agents.items():
                    agent.exchange(number, replica, uid, is_reply_lost=self.random.random() < 0.2)
            case "work":
                for agent in self.agents.values():
                    agent.work()

    def change(self, step: str) -> None:
        """Let an operator clear an incident, an incident end or begin, or time pass."""
        name = self.random.choice(list(INCIDENTS))
        match step:
            case "clear":
                self.clear(name)
            case "end":
                self.end(name)
            case "later":
                self.now += self.random.choice([1.0, 60.0, 90_000.0])
                for behind in self.replicas:  # no watch is a day behind
                    behind.catch_up()

    async def detach(self, number: int) -> None:
        """Request a detach of GPUs at a replica, which may not lead."""
        self.now += 1.0
        uid = self.random.choice(NODES)
        action = requested_detach(
            InventoryNode(uid, f"node of {uid}"), (), self.random.choice([0, 60, 1800]), "", self.now
        )
        replica = self.replicas[number]
        replica.api.fault = (0, self.random.choice(("", "", *FAULTS)))
        try:
            await replica.action_store.reserve(action)
        except ActionStoreError:
            return  # the operator does not know whether it is stored
        except KilledError:
            self.replicas[number] = Replica(self)
            return
        self.detaches.append(action)

    async def turn(self, number: int) -> None:
        """Let a replica act; one of its requests may fail, or be its last."""
        replica = self.replicas[number]
        replica.api.fault = (-1, "")
        if self.random.random() < 0.3:
            replica.api.fault = (self.random.randrange(3), self.random.choice(FAULTS))
        try:
            await replica.turn()
        except KilledError:
            self.replicas[number] = Replica(self)

    def read(self, replica: Replica) -> None:
        """Let a replica read some of what has changed."""
        self.random.choice(
            [
                lambda: replica.watch(self.random.randrange(1, 4)),
                replica.read_requests,
                replica.read_incidents,
            ]
        )()

    def clear(self, name: str) -> None:
        """Clear an incident; repeated by an operator without a time, the text may be the same."""
        if self.incidents[name].is_open:
            by = self.random.choice(["ann", "bob", f"ann at {2027 + len(self.requested)}-01-15T08:00:00Z"])
            decision, occurrence = (
                OperatorDecision(name, clear=by),
                (name, by, self.incidents[name].occurrences),
            )
            if self.decisions.get(name) == decision:
                return
            self.decisions[name] = decision
            self.answered.discard(name)
            self.repeated.discard(name)
            if occurrence in self.carried_out_before:
                self.repeated.add(name)
            self.requested.add((name, by))
            self.carried_out_before.setdefault(occurrence, self.carried_out(name))

    def end(self, name: str) -> None:
        """Resolve an incident, or begin it again: the record of that removes its clear."""
        before = self.incidents[name]
        if before.is_open:
            self.incidents[name] = replace(before, state=IncidentState.RESOLVED)
        else:
            again = replace(before, state=IncidentState.MARKED, occurrences=before.occurrences + 1)
            self.incidents[name] = again
            self.decisions.pop(name, None)
        self.answered.discard(name)

    def carried_out(self, name: str) -> int:
        """Return how often the findings of an incident were cleared."""
        return self.agents[INCIDENTS[name]].cleared[checks_of(name)[0]]

    def stored(self) -> list[NodeAction]:
        decoded = [observed_action(stored).action for stored in self.api.objects.values()]
        return [action for action in decoded if action is not None]

    def check(self) -> None:
        """Check what holds at any time."""
        assert not any(count > 1 for agent in self.agents.values() for count in agent.carried_out.values())
        effective = Counter(
            (action.incident, action.uid, action.request, action.occurrence)
            for action in self.stored()
            if not action.state.is_withdrawn
        )
        assert not any(count > 1 for count in effective.values()), "two attempts of one request"
        clears = [action for action in self.stored() if action.incident]
        assert {(action.incident, action.request) for action in clears} <= self.requested
        unique = {name for name in self.decisions.keys() - self.repeated if self.incidents[name].is_open}
        answered = {name for name in unique if self.answer(name) is not None}
        assert answered >= self.answered, "an answer is lost, and its request would be carried out again"
        self.answered = answered

    def answer(self, name: str) -> NodeAction | None:
        """Return the action that answers the present request of an incident."""
        request, occurrence = self.decisions[name].clear, self.incidents[name].occurrences
        if self.decisions[name].cleared_at or occurrence == 1:
            occurrence = 0
        for action in self.stored():
            is_present = (action.incident, action.request) == (name, request)
            if is_present and action.occurrence == occurrence and action.state == ActionState.SUCCEEDED:
                return action
        return None

    async def settle(self) -> None:
        """Let everything work until nothing changes."""
        self.replicas[0].is_leader, self.replicas[1].is_leader = True, False
        for _ in range(12):
            for number, replica in enumerate(self.replicas):
                replica.api.fault = (-1, "")
                replica.catch_up()
                await replica.turn()
                for uid, agent in self.agents.items():
                    agent.exchange(number, replica, uid, is_reply_lost=False)
                    for _ in range(16):
                        agent.work()
            self.check()

    def check_settled(self) -> None:
        """Check that each request that exists is answered, and carried out once."""
        actions = self.stored()
        assert all(action.state.is_finished for action in actions)
        for name, decision in self.decisions.items():
            if not self.incidents[name].is_open:
                continue
            assert self.answer(name) is not None, f"{decision} is forgotten"
            occurrence = (name, decision.clear, self.incidents[name].occurrences)
            assert self.carried_out(name) > self.carried_out_before[occurrence], f"{decision} was not sent"
        states = {action.key: action.state for action in actions}
        for detach in self.detaches:
            is_carried_out = self.agents[detach.uid].carried_out[detach.key] == 1
            state = states.get(detach.key)
            if detach.deadline > self.now:
                assert (state, is_carried_out) == (ActionState.SUCCEEDED, True), f"{detach} is forgotten"
            assert state != ActionState.FAILED or not is_carried_out
            assert state != ActionState.SUCCEEDED or is_carried_out
        for replica in self.replicas:
            assert not any(replica.outbox.pending(uid) for uid in NODES)


_STEPS = (
    *("turn",) * 10, *("read",) * 16, *("agent",) * 6, *("work",) * 4, *("clear",) * 2, "end", "kill", "lead", "later", "detach",
)  # fmt: skip


async def _history(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        await world.step()
    await world.settle()
    world.check_settled()


@pytest.mark.parametrize("part", range(4))
def test_no_clear_is_carried_out_twice_or_forgotten(part: int) -> None:
    for seed in range(part, HISTORIES, 4):
        try:
            asyncio.run(_history(seed))
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error
