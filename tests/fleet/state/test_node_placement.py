from __future__ import annotations

from nodeguard.fleet.state.node_placement import WHOLE, gpu_parts, place_node
from nodeguard.model.mark import Mark, MarkCause, MarkRecord
from nodeguard.model.node import Node, Taint
from nodeguard.model.policy import Policy, Pool


def test_a_node_counts_in_the_fleet_its_pool_and_its_domains() -> None:
    policy = Policy(pools=(Pool("training", {"row": "4"}),))
    node = Node("n", "u", labels={"row": "4"}, gpus=8)
    seated = place_node(policy, node, MarkRecord(), domains=("fabric/p2", "fabric/p2/l7", "rack/4"))
    assert seated.budgets == (
        "fleet", "pool/training", "domain/fabric/p2", "domain/fabric/p2/l7", "domain/rack/4"
    )  # fmt: skip
    assert (seated.pool, seated.domains) == ("training", seated.budgets[2:])


def test_a_gpu_counts_as_an_eighth_and_a_node_without_gpus_as_a_whole() -> None:
    record = MarkRecord()
    assert gpu_parts(place_node(Policy(), Node("n", "u", gpus=8), record)) * 8 == WHOLE
    assert gpu_parts(place_node(Policy(), Node("n", "u"), record)) == WHOLE
    assert gpu_parts(place_node(Policy(), Node("n", "u", gpus=11), record)) * 11 >= WHOLE


def test_cordons_and_taints_of_operators_are_distinguished() -> None:
    ours = MarkRecord((MarkCause(Mark.SUSPECT, "c", "node", "w", 1.0),), cordoned=True)
    taints = (
        Taint("nodeguard.dev/suspect", "NoSchedule", "w"),
        Taint("nodeguard.dev/quarantine", "NoSchedule"),
    )
    seated = place_node(Policy(), Node("n", "u", taints=taints, unschedulable=True, gpus=8), ours)
    assert (seated.cordoned_by_user, seated.unknown_taints) == (False, taints[1:])
    assert place_node(Policy(), Node("n", "u", unschedulable=True, gpus=8), MarkRecord()).cordoned_by_user
