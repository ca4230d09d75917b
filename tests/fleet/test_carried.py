from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.carried import carried
from nodeguard.fleet.steps import bare
from nodeguard.kube.conditions import condition_patch
from nodeguard.model.mark import HOLD, STATE, Desired
from nodeguard.model.node import DETAILS, PREFIX, Condition, Node, Taint

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


texts = st.sampled_from(["", "91 °C", "92 °C", "x" * 1020, "x" * 2000, f"{DETAILS}y"])
details = st.sampled_from(["", DETAILS, f"{DETAILS}a", f"{DETAILS}b", f"{DETAILS}{'z' * 2000}"])
conditions = st.builds(
    Condition,
    st.sampled_from(["True", "False"]),
    st.sampled_from(["Healthy", "Suspect"]),
    st.builds("{} {}".format, texts, details),
)


@given(st.none() | conditions, conditions | st.just(Condition("", "")))
def test_the_condition_is_what_the_cluster_has_after_the_patch(
    before: Condition | None, wanted: Condition
) -> None:
    node = replace(NODE, condition=before)
    patch = condition_patch(node, wanted, 0.0)
    after = carried(node, Desired("u1", "gpu-1", condition=wanted))
    if patch is None:
        assert after.condition == before
    else:
        [written] = patch["status"]["conditions"]
        found = Condition(written.get("status", ""), written.get("reason", ""), written.get("message", ""))
        assert after.condition == (None if "$patch" in written else found)
    assert condition_patch(after, wanted, 0.0) is None
