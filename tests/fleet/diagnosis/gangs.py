"""A fleet with jobs, for the diagnosis of their starts."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.fleet.diagnosis.node_evidence import JobStart
from tests.fleet.diagnosis.scene import LEAVES, Voters

FLAP, DOWN = "port-link-downed", "port-down"


class Gangs(Voters):
    """A fleet of nodes with jobs. starts: of jobs, by node."""

    def __init__(self) -> None:
        self.starts: dict[str, list[JobStart]] = {}
        super().__init__()

    def job_starts(self, uid: str) -> Iterable[JobStart]:
        return self.starts.get(uid, ())

    def start(self, nodes: Iterable[str], job: str = "a/gang") -> None:
        """Start a job on nodes now."""
        for uid in nodes:
            self.starts[uid] = [JobStart(job, self.now)]
            self.diagnosis.voting.touch(uid)

    @property
    def bad_starts(self) -> dict[str, int]:
        return {job: len(start.voters) for job, start in self.diagnosis.bad_starts.items()}


def half_a_pod(fleet: Voters) -> list[str]:
    """Return every second node of a pod."""
    return [uid for leaf in range(LEAVES) for uid in fleet.leaf(2, leaf)[::2]]
