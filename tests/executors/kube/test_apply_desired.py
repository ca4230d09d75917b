from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.executors.kube.cluster import ObservedCluster
from nodeguard.executors.kube.desired import DesiredNode, apply_desired
from nodeguard.kube.node_patch import condition_patch
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.mark import HOLD_ANNOTATION, STATE_ANNOTATION
from nodeguard.model.node import DETAILS_PREFIX, PREFIX, Node, NodeCondition, Taint

THEIRS = Taint("nvidia.com/gpu", "NoSchedule", "present")
OURS = Taint(f"{PREFIX}quarantine", "NoSchedule", "gpu-bus")
NODE = Node("gpu-1", "u1", taints=(THEIRS,), annotations={HOLD_ANNOTATION: "alice"}, gpus=8)


def test_fields_of_others_stay() -> None:
    marked = apply_desired(
        NODE, DesiredNode("u1", "gpu-1", (OURS,), "{}", cordon=True, condition=NodeCondition("False", "X"))
    )
    assert marked.taints == (THEIRS, OURS)
    assert marked.annotations == {HOLD_ANNOTATION: "alice", STATE_ANNOTATION: "{}"}
    assert (marked.unschedulable, marked.condition) == (True, NodeCondition("False", "X"))
    assert (
        apply_desired(marked, DesiredNode("u1", "gpu-1", cordon=False, condition=NodeCondition("", "")))
        == NODE
    )


def test_fields_outside_the_plan_stay() -> None:
    marked = apply_desired(
        NODE, DesiredNode("u1", "gpu-1", (OURS,), "{}", cordon=True, condition=NodeCondition("False", "X"))
    )
    assert apply_desired(marked, DesiredNode("u1", "gpu-1", (OURS,), "{}")) == marked


def test_a_node_without_nodeguard_keeps_an_operators_cordon() -> None:
    ours = '{"cordoned":true}'
    marked = apply_desired(
        NODE, DesiredNode("u1", "gpu-1", (OURS,), ours, cordon=True, condition=NodeCondition("False", "X"))
    )
    cluster = ObservedCluster()
    node, observed = cluster.update_node(marked)
    assert node == InventoryNode("u1", "gpu-1", hold="alice", gpus=8)
    assert observed.is_out
    node, observed = cluster.update_node(apply_desired(marked, DesiredNode("u1", "gpu-1", (OURS,), "{}")))
    assert (node.out_by_operator, observed.is_out) == (True, False)


texts = st.sampled_from(["", "91 °C", "92 °C", "x" * 1020, "x" * 2000, f"{DETAILS_PREFIX}y"])
details = st.sampled_from(
    ["", DETAILS_PREFIX, f"{DETAILS_PREFIX}a", f"{DETAILS_PREFIX}b", f"{DETAILS_PREFIX}{'z' * 2000}"]
)
conditions = st.builds(
    NodeCondition,
    st.sampled_from(["True", "False"]),
    st.sampled_from(["Healthy", "Suspect"]),
    st.builds("{} {}".format, texts, details),
)


@given(st.none() | conditions, conditions | st.just(NodeCondition("", "")))
def test_the_condition_is_what_the_cluster_has_after_the_patch(
    before: NodeCondition | None, wanted: NodeCondition
) -> None:
    node = replace(NODE, condition=before)
    patch = condition_patch(node, wanted, 0.0)
    after = apply_desired(node, DesiredNode("u1", "gpu-1", condition=wanted))
    if patch is None:
        assert after.condition == before
    else:
        [written] = patch["status"]["conditions"]
        found = NodeCondition(
            written.get("status", ""), written.get("reason", ""), written.get("message", "")
        )
        assert after.condition == (None if "$patch" in written else found)
    assert condition_patch(after, wanted, 0.0) is None
