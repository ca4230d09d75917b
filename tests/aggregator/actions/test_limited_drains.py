"""The limits of drains in the runner: only candidates with pods that may leave use them."""

from __future__ import annotations

from nodeguard.fleet.act.drain_report import DrainState
from nodeguard.model.action import ActionState
from tests.aggregator.actions.drain_replicas import NODE, OTHER, DrainReplica, PodCluster, candidate
from tests.fleet.act.test_drain_limits import scene

IDLE = "uid-2"


async def carry_on(world: PodCluster, replica: DrainReplica, seconds: int) -> None:
    for _ in range(seconds):
        await replica.runner.turn()
        await replica.loop_turn()
        world.now += 1.0
        world.sync()
        replica.catch_up()


def started(world: PodCluster, *nodes: str) -> DrainReplica:
    """Return a leader that may drain one node at a time, with candidates of nodes, the oldest first."""
    world.candidates = {node: candidate(node, float(number)) for number, node in enumerate(nodes)}
    replica = DrainReplica(world, scene(3, nodes=0.0).planner)
    replica.is_leader = True
    return replica


async def test_a_node_that_cannot_be_drained_does_not_keep_others_from_it() -> None:
    world = PodCluster()
    world.minimum = 4
    world.sync()
    replica = started(world, IDLE, NODE, OTHER)
    await carry_on(world, replica, 40)
    assert [(drain.node, drain.state) for drain in world.stored()] == [(OTHER, ActionState.SUCCEEDED)]
    assert {pod.name for report in replica.runner.reports() for pod in report.pods} == {
        f"gang-{number}" for number in range(4)
    }


async def test_a_set_beyond_the_pods_of_an_hour_waits_until_they_allow_it() -> None:
    world = PodCluster()
    world.candidates = {node: candidate(node, float(number)) for number, node in enumerate((OTHER, NODE))}
    replica = DrainReplica(world, scene(3, nodes=1.0, pods=4, pods_hourly=4).planner)
    replica.is_leader = True
    await carry_on(world, replica, 60)
    [drain] = world.stored()
    assert (drain.node, drain.state) == (OTHER, ActionState.SUCCEEDED)
    [waiting] = replica.runner.reports()
    assert (waiting.node, waiting.state, waiting.limited_until) == (
        NODE,
        DrainState.WAITS,
        drain.begun_at + 3600.0,
    )
    reason = "drains of 1 of 4 pods began within an hour, and this one adds 4 (drain.limits.podsPerHour)"
    assert waiting.reason == reason
    world.now = waiting.limited_until - 5.0
    await carry_on(world, replica, 4)
    assert len(world.stored()) == 1
    await carry_on(world, replica, 60)
    assert {item.node: item.state for item in world.stored()}[NODE] == ActionState.SUCCEEDED


async def test_one_node_is_drained_at_a_time_and_the_other_reports_the_limit() -> None:
    world = PodCluster()
    replica = started(world, NODE, OTHER)
    await carry_on(world, replica, 5)
    assert [drain.node for drain in world.stored()] == [NODE]
    reports = {report.node: report for report in replica.runner.reports()}
    assert reports[NODE].state == DrainState.RUNNING
    assert reports[OTHER].reason == "1 of 1 nodes are being drained (drain.limits.nodes)"
    await carry_on(world, replica, 120)
    assert [(drain.node, drain.state) for drain in world.stored()] == [
        (NODE, ActionState.SUCCEEDED),
        (OTHER, ActionState.SUCCEEDED),
    ]
