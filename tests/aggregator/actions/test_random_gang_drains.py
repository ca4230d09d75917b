"""Random histories of a gang over nodes: it leaves whole, and only with a budget that allowed all of it."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Struct

from nodeguard.model.action import ActionKind
from nodeguard.model.eviction import Eviction
from nodeguard.model.pod import DisruptionBudget, NodePod
from tests.aggregator.actions.drain_replicas import GANG, NODE, OTHER, DrainReplica
from tests.aggregator.actions.gang_scene import RANKS, REMOTE, TRAIN, spread
from tests.aggregator.actions.random_drain_history import STEPS, History
from tests.aggregator.actions.test_random_drains import HISTORIES


class Check(Struct):
    """A reading of the budget. at: seconds. allowed: evictions. needed: pods of the gang that would be evicted."""

    at: float
    allowed: int
    needed: int


class GangReplica(DrainReplica):
    """A replica that records what its readings of the budget allow."""

    async def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        budgets = await super().disruption_budgets(namespace)
        pods = [pod for _, pod in self.world.pods.values() if pod.group == TRAIN and not pod.is_terminating]
        assert isinstance(self.world, GangHistory)
        self.world.checks.append(Check(self.world.now, self.world.allowed, len(pods)))
        return budgets


class GangHistory(History):
    """A history with a gang over nodes. checks: of its budget. begun: drains of the gang that evicted a first pod.
    held_at: when an operator held a node of the gang, in seconds.
    """

    def __init__(self, seed: int) -> None:
        self.checks: list[Check] = []
        self.begun: set[str] = set()
        self.held_at = 0.0
        super().__init__(seed)
        spread(self)

    def start(self) -> DrainReplica:
        return GangReplica(self, ahead=self.random.choice(self.clocks))

    def change_pods(self) -> None:
        """Let an operator hold a node of the gang, or end the hold; also let a pod join the gang, or its owner change
        the mode.
        """
        super().change_pods()
        match self.random.randrange(4):
            case 0:
                self.held_at = self.now
                self.holds = {} if self.holds else {REMOTE: "a hold"}
            case 1 if not self.is_calm and all(pod.key.name != "rank-4" for _, pod in self.pods.values()):
                self.create(REMOTE, "rank-4", "GPU-6", GANG, group=TRAIN)
                self.sync()
            case 2 if not self.is_calm:
                self.whole = set() if self.whole else {TRAIN}

    def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        """Check that a drain that evicts its first pod has all pods of the gang, and that the budget and all nodes
        allowed all of it when it was judged.
        """
        before = dict(self.evicted)
        response = super().evict(pod, is_dry_run=is_dry_run)
        if pod.group == TRAIN and self.evicted != before:
            for drain in self.stored():
                uids = {key.uid for key in drain.pods}
                # A successor cannot know whether a pod that has ended by itself was evicted.
                is_first = uids <= self.pods.keys() and not uids & before.keys()
                is_drain = drain.kind == ActionKind.DRAIN  # the pods of a notice may be fewer
                is_running = is_drain and bool(drain.begun_at) and not drain.state.is_finished
                if is_running and drain.pod_groups and pod.key.uid in uids and is_first:
                    self.begun.add(drain.key)
                    places = {uid: node for uid, (node, item) in self.pods.items() if item.group == TRAIN}
                    staying = {uid: node for uid, node in places.items() if uid not in self.ends}
                    assert staying.keys() <= uids, "a part of the gang"
                    is_held = bool(self.holds.keys() & staying.values())
                    assert not is_held or self.now - self.held_at <= 5.0, "a pod on a node with a hold"
                    latest = self.checks[-1]
                    assert self.now - latest.at <= 5.0, "an outdated check"
                    assert latest.allowed >= latest.needed, "a part of the gang was allowed"
        return response


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_random_histories_of_a_gang(part: int) -> None:
    """In those with an even seed budgets do not change, and pods do not end by themselves."""
    left_whole = stayed = begun = 0
    for seed in range(part, HISTORIES, 4):
        history = GangHistory(seed)

        async def play(history: GangHistory = history) -> None:
            for _ in range(STEPS):
                await history.step()
            history.candidates = {node: history.fault(node) for node in (NODE, OTHER)}
            history.whole, history.holds = {TRAIN}, {}
            await history.finish()

        try:
            asyncio.run(play())
            check_gang(history)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        left_whole += evicted_ranks(history) == RANKS
        stayed += not evicted_ranks(history)
        begun += bool(history.begun)
    assert begun > HISTORIES // 100, "few histories drain the gang"
    assert left_whole > HISTORIES // 100, "few histories drain all of the gang"
    assert stayed > HISTORIES // 40 or part % 2, "few histories keep the gang"


def evicted_ranks(history: GangHistory) -> set[str]:
    return {uid.rpartition("-")[0] for uid in history.evicted} & RANKS


def check_gang(history: GangHistory) -> None:
    """Check what holds once a leader had time enough to finish everything."""
    assert all(action.state.is_finished for action in history.stored())
    if history.is_calm:
        left = evicted_ranks(history)
        assert left in (set(), RANKS), f"a part of the gang left: {left}"
        assert bool(left) == (history.minimum == 0), f"minimum {history.minimum}, left {left}"
        gangs = [
            action
            for action in history.stored()
            if action.kind == ActionKind.DRAIN and action.pod_groups and action.begun_at
        ]
        # A request of an operator ends as done, too, if another drain has evicted its pods.
        by_policy = [action for action in gangs if not action.requested_by]
        assert len([action for action in by_policy if not action.state.is_withdrawn]) <= 1
