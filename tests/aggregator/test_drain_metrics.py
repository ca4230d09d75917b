from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_queue import DrainFleet
from nodeguard.aggregator.actions.drains import DrainRunner
from nodeguard.aggregator.drain_metrics import DrainCollector
from nodeguard.fleet.act.drain_progress import drain_action
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.drain import DrainPolicy
from nodeguard.model.pod import PodGroupKey, PodKey
from tests.aggregator.actions.drain_replicas import DrainReplica, PodCluster
from tests.fleet.act.drained_fleet import candidates, faulty
from tests.fleet.scene import Fleet


def failed_nodes(fleet: Fleet, action: NodeAction) -> list[str]:
    """Return the nodes with a failed drain by the metrics."""
    store = DrainReplica(PodCluster()).action_store
    runner = DrainRunner(DrainFleet(DrainPolicy, lambda _now: ()), store, lambda: None, now=lambda: fleet.now)
    families = DrainCollector(runner, fleet.planner, lambda: [action]).collect()
    [family] = [family for family in families if family.name.endswith("drain_failed")]
    return [sample.labels["node"] for sample in family.samples]


@pytest.mark.parametrize(
    ("state", "is_failed"),
    [
        (ActionState.FAILED, True),
        (ActionState.UNKNOWN, True),
        (ActionState.SUCCEEDED, False),
        (ActionState.RUNNING, False),
        (ActionState.CANCELLED, False),
    ],
)
def test_a_drain_fails_if_pods_stayed_or_may_have_stayed(state: ActionState, is_failed: bool) -> None:
    fleet = faulty()
    [candidate] = candidates(fleet)
    action = replace(drain_action(candidate, (), fleet.wall), state=state)
    assert failed_nodes(fleet, action) == ["node-0"] * is_failed


def test_a_failed_drain_of_an_earlier_quarantine_or_of_a_released_node_is_over() -> None:
    fleet = faulty()
    [candidate] = candidates(fleet)
    failed = replace(drain_action(candidate, (), fleet.wall), state=ActionState.FAILED)
    assert failed_nodes(fleet, replace(failed, released_at=int(fleet.wall))) == []
    assert failed_nodes(fleet, replace(failed, uid="uid-1", node="node-1")) == []
    assert failed_nodes(fleet, replace(failed, uid="deleted")) == []


@pytest.mark.parametrize("uid", ["uid-0", "deleted"])
def test_a_gang_that_was_released_half_way_fails_without_its_quarantine(uid: str) -> None:
    fleet = Fleet(2)
    pods = tuple(PodKey("team-a", f"rank-{number}", f"pod-{number}") for number in range(2))
    failed = NodeAction(
        ActionKind.DRAIN, "node-0", uid, "quarantine of the node", 10, pods=pods,
        pod_groups=(PodGroupKey("team-a", "train"),), state=ActionState.FAILED, begun_at=11, released_at=20,
        changed_at=30,
    )  # fmt: skip
    assert failed_nodes(fleet, failed) == ["node-0"]
    assert failed_nodes(fleet, replace(failed, pod_groups=())) == []
    assert failed_nodes(fleet, replace(failed, released_at=40)) == []
