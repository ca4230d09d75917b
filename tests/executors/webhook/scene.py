"""A webhook executor with a receiver of marks and a clock."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from nodeguard.delivery.attempt import Destination
from nodeguard.executors.webhook.executor import WebhookExecutor
from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.model.decision import NodeDecision
from nodeguard.model.mark import Charge, Mark, MarkCause, MarkRecord, NodeMarks
from tests.executors.receiver import MarkReceiver
from tests.waiting import in_background, until_async

NOW = 1_700_000_000.0


class Reports:
    """Records what an executor reports."""

    def __init__(self) -> None:
        self.shown: dict[str, MarkRecord] = {}
        self.written: list[tuple[str, MarkRecord]] = []
        self.failures: list[tuple[str, WriteError]] = []

    def marks_written(self, node: str, record: MarkRecord) -> None:
        self.shown[node] = record
        self.written.append((node, record))

    def write_failed(self, node: str, error: WriteError) -> None:
        self.failures.append((node, error))


class Scene:
    """An executor with a receiver and a clock, which posts decisions under an epoch of the lease."""

    def __init__(self, receiver: MarkReceiver, *decisions: NodeDecision, epoch: int = 1) -> None:
        self.wall = NOW
        self.reports = Reports()
        self.executor = WebhookExecutor(
            Destination("slurm", receiver.url, bytes), self.reports, wall=lambda: self.wall
        )
        self.executor.begin(epoch)
        self.executor.desired(decisions)

    async def accepted(self, count: int) -> None:
        """Wait until the receiver has accepted some requests, and the executor has the response."""
        await until_async(lambda: self.executor.delivery.sent["slurm"] >= count)

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background(self.executor.run())


def decision(number: int, *marks: Mark, since: float = NOW) -> NodeDecision:
    causes = tuple(MarkCause(mark, "gpu-lost", "gpu/0000:3b:00", "gpu", since) for mark in marks)
    charge = Charge("gpu-lost", marks[0], since) if marks else None
    return NodeDecision(f"uid-{number}", f"node-{number}", NodeMarks(MarkRecord(causes, charge)))
