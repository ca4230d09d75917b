"""Random histories of drains: two replicas are killed at any request, answers are lost, watches are late,
budgets change, and pods end by themselves. No pod outside of a recorded set is evicted, a set that begins ends or is
reported, and a set that its budget forbade when it was confirmed is not begun.

`NODEGUARD_DRAIN_HISTORIES=10000` sets the number of histories.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest
from msgspec.structs import replace

from nodeguard.model.action import ActionState
from nodeguard.model.drain import DrainMode
from tests.aggregator.actions.drain_replicas import (
    GANG,
    LIMIT,
    NODE,
    OTHER,
    DrainReplica,
    PodCluster,
    candidate,
    unfinished,
)
from tests.aggregator.actions.replicas import FAULTS, KilledError

pytestmark = pytest.mark.slow

HISTORIES = int(os.environ.get("NODEGUARD_DRAIN_HISTORIES", "200"))
STEPS = 150


class History(PodCluster):
    """A cluster with two replicas. is_calm: nothing but nodeguard changes pods and budgets."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.is_calm = seed % 2 == 0
        self.minimum = self.random.choice([0, 0, 2, 4])
        self.sync()
        self.replicas = [DrainReplica(self), DrainReplica(self)]
        self.replicas[0].is_leader = True

    async def step(self) -> None:
        number = self.random.randrange(2)
        replica = self.replicas[number]
        match self.random.choice(_STEPS):
            case "turn":
                await self.turn(number)
            case "lead":
                self.hand_over(replica)
            case "kill":
                self.replicas[number] = DrainReplica(self)
            case "watch":
                replica.watch(self.random.randrange(1, 4))
            case "read":
                replica.read()
            case "later":
                self.now += self.random.choice([0.1, 1.0, 5.0, 30.0])
                self.sync()
                for behind in self.replicas:  # no watch is seconds behind
                    behind.catch_up()
            case "fault":
                self.toggle_fault()
            case "pods" if not self.is_calm:
                self.change_pods()

    def hand_over(self, replica: DrainReplica) -> None:
        """Let a replica lead, or none: the lease ends the requests of the earlier leader. A takeover takes longer
        than a list of the API server is late.
        """
        is_next = not replica.is_leader
        for other in self.replicas:
            other.is_leader = False
        replica.is_leader = is_next
        replica.read()

    def toggle_fault(self) -> None:
        """Let a fault begin, be blocked, or end; or an operator change the mode."""
        node = self.random.choice([NODE, NODE, OTHER])
        present = self.candidates.get(node)
        if present is None:
            self.candidates[node] = candidate(node, self.now)
        elif self.random.random() < 0.3:
            del self.candidates[node]
        else:
            self.candidates[node] = replace(present, blocker="" if present.blocker else "paused")
        if self.random.random() < 0.1:
            self.mode = DrainMode.OBSERVE if self.mode == DrainMode.ENFORCE else DrainMode.ENFORCE

    def change_pods(self) -> None:
        """Let a pod change, end or come, or its budget change."""
        uid = self.random.choice([*self.pods, ""])
        match self.random.randrange(4):
            case 0 if uid:
                self.change(uid)
            case 1 if uid and uid not in self.ends:
                self.change(uid, is_terminating=True)
                self.ends[uid] = self.now + 5.0
            case 2:
                self.minimum = self.random.choice([0, 2, 4])
            case 3:
                self.sync()

    async def turn(self, number: int) -> None:
        """Let a replica act; one of its requests may fail, or be its last."""
        replica = self.replicas[number]
        replica.api.fault = replica.fault = (-1, "")
        if self.random.random() < 0.4:
            replica.api.fault = (self.random.randrange(3), self.random.choice(FAULTS))
        if self.random.random() < 0.4:
            replica.fault = (self.random.randrange(12), self.random.choice(FAULTS))
        try:
            if self.random.random() < 0.5:
                await replica.runner.turn()
            await replica.loop_turn()
        except KilledError:
            self.replicas[number] = DrainReplica(self)

    async def finish(self) -> None:
        """Let one replica lead without faults until all is done."""
        self.mode = DrainMode.ENFORCE
        self.candidates = {node: replace(item, blocker="") for node, item in self.candidates.items()}
        leader = self.replicas[0] = DrainReplica(self)
        leader.is_leader, self.replicas[1].is_leader = True, False
        for _ in range(400):
            self.now += 1.0
            self.sync()
            leader.catch_up()
            await leader.runner.turn()
            while await leader.loop.turn():
                leader.catch_up()


_STEPS = ("turn",) * 8 + ("watch", "read", "later", "later", "later", "fault", "pods", "kill", "lead")


def check_end(history: History) -> None:
    """Check what holds once a leader had time enough to finish everything."""
    assert not unfinished(history.stored()), "a drain that never ends"
    recorded = {key.uid for action in history.stored() for key in action.pods}
    evicted = set(history.evicted)
    assert evicted <= recorded
    for action in history.stored():
        uids = {key.uid for key in action.pods}
        left = {uid for uid in uids if uid in history.pods}
        if action.state == ActionState.SUCCEEDED:
            assert not left
        if action.state == ActionState.FAILED:
            assert action.message
            assert action.changed_at - action.begun_at >= LIMIT
        if action.state.is_withdrawn and history.is_calm:
            # Another attempt may have evicted the same pods.
            others = [
                other for other in history.stored() if other is not action and not other.state.is_withdrawn
            ]
            taken = {key.uid for other in others for key in other.pods}
            assert not (uids & evicted) or uids & evicted <= taken, "a withdrawn drain evicted pods"
    gang = {uid for uid, (_, pod) in history.pods.items() if pod.labels == GANG}
    if history.is_calm:
        evicted_of_gang = [uid for uid in evicted if uid.startswith("gang")]
        assert len(evicted_of_gang) in {0, 4}, "a gang left in part"
        assert not (history.minimum and evicted_of_gang), "a gang that its budget forbade"
    if history.candidates.keys() == {NODE, OTHER} and history.is_calm and not history.minimum:
        assert not gang


@pytest.mark.parametrize("part", range(4))
def test_random_histories(part: int) -> None:
    begun = failed = 0
    for seed in range(part, HISTORIES, 4):
        history = History(seed)

        async def play(history: History = history) -> None:
            for _ in range(STEPS):
                await history.step()
            await history.finish()

        try:
            asyncio.run(play())
            check_end(history)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        begun += any(action.begun_at for action in history.stored())
        failed += any(action.state == ActionState.FAILED for action in history.stored())
    assert begun > HISTORIES // 10, "the histories drain nothing"
