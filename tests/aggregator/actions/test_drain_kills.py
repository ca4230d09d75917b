"""A leader that is killed, or that gets no answer, before and after each request of two drains: its successor evicts
the rest. Each pod is evicted once and no other pod, and both drains succeed.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import count

import pytest
from msgspec.structs import replace

from nodeguard.model.action import ActionKind, ActionState
from nodeguard.model.action_store import ActionStoreError
from nodeguard.model.eviction import Eviction, EvictionState
from nodeguard.model.pod import NodePod
from tests.aggregator.actions.drain_replicas import NODE, OTHER, candidate
from tests.aggregator.actions.drain_scene import GANG_NAMES, Scene
from tests.aggregator.actions.replicas import FAULTS, KilledError

pytestmark = pytest.mark.slow

AFTER = 20.0

# Fewest requests of a leader for the objects of actions, and for pods, without and with notices.
ACTIONS = {0.0: 10, AFTER: 16}
PODS = {0.0: 20, AFTER: 30}


class TwoDrains(Scene):
    """Two nodes with a fault. accepted: how many evictions of each pod the API server accepted. after: seconds from a
    notice to the eviction.
    """

    pause = 2.0

    def __init__(self, after: float) -> None:
        self.accepted = Counter[str]()
        super().__init__()
        for node in (NODE, OTHER):
            self.candidates[node] = replace(candidate(node, self.now), after=after)

    def evict(self, pod: NodePod, *, is_dry_run: bool) -> Eviction:
        response = super().evict(pod, is_dry_run=is_dry_run)
        self.accepted[pod.key.name] += not is_dry_run and response.state == EvictionState.ACCEPTED
        return response

    @property
    def succeeded(self) -> list[str]:
        """The nodes of the drains that succeeded."""
        drains = (action for action in self.stored() if action.kind == ActionKind.DRAIN)
        return sorted(drain.node for drain in drains if drain.state == ActionState.SUCCEEDED)

    def play_out(self) -> None:
        """Play until both drains have ended, at most ten minutes. A killed leader has a successor at once."""
        end = self.now + 600.0
        while self.now < end and len(self.succeeded) < 2:
            with suppress(KilledError, ActionStoreError):
                self.play(10.0)
            if self.replica.is_killed:
                self.lead()


@pytest.mark.parametrize("after", [0.0, AFTER])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("is_of_actions", [False, True])
def test_a_fault_at_any_request_evicts_each_pod_once(fault: str, after: float, is_of_actions: bool) -> None:
    for number in count():
        scene = TwoDrains(after)
        client = scene.replica.api if is_of_actions else scene.replica
        client.fault = (number, fault)
        scene.play_out()
        assert scene.succeeded == [NODE, OTHER], f"request {number}: {scene.stored()}"
        assert scene.accepted == Counter([*GANG_NAMES, "single"]), f"request {number}"
        if client.fault[0] >= 0:
            break
    assert number >= (ACTIONS if is_of_actions else PODS)[after]
