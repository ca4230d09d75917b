from __future__ import annotations

from nodeguard.executors.kube.cluster import ObservedCluster
from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.fleet.state.node_placement import WHOLE, gpu_parts, place_node
from nodeguard.model.inventory import NO_OBSERVED_MARKS, InventoryNode
from nodeguard.model.mark import STATE_ANNOTATION, Charge, Mark, MarkCause, MarkRecord
from nodeguard.model.node import Node, Taint
from nodeguard.model.policy import Policy, Pool


def test_a_node_counts_in_the_fleet_its_pool_and_its_domains() -> None:
    policy = Policy(pools=(Pool("training", {"row": "4"}),))
    node = InventoryNode("u", "n", labels={"row": "4"}, gpus=8)
    seated = place_node(policy, node, NO_OBSERVED_MARKS, domains=("fabric/p2", "fabric/p2/l7", "rack/4"))
    assert seated.budgets == (
        "fleet", "pool/training", "domain/fabric/p2", "domain/fabric/p2/l7", "domain/rack/4"
    )  # fmt: skip
    assert (seated.pool, seated.domains) == ("training", seated.budgets[2:])


def test_a_gpu_counts_as_an_eighth_and_a_node_without_gpus_as_a_whole() -> None:
    def part(gpus: int) -> int:
        return gpu_parts(place_node(Policy(), InventoryNode("u", "n", gpus=gpus), NO_OBSERVED_MARKS))

    assert part(8) * 8 == WHOLE
    assert part(0) == WHOLE
    assert part(11) * 11 >= WHOLE


def test_cordons_and_taints_of_operators_are_distinguished() -> None:
    ours = MarkRecord(
        (MarkCause(Mark.SUSPECT, "c", "node", "w", 1.0),), Charge("c", Mark.SUSPECT, 1.0), cordoned=True
    )
    taints = (
        Taint("nodeguard.dev/suspect", "NoSchedule", "w"),
        Taint("nodeguard.dev/quarantine", "NoSchedule"),
    )

    def placed(annotations: dict[str, str]) -> tuple[bool, tuple[str, ...]]:
        node = Node("n", "u", taints=taints, annotations=annotations, unschedulable=True, gpus=8)
        in_fleet, observed = ObservedCluster().update_node(node)
        return place_node(Policy(), in_fleet, observed).cordoned_by_user, observed.foreign

    assert placed({STATE_ANNOTATION: encode_record(ours)}) == (False, ("nodeguard.dev/quarantine=",))
    assert placed({}) == (True, ("nodeguard.dev/suspect=w", "nodeguard.dev/quarantine="))
