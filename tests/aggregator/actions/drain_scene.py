"""A cluster in virtual time with a leader, and the pods of a gang on a faulty GPU."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from nodeguard.model.action import NodeAction
from nodeguard.model.action_store import ActionStoreError
from tests.aggregator.actions.drain_replicas import (
    NODE,
    DrainReplica,
    PodCluster,
    candidate,
)


class Scene(PodCluster):
    """A cluster with one replica that leads, and a faulty GPU that the four pods of a gang hold. pause: seconds between
    two turns of the leader.
    """

    pause = 0.5

    def __init__(self, minimum: int = 0) -> None:
        super().__init__()
        self.minimum = minimum
        self.sync()
        self.candidates[NODE] = candidate(NODE, self.now)
        self.lead()

    def lead(self, ahead: float = 0.0) -> None:
        """Start a new process that leads. ahead: of its wall clock, in seconds."""
        self.replica = DrainReplica(self, ahead=ahead)
        self.replica.is_leader = True

    def play(self, seconds: float) -> None:
        asyncio.run(self.advance(seconds))

    async def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.replica.catch_up()
            await self.replica.runner.turn()
            with suppress(ActionStoreError):
                while await self.replica.loop.turn():
                    self.replica.catch_up()
            self.now += self.pause
            self.sync()

    @property
    def drain(self) -> NodeAction:
        """Return the latest attempt."""
        return max(self.stored(), key=lambda action: action.attempt)

    @property
    def evicted_names(self) -> list[str]:
        return sorted(uid.rpartition("-")[0] for uid in self.evicted)

    @property
    def reason(self) -> str:
        [report] = self.replica.runner.reports()
        return report.reason


GANG_NAMES = [f"gang-{number}" for number in range(4)]
