from __future__ import annotations

from nodeguard.fleet.carried import carried
from nodeguard.fleet.steps import bare
from nodeguard.model.mark import HOLD, STATE, Desired
from nodeguard.model.node import PREFIX, Condition, Node, Taint

THEIRS = Taint("nvidia.com/gpu", "NoSchedule", "present")
OURS = Taint(f"{PREFIX}quarantine", "NoSchedule", "gpu-bus")
NODE = Node("gpu-1", "u1", taints=(THEIRS,), annotations={HOLD: "alice"}, gpus=8)


def test_what_is_not_nodeguards_stays_as_it_is() -> None:
    marked = carried(
        NODE, Desired("u1", "gpu-1", (OURS,), "{}", cordon=True, condition=Condition("False", "X"))
    )
    assert marked.taints == (THEIRS, OURS)
    assert marked.annotations == {HOLD: "alice", STATE: "{}"}
    assert (marked.unschedulable, marked.condition) == (True, Condition("False", "X"))
    assert carried(marked, Desired("u1", "gpu-1", cordon=False, condition=Condition("", ""))) == NODE


def test_what_a_plan_leaves_alone_stays() -> None:
    marked = carried(
        NODE, Desired("u1", "gpu-1", (OURS,), "{}", cordon=True, condition=Condition("False", "X"))
    )
    assert carried(marked, Desired("u1", "gpu-1", (OURS,), "{}")) == marked


def test_a_bare_node_has_nothing_of_nodeguards_and_a_persons_cordon() -> None:
    ours = '{"cordoned":true}'
    marked = carried(
        NODE, Desired("u1", "gpu-1", (OURS,), ours, cordon=True, condition=Condition("False", "X"))
    )
    assert bare(marked) == Node("gpu-1", "u1", annotations={HOLD: "alice"}, gpus=8)
    assert bare(carried(marked, Desired("u1", "gpu-1", (OURS,), "{}"))).unschedulable
