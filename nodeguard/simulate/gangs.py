"""Gang jobs on a simulated fleet: how often they fail, and what that costs them."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

from nodeguard.simulate.faults import Fault
from nodeguard.simulate.observer import NodeMarkState, Observer
from nodeguard.simulate.random_faults import DAY, GANG_START

# Seconds that a gang takes to come back: 15 to 30 minutes until it is started, and 15 of work done again.
_RESTART, _REWORK = (900.0, 1800.0), 900.0

GPUS_PER_NODE = 8


class Gangs(Observer):
    """Jobs that each take so many nodes at a time, next to one another as far as may be, and the whole of the
    time. A job dies of what happens on any of its nodes, and starts again on nodes that carry no mark.

    share: of the fleet that jobs take; there are other nodes to go to.
    """

    def __init__(self, nodes: int, size: int, chance: Random, share: float = 0.7) -> None:
        """nodes: of the fleet. size: of a job, in nodes."""
        self.failures = 0
        self.lost = 0.0
        self.jobs = max(1, int(nodes * share) // size) if size <= nodes else 0
        self._size, self._chance = size, chance
        self._free = [True] * nodes
        self._avoided: set[int] = set()
        self._sick: dict[int, list[Fault]] = {}
        self._job: dict[int, int] = {}
        self._members: dict[int, list[int]] = {}
        self._waiting: list[tuple[float, int]] = []
        self._since: dict[int, float] = {}
        for job in range(self.jobs):
            self._start(job, 0.0)

    def job_days(self, seconds: float) -> float:
        """Days of all jobs together."""
        return self.jobs * seconds / DAY

    def begins(self, trouble: Fault, at: float) -> None:
        """See Watcher."""
        self._pass(at)
        self._sick.setdefault(trouble.node, []).append(trouble)
        job = self._job.get(trouble.node)
        kills = 0.0 if trouble.cause == GANG_START else trouble.kind.kills
        if job is not None and self._chance.random() < kills:
            self._die(job, at)

    def ends(self, trouble: Fault, at: float) -> None:
        """See Watcher."""
        self._pass(at)
        left = [one for one in self._sick.get(trouble.node, ()) if one is not trouble]
        if left:
            self._sick[trouble.node] = left
        else:
            self._sick.pop(trouble.node, None)

    def marked(self, node: int, now: NodeMarkState, at: float) -> None:
        """See Watcher."""
        self._pass(at)
        if now.avoided:
            self._avoided.add(node)
        else:
            self._avoided.discard(node)

    def _pass(self, at: float) -> None:
        """Start what has waited long enough."""
        while self._waiting and self._waiting[0][0] <= at:
            when, job = heappop(self._waiting)
            self._start(job, when)

    def _start(self, job: int, at: float) -> None:
        members = self._room()
        self._members[job] = members
        for node in members:
            self._free[node] = False
            self._job[node] = job
        # Whoever has lost its link and has it again is no danger any more.
        if any(one.kind.kills == 1.0 for node in members for one in self._sick.get(node, ())):
            self._die(job, at)

    def _die(self, job: int, at: float) -> None:
        wait = self._chance.uniform(*_RESTART)
        self.failures += 1
        self.lost += wait + _REWORK
        for node in self._members.pop(job):
            self._free[node] = True
            del self._job[node]
        heappush(self._waiting, (at + wait, job))

    def _room(self) -> list[int]:
        """The first nodes that are free and carry no mark, from a place of chance on; others where those are
        too few.
        """
        nodes, first = len(self._free), self._chance.randrange(len(self._free))
        order = [(first + step) % nodes for step in range(nodes)]
        good = [node for node in order if self._free[node] and node not in self._avoided]
        rest = [node for node in order if self._free[node] and node in self._avoided]
        return [*good, *rest][: self._size]
