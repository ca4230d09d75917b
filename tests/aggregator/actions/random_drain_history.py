"""Random histories of drains: two replicas are killed at any request, answers are lost, watches and lists are late,
budgets change, and pods end by themselves. No pod outside of a recorded set is evicted, a set that begins ends or is
reported, and a set that its budget forbade when it was confirmed is not begun. A quarantine is drained once.

Each history draws the clocks of its replicas, faults that are absent for a while, within a day or after it, in the
same quarantine or the next one, and causes that join and end. In some the rule of a node has a deadline: no pod is then
evicted before the time of its notice, unless all agree, and no pod keeps a notice that has ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from math import inf
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_assessment import assess
from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.fleet.act.drain_progress import drain_action, stored_drain
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.action_store import ActionStoreError
from nodeguard.model.drain import DrainMode, DrainPolicy
from nodeguard.model.eviction import DrainCluster, Eviction
from nodeguard.model.pod import NodePod
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
from tests.aggregator.actions.replicas import FAULTS, KilledError, observed_action

STEPS = 200
DAY = 86_400.0

# Seconds by which the wall clock of a replica may be ahead.
CLOCKS = (0.0, 0.0, 3_600.0, -3_600.0, 30 * DAY, -30 * DAY)

# Seconds of notice by the rule of a node.
AFTER = 30.0

# Most seconds between two turns at the end of a history, in which nothing else happens.
_LONGEST_PAUSE = 4.0


class DrainRecord(Struct):
    """One stored drain. made: number of the step. begun, ended: in seconds of the only true clock."""

    action: NodeAction
    made: int
    begun: float = 0.0
    ended: float = 0.0


class History(PodCluster):
    """A cluster with two replicas. is_calm: nothing but nodeguard changes pods and budgets. drains: by uid of the
    object, also those that were deleted. releases: steps in which a quarantine was released, by node. gangs: uids
    of the pods of each gang that came to the node. after: seconds of notice, by node; 0 for none. clocks: those that
    its replicas may have. noticed: pods that were evicted after a notice.
    """

    # Weight of the requests of operators among the steps.
    REQUESTS = 3

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.is_calm = seed % 2 == 0
        self.after = {node: self.random.choice([0.0, AFTER]) for node in (NODE, OTHER)}
        # With another clock a leader reads another time into a notice.
        self.clocks = self.random.choice([CLOCKS, (0.0,)])
        self.noticed: set[str] = set()
        self.minimum = self.random.choice([0, 0, 2, 4])
        self.sync()
        self.quarantined.clear()
        self.steps = 0
        self.drains: dict[str, DrainRecord] = {}
        self.releases: dict[str, list[int]] = {NODE: [], OTHER: []}
        self.gangs = [set(self.gang())]
        self._recorded = 0
        self._choices: tuple[str | Callable[[], None], ...] = (
            *("turn",) * 8,
            *("watch", "read", "kill", "lead"),
            *(self.later,) * 3,
            *("request",) * self.REQUESTS,
            *(self.toggle_fault,) * 2,
            *(self.release, self.rest, self.change_pods),
        )
        self.replicas = [self.start(), self.start()]
        self.replicas[0].is_leader = True

    def start(self) -> DrainReplica:
        """Start a new process, with a clock of its own."""
        return DrainReplica(self, ahead=self.random.choice(self.clocks))

    def fault(self, node: str) -> DrainCandidate:
        """Return the candidate of a fault that begins now."""
        return replace(candidate(node, self.now), after=self.after[node])

    def gang(self) -> list[str]:
        """Return the uids of the present pods of a gang."""
        return [uid for uid, (_, pod) in self.pods.items() if pod.labels == GANG]

    def record(self) -> None:
        """Record what the latest step stored."""
        for kind, stored in self.api.history[self._recorded :]:
            action = observed_action(stored).action
            if kind != "DELETED" and action is not None and action.kind == ActionKind.DRAIN:
                drain = self.drains.setdefault(stored["metadata"]["uid"], DrainRecord(action, self.steps))
                drain.action = action
                drain.begun = drain.begun or (self.now if action.begun_at else 0.0)
                drain.ended = drain.ended or (self.now if action.state.is_finished else 0.0)
        self._recorded = len(self.api.history)

    async def step(self) -> None:
        self.steps += 1
        number = self.random.randrange(2)
        replica = self.replicas[number]
        choice = self.random.choice(self._choices)
        if not isinstance(choice, str):
            choice()
        match choice:
            case "turn":
                await self.turn(number)
            case "lead":
                self.hand_over(replica)
            case "kill":
                self.replicas[number] = self.start()
            case "watch":
                replica.watch(self.random.randrange(1, 4))
            case "read":
                replica.read()
            case "request":
                await self.request(number)
        self.record()

    def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        """Evict a pod; sometimes its processes never end."""
        before = len(self.evicted)
        response = super().evict(pod, is_dry_run=is_dry_run)
        if len(self.evicted) > before:
            self.check_notice(pod)
        if pod.key.uid in self.ends and not self.is_calm and self.random.random() < 0.3:
            self.ends[pod.key.uid] = inf
        return response

    def check_notice(self, pod: NodePod) -> None:
        """Check that the time of the notice of an evicted pod is over, or that all pods agreed to leave before."""
        begun = [action for action in self.stored() if action.kind == ActionKind.DRAIN and action.begun_at]
        drains = [action for action in begun if pod.key in action.pods and not action.state.is_finished]
        if any(drain.requested_by or not self.after[drain.uid] for drain in drains) or len(self.clocks) > 1:
            return
        notices = [
            action
            for action in self.stored()
            if action.kind == ActionKind.DRAIN_NOTICE
            and action.begun_at
            and action.state == ActionState.RUNNING
        ]
        own = [notice for notice in notices if any(drain.uid == notice.uid for drain in drains)]
        assert own, "an eviction without a notice"
        members = {key.uid for drain in drains for key in drain.pods}
        have_agreed = all(self.pods[uid][1].agrees_to_leave for uid in members & self.pods.keys())
        assert have_agreed or any(notice.deadline <= self.now + 1.0 for notice in own), "an early eviction"
        assert all(notice.deadline - notice.begun_at >= AFTER for notice in own), "a short notice"
        self.noticed.add(pod.key.uid)

    def later(self) -> None:
        """Let some seconds pass: no list or watch is further behind."""
        self.now += self.random.choice([0.1, 1.0, 5.0, 30.0])
        self.sync()
        for behind in self.replicas:
            behind.catch_up()

    def hand_over(self, replica: DrainReplica) -> None:
        """Let a replica lead, or none: the lease ends the requests of the earlier leader. A takeover takes longer
        than a list of the API server is late, not than a watch.
        """
        is_next = not replica.is_leader
        for other in self.replicas:
            other.is_leader = False
        replica.is_leader = is_next
        replica.read()

    def toggle_fault(self) -> None:
        """Let a fault begin, be absent or blocked, or come back in the same quarantine; or another cause join and
        the oldest one end; or an operator change the mode.
        """
        node = self.random.choice([NODE, NODE, OTHER])
        present = self.candidates.get(node)
        if present is None:
            # The leader that marks a node has observed the release of its mark before.
            if node in self.quarantined or not any(map(_is_answer, self.stored_of(node))):
                self.quarantined.add(node)
                self.candidates[node] = self.fault(node)
        else:
            match self.random.randrange(5):
                case 0 | 1:
                    del self.candidates[node]
                case 2:
                    self.candidates[node] = replace(present, since=self.now)
                case _:
                    self.candidates[node] = replace(present, blocker="" if present.blocker else "paused")
        if self.random.random() < 0.1:
            self.mode = DrainMode.OBSERVE if self.mode == DrainMode.ENFORCE else DrainMode.ENFORCE

    def stored_of(self, node: str) -> list[NodeAction]:
        stored = self.stored()
        return [action for action in stored if action.uid == node and action.kind == ActionKind.DRAIN]

    def release(self) -> None:
        """Release the quarantine of a node without a fault. New work comes to it."""
        for node in sorted(self.quarantined - self.candidates.keys()):
            self.quarantined.discard(node)
            self.releases[node].append(self.steps)
            if node == NODE and not self.gang():
                for number in range(4):
                    self.create(NODE, f"gang-{number}", "GPU-0", GANG)
                self.gangs.append(set(self.gang()))
                self.sync()

    def rest(self) -> None:
        """Let a day pass, if no drain is running."""
        if not unfinished(self.stored()):
            self.now += DAY
            self.sync()

    def change_pods(self) -> None:
        """Let the owner of a gang agree to leave, or a pod change, end or come although it should not, or its budget
        change.
        """
        if self.random.random() < 0.3:
            for uid in self.gang():
                self.change(uid, agrees_to_leave=True)
        if self.is_calm:
            return
        uid = self.random.choice([*self.pods, ""])
        match self.random.randrange(5):
            case 0 if uid:
                self.change(uid)
            case 1 if uid and uid not in self.ends:
                self.change(uid, is_terminating=True)
                self.ends[uid] = self.now + 5.0
            case 2:
                self.minimum = self.random.choice([0, 2, 4])
            case 3:
                self.sync()
            case 4:
                self.come_late()

    def come_late(self) -> None:
        """Let a pod come to faulty hardware, as one that was bound before the mark."""
        if not self.is_calm and all(pod.key.name != "late" for _, pod in self.pods.values()):
            self.create(NODE, "late", "GPU-0", {})

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
            self.replicas[number] = self.start()

    async def request(self, number: int) -> None:
        """Let an operator request the drain of a node, as far as the leader knows the present ones. The process may
        be killed at the write.
        """
        replica = self.replicas[number]
        present = replica.candidates.get(self.random.choice([NODE, OTHER]))
        stored = replica.action_store.actions()
        if not replica.is_leader or present is None or stored_drain(present, stored) is not None:
            return
        drains = [action for action in stored if action.kind == ActionKind.DRAIN]
        attempts = [action.attempt for action in drains if action.uid == present.uid]
        replica.api.fault = (0, self.random.choice(FAULTS)) if self.random.random() < 0.4 else (-1, "")
        replica.fault = (-1, "")
        found = await assess(
            cast("DrainCluster", replica), present, DrainPolicy().unknown_holders, lambda _: ""
        )
        if found.reason or not found.pods:
            return
        action = drain_action(present, found.pods, replica.wall, found.groups, "alice")
        with suppress(ActionStoreError):
            try:
                await replica.action_store.reserve(replace(action, attempt=max(attempts, default=0) + 1))
            except KilledError:
                self.replicas[number] = self.start()

    async def finish(self) -> None:
        """Let one replica lead without faults until all is done, also after its faults were absent for a while, and
        then until another quarantine is drained.
        """
        self.mode = DrainMode.ENFORCE
        self.candidates = {node: replace(item, blocker="") for node, item in self.candidates.items()}
        leader = self.replicas[0] = self.start()
        leader.is_leader, self.replicas[1].is_leader = True, False
        await self.settle(leader, 400)
        absent, self.candidates = self.candidates, {}
        await self.settle(leader, 3)
        self.now += self.random.choice([0.0, DAY])
        await self.settle(leader, 3)
        self.come_late()
        is_later = self.random.random() < 0.5
        self.candidates = {
            node: replace(item, since=self.now if is_later else item.since) for node, item in absent.items()
        }
        await self.settle(leader, 100)
        self.candidates = {}
        await self.settle(leader, 70)
        self.release()
        await self.settle(leader, 3)
        self.quarantined.add(NODE)
        self.candidates[NODE] = self.fault(NODE)
        await self.settle(leader, 400)
        self.candidates = {}
        await self.settle(leader, 70)

    async def settle(self, leader: DrainReplica, seconds: float) -> None:
        """Let some seconds pass. The leader takes its turns after a second, and less often while nothing changes."""
        self.steps += 1
        end, pause = self.now + seconds, 1.0
        while self.now < end:
            before = self._changes()
            self.now = min(end, self.now + pause)
            self.sync()
            leader.catch_up()
            await leader.runner.turn()
            while await leader.loop.turn():
                leader.catch_up()
            self.record()
            pause = 1.0 if self._changes() != before else min(_LONGEST_PAUSE, 2.0 * pause)

    def _changes(self) -> tuple[object, ...]:
        """Return a value that changes with the stored actions, and with each change, eviction and end of a pod."""
        return len(self.api.history), len(self.notices), dict(self.evicted), {*self.pods}, self.allowed


def _is_answer(action: NodeAction) -> bool:
    """Return whether a drain answers the present quarantine."""
    is_begun = bool(action.begun_at) or action.state.is_finished
    return is_begun and not (action.state.is_withdrawn or action.released_at)


def check_end(history: History) -> None:
    """Check what holds once a leader had time enough to finish everything."""
    assert not unfinished(history.stored()), "a drain or a notice that never ends"
    assert not any(pod.drain_at for _, pod in history.pods.values() if not pod.is_terminating), (
        "a notice is left"
    )
    drains = [drain.action for drain in history.drains.values()]
    carried_out = [drain for drain in drains if not drain.state.is_withdrawn]
    evicted = set(history.evicted)
    assert evicted <= _uids(drains)
    for drain in history.drains.values():
        action, uids = drain.action, _uids([drain.action])
        if action.state == ActionState.SUCCEEDED:
            assert not uids & history.pods.keys()
        if action.state in {ActionState.FAILED, ActionState.UNKNOWN}:
            assert action.message
            # Leaders compare the time of a takeover with clocks of their own, see decision 0100.
            is_shortened = action.taken_over_at and len(history.clocks) > 1
            assert is_shortened or drain.ended - drain.begun >= LIMIT, "a drain that had too little time"
        if action.state.is_withdrawn and history.is_calm:
            # Another attempt may have evicted the same pods.
            assert uids & evicted <= _uids(carried_out), "a withdrawn drain evicted pods"
    for node, releases in history.releases.items():
        made = [
            drain.made
            for drain in history.drains.values()
            if drain.action.uid == node and not drain.action.state.is_withdrawn
        ]
        for first, second in pairwise(made):
            assert any(first < release <= second for release in releases), "a drain was repeated"
    if history.is_calm:
        for gang in history.gangs:
            assert len(gang & evicted) in {0, 4}, "a gang left in part"
            assert not (history.minimum and gang & evicted), "a gang that its budget forbade"
        if not history.minimum:
            assert not history.gang(), "a quarantine that was not drained"


def _uids(drains: Iterable[NodeAction]) -> set[str]:
    return {key.uid for drain in drains for key in drain.pods}
