"""Drains of an API server that limits requests and names the time of the next one, in virtual time."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from nodeguard.fleet.act.drain_progress import drain_action
from nodeguard.model.action import ActionState
from nodeguard.model.drain import DrainMode
from nodeguard.model.eviction import Eviction, EvictionState, PodReadError
from nodeguard.model.pod import NodePod
from tests.aggregator.actions.drain_replicas import LIMIT, NODE, PodCluster
from tests.aggregator.actions.drain_scene import GANG_NAMES, Scene

BUSY = "the server limits requests"


class BusyScene(Scene):
    """A scene with an API server that limits some requests. limited: `read`, `dry run` or `evict`. wait: seconds after
    which it asks for the next one. answers_after: seconds until it answers a limited request. requests: times of the
    answers to limited requests. names: of the pods of which the evictions are limited.
    """

    answers_after = 0.0

    def __init__(self, limited: str, wait: float) -> None:
        self.limited, self.wait = limited, wait
        self.requests: list[float] = []
        self.names = GANG_NAMES
        super().__init__()
        self.finish_within = 1_800.0
        node_pods = self.replica.node_pods

        async def read(node: str) -> tuple[NodePod, ...]:
            if self.limited == "read":
                self.answer()
                raise PodReadError(BUSY, self.wait)
            return await node_pods(node)

        self.replica.node_pods = read  # type: ignore[method-assign]

    def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        if self.limited == ("dry run" if is_dry_run else "evict") and pod.key.name in self.names:
            self.answer()
            return Eviction(EvictionState.FAILED, BUSY, self.wait)
        return PodCluster.evict(self, pod, is_dry_run=is_dry_run)

    def answer(self) -> None:
        self.now += self.answers_after
        self.requests.append(self.now)

    def request(self) -> None:
        """Let alice request the drain, and no rule of the policy."""
        self.mode = DrainMode.OBSERVE
        pods = [pod for node, pod in self.pods.values() if node == NODE and pod.gpu_ids == ("GPU-0",)]
        action = drain_action(self.candidates[NODE], pods, self.now, requested_by="alice")
        asyncio.run(self.replica.action_store.reserve(action))

    @property
    def gaps(self) -> list[float]:
        """The seconds between two times with limited requests."""
        gaps = (after - before for before, after in pairwise(sorted(self.requests)))
        return [gap for gap in gaps if gap > 1.0]


def test_a_limited_eviction_is_repeated_after_the_time_that_the_server_asks_for() -> None:
    scene = BusyScene("evict", 30.0)
    scene.names = GANG_NAMES[3:]
    scene.play(100.0)
    assert scene.evicted_names == GANG_NAMES[:3]
    assert scene.gaps == [30.0, 30.0, 30.0]
    assert scene.reason == f"team-a/gang-3: {BUSY}"
    scene.limited = ""
    scene.play(30.0)
    assert scene.evicted_names == GANG_NAMES


@pytest.mark.parametrize("limited", ["read", "dry run", "evict"])
@pytest.mark.parametrize("is_requested", [False, True], ids=["policy", "request"])
def test_the_time_that_a_slow_server_asks_for_begins_with_its_answer(
    limited: str, is_requested: bool
) -> None:
    scene = BusyScene(limited, 30.0)
    scene.answers_after, scene.names = 4.0, GANG_NAMES[:1]
    if is_requested:
        scene.request()
    scene.play(100.0)
    assert scene.gaps
    assert all(gap >= 34.0 for gap in scene.gaps)


def test_a_slow_server_that_refuses_one_eviction_gets_the_time_that_it_asks_for() -> None:
    scene = BusyScene("evict", 30.0)
    scene.answers_after, scene.names = 4.0, GANG_NAMES[3:]
    scene.play(100.0)
    assert scene.gaps
    assert all(gap >= 34.0 for gap in scene.gaps)


@pytest.mark.parametrize("limited", ["evict", "read"])
def test_a_server_that_asks_for_an_hour_puts_no_end_of_a_drain_off(limited: str) -> None:
    """A reading that fails has five minutes more, as always."""
    scene = BusyScene("evict", 60.0 if limited == "read" else 3_600.0)
    scene.names, scene.finish_within = GANG_NAMES[3:], LIMIT
    scene.play(5.0)
    scene.limited = limited
    begun = scene.drain.begun_at
    while not scene.drain.state.is_finished:
        scene.play(1.0)
    most = LIMIT + (300.0 + 60.0 if limited == "read" else 2.0)
    assert LIMIT <= scene.drain.changed_at - begun <= most
    assert scene.drain.state == (ActionState.UNKNOWN if limited == "read" else ActionState.FAILED)
    assert BUSY in scene.drain.message


@pytest.mark.parametrize("limited", ["read", "dry run", "evict"])
def test_a_drain_by_the_policy_begins_after_the_time_that_the_server_asks_for(limited: str) -> None:
    scene = BusyScene(limited, 45.0)
    scene.play(110.0)
    assert 45.0 <= min(scene.gaps) <= 47.0
    scene.limited = ""
    scene.play(160.0)
    assert (scene.drain.state, scene.evicted_names) == (ActionState.SUCCEEDED, GANG_NAMES)


@pytest.mark.parametrize("limited", ["read", "dry run", "evict"])
def test_a_request_by_hand_waits_for_a_server_that_limits_requests(limited: str) -> None:
    scene = BusyScene(limited, 45.0)
    scene.request()
    scene.play(100.0)
    assert (scene.drain.state, scene.evicted) == (ActionState.RUNNING, {})
    assert scene.reason.endswith(BUSY)
    assert len(scene.gaps) == 2
    assert all(45.0 <= gap <= 47.0 for gap in scene.gaps)
    scene.limited = ""
    scene.play(100.0)
    assert (scene.drain.state, scene.evicted_names) == (ActionState.SUCCEEDED, GANG_NAMES)
    assert len(scene.stored()) == 1


@pytest.mark.parametrize("limited", ["read", "dry run", "evict"])
def test_a_request_by_hand_waits_for_ten_minutes_at_most(limited: str) -> None:
    scene = BusyScene(limited, 30.0)
    scene.request()
    requested = scene.now
    scene.play(590.0)
    assert scene.drain.state == ActionState.RUNNING
    while not scene.drain.state.is_finished:
        scene.play(1.0)
    assert scene.now - requested < 640.0
    assert (scene.drain.state.is_withdrawn, scene.evicted) == (True, {})
    late = "no pod was evicted: the request is older than 10m: repeat it; it waited: "
    assert scene.drain.message.startswith(late)
    assert scene.drain.message.endswith(BUSY)


def test_a_begun_request_evicts_nothing_until_its_whole_set_may_leave_again() -> None:
    scene = BusyScene("evict", 10.0)
    scene.request()
    scene.play(8.0)
    assert scene.drain.begun_at
    scene.limited = "dry run"
    scene.play(60.0)
    assert (scene.drain.state, scene.evicted) == (ActionState.RUNNING, {})
    scene.limited = ""
    scene.play(60.0)
    assert (scene.drain.state, scene.evicted_names) == (ActionState.SUCCEEDED, GANG_NAMES)
