"""Requests of drains at two aggregators that share the stored actions, by nodeguard.aggregator.actions."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.actions.drain_requests import DrainRefusedError, request_drains
from nodeguard.model.action import ActionState, NodeAction
from nodeguard.model.drain import DrainMode, DrainPolicy
from nodeguard.model.eviction import DrainCluster
from tests.aggregator.actions.replicas import ActionReader
from tests.cli.commands.drain.pods import Pods
from tests.fleet.scene import Fleet, finding
from tests.kube.model_api import ModelApi


@pytest.fixture
def fleet() -> Fleet:
    """A node with two lost GPUs, of which the first is used; the policy only observes."""
    fleet = Fleet(1)
    fleet.report(0, finding(), finding(target="gpu/0000:5d:00", component="GPU-2"))
    fleet.planner.set_policy(replace(fleet.policy, drain=DrainPolicy(DrainMode.OBSERVE)))
    fleet.after(10.0)
    fleet.carry_out()
    return fleet


def requested(fleet: Fleet, replica: ActionReader, by: str) -> tuple[NodeAction, ...]:
    """Return the drains that an operator gets from the aggregator of a reader of actions."""
    node, cluster = fleet.planner.node_named("node-0"), cast("DrainCluster", Pods())
    assert node is not None
    return asyncio.run(request_drains(fleet.planner, cluster, replica.action_store, node, by, fleet.now))


def test_each_faulty_gpu_with_pods_has_a_drain_of_its_own(fleet: Fleet) -> None:
    drains = requested(fleet, ActionReader(ModelApi()), "alice")
    assert sorted(len(drain.pods) for drain in drains) == [1, 2]


def test_two_operators_at_two_aggregators_get_the_same_drains(fleet: Fleet) -> None:
    model = ModelApi()
    replicas = [ActionReader(model), ActionReader(model)]
    first, second = (
        requested(fleet, replica, by) for replica, by in zip(replicas, ("alice", "bob"), strict=True)
    )
    assert first == second
    assert {drain.requested_by for drain in first} == {"alice"}
    assert set(model.created.values()) == {1}


def test_a_leader_that_has_not_read_the_end_of_a_drain_does_not_promise_it(fleet: Fleet) -> None:
    model = ModelApi()
    earlier, late = ActionReader(model), ActionReader(model)
    for drain in requested(fleet, earlier, "alice"):
        ended = replace(drain, state=ActionState.CANCELLED, message="no pod was evicted")
        asyncio.run(earlier.action_store.advance(drain, ended))
    for _ in range(2):
        with pytest.raises(DrainRefusedError, match=r"has ended the drain drain-\w+: request it again"):
            requested(fleet, late, "bob")
    drains = requested(fleet, late, "bob")
    assert [(drain.attempt, drain.requested_by) for drain in drains] == [(2, "bob")] * 2
