from __future__ import annotations

from nodeguard.fleet.seat import WHOLE, part_of, seat
from nodeguard.model.mark import Cause, Mark, Record
from nodeguard.model.node import Node, Taint
from nodeguard.model.policy import Policy, Pool, View

LABELS = {
    "topology.kubernetes.io/region": "r",
    "topology.kubernetes.io/zone": "z",
    "fabric.topograph.run/tier-1": "pod-2",
    "fabric.topograph.run/tier-0": "leaf-7",
    "nvidia.com/gpu.clique": "c.1",
    "row": "4",
}


def test_a_node_is_in_every_domain_on_its_path_of_each_view() -> None:
    policy = Policy(views=(View("power", ("row", "feed")),), pools=(Pool("training", {"row": "4"}),))
    seated = seat(policy, Node("n", "u", labels=LABELS, gpus=8), Record())
    assert seated.ledgers == (
        "fleet", "pool/training", "domain/power/4", "domain/zone/r", "domain/zone/r/z", "domain/fabric/pod-2",
        "domain/fabric/pod-2/leaf-7", "domain/nvlink/c.1",
    )  # fmt: skip


def test_a_views_own_labels_go_before_the_built_in_ones() -> None:
    policy = Policy(views=(View("fabric", ("row",)),))
    domains = seat(policy, Node("n", "u", labels=LABELS, gpus=8), Record()).domains
    assert [one for one in domains if "fabric" in one] == ["domain/fabric/4"]


def test_a_gpu_is_an_eighth_of_its_node_and_a_node_that_tells_none_is_whole() -> None:
    record = Record()
    assert part_of(seat(Policy(), Node("n", "u", gpus=8), record)) * 8 == WHOLE
    assert part_of(seat(Policy(), Node("n", "u"), record)) == WHOLE
    assert part_of(seat(Policy(), Node("n", "u", gpus=11), record)) * 11 >= WHOLE


def test_only_a_persons_cordon_and_taint_are_a_persons() -> None:
    ours = Record((Cause(Mark.SUSPECT, "c", "node", "w", 1.0),), cordoned=True)
    taints = (
        Taint("nodeguard.dev/suspect", "NoSchedule", "w"),
        Taint("nodeguard.dev/quarantine", "NoSchedule"),
    )
    seated = seat(Policy(), Node("n", "u", taints=taints, unschedulable=True, gpus=8), ours)
    assert (seated.out, seated.strange) == (False, taints[1:])
    assert seat(Policy(), Node("n", "u", unschedulable=True, gpus=8), Record()).out
