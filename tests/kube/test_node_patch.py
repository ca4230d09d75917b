from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.executors.kube.desired import DesiredNode
from nodeguard.kube import nodes
from nodeguard.kube.node_patch import (
    MarkError,
    condition_patch,
    is_cordon_recorded,
    mark_patch,
    written_epoch,
)
from nodeguard.model.mark import EPOCH_ANNOTATION, STATE_ANNOTATION, MarkRecord
from nodeguard.model.node import DETAILS_PREFIX, PREFIX, Node, NodeCondition, Taint
from tests.fleet.cluster_planner import apply_desired

QUARANTINE = Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu")
SUSPECT = Taint("nodeguard.dev/suspect", "NoSchedule", "gpu")
NODE = Node("gpu-7", "u7", "41", taints=(Taint("foreign", "NoExecute", "x", "2026-01-01T00:00:00Z"),))
CORDONED = msgspec.json.encode(MarkRecord(cordoned=True)).decode()


def wanted(**fields: Any) -> DesiredNode:
    return replace(DesiredNode("u7", "gpu-7"), **fields)


def patched(node: Node, patch: dict[str, Any] | None) -> Node:
    """Return a Node after a merge patch, as an API server applies it."""
    if patch is None:
        return node
    meta, spec = patch["metadata"], patch.get("spec", {})
    assert (meta["uid"], meta["resourceVersion"]) == (node.uid, node.version)
    annotations = node.annotations | meta["annotations"]
    body: dict[str, Any] = {
        "metadata": {
            "name": node.name,
            "uid": node.uid,
            "resourceVersion": str(int(node.version) + 1),
            "labels": node.labels,
            "annotations": {key: text for key, text in annotations.items() if text is not None},
        },
        "spec": {"unschedulable": bool(spec.get("unschedulable", node.unschedulable))},
    }
    if "taints" in spec:
        body["spec"]["taints"] = spec["taints"] or []
        return nodes.decode_node(msgspec.json.encode(body))
    return replace(nodes.decode_node(msgspec.json.encode(body)), taints=node.taints)


def test_a_mark_is_added_after_foreign_taints_with_its_state_and_epoch() -> None:
    patch = mark_patch(NODE, wanted(taints=(QUARANTINE,), state="{}"), 3)
    assert patch == {
        "metadata": {
            "uid": "u7",
            "resourceVersion": "41",
            "annotations": {STATE_ANNOTATION: "{}", EPOCH_ANNOTATION: "3"},
        },
        "spec": {
            "taints": [
                {"key": "foreign", "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
                {"key": "nodeguard.dev/quarantine", "value": "gpu", "effect": "NoSchedule"},
            ]
        },
    }


def test_a_mark_is_removed_with_its_annotations() -> None:
    marked = replace(
        NODE, taints=(*NODE.taints, QUARANTINE), annotations={STATE_ANNOTATION: "{}", EPOCH_ANNOTATION: "3"}
    )
    patch = mark_patch(marked, wanted(), 4)
    assert patch is not None
    assert patch["metadata"]["annotations"] == {STATE_ANNOTATION: None, EPOCH_ANNOTATION: None}
    assert patched(marked, patch).taints == NODE.taints
    without_foreign = replace(marked, taints=(QUARANTINE,))
    assert (mark_patch(without_foreign, wanted(), 4) or {})["spec"] == {"taints": None}


def test_a_new_epoch_without_other_changes_is_not_written() -> None:
    marked = replace(NODE, taints=(QUARANTINE,), annotations={STATE_ANNOTATION: "{}", EPOCH_ANNOTATION: "3"})
    assert mark_patch(marked, wanted(taints=(QUARANTINE,), state="{}"), 9) is None
    assert mark_patch(replace(NODE, annotations={EPOCH_ANNOTATION: "3"}), wanted(), 9) is None


@pytest.mark.parametrize(
    ("unschedulable", "state", "cordon", "expected"),
    [
        (False, "", True, {"unschedulable": True}),
        (False, "", False, None),
        (False, "", None, None),
        (True, CORDONED, True, None),
        (True, CORDONED, False, {"unschedulable": None}),
        (True, CORDONED, None, None),
        (True, "{}", False, None),
        (True, "not JSON", False, None),
    ],
)
def test_only_nodeguards_own_cordon_is_removed(
    unschedulable: bool, state: str, cordon: bool | None, expected: dict[str, Any] | None
) -> None:
    node = replace(NODE, unschedulable=unschedulable, annotations={STATE_ANNOTATION: state} if state else {})
    patch = mark_patch(node, wanted(state="{}", cordon=cordon), 1) or {}
    assert patch.get("spec") == expected


def test_an_operators_cordon_is_not_recorded_as_nodeguards() -> None:
    cordoned = replace(NODE, unschedulable=True)
    desired = wanted(taints=(QUARANTINE,), state=CORDONED, cordon=True)
    patch = mark_patch(cordoned, desired, 1)
    assert patch is not None
    assert "unschedulable" not in patch["spec"]
    after = patched(cordoned, patch)
    assert not is_cordon_recorded(after.annotations[STATE_ANNOTATION])
    assert mark_patch(after, desired, 1) is None
    released = patched(after, mark_patch(after, wanted(cordon=False), 1))
    assert released.unschedulable


@pytest.mark.parametrize(
    ("taint", "reason"),
    [
        (Taint("nodeguard.dev/quarantine", "NoExecute"), "never written"),
        (Taint("example.com/mine", "NoSchedule"), "does not belong to nodeguard"),
    ],
)
def test_some_taints_are_never_written(taint: Taint, reason: str) -> None:
    with pytest.raises(MarkError, match=reason):
        mark_patch(NODE, wanted(taints=(taint,)), 1)


def test_a_taint_that_an_operator_set_stays() -> None:
    manual = Taint("nodeguard.dev/quarantine", "NoExecute", "by-hand")
    node = replace(NODE, taints=(*NODE.taints, manual))
    patch = mark_patch(node, wanted(taints=(manual, SUSPECT)), 1)
    assert patch is not None
    assert {"key": manual.key, "value": "by-hand", "effect": "NoExecute"} in patch["spec"]["taints"]


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        *(("7", 7), ("", 0), ("-1", 0), ("x", 0), ("\u0663", 0), ("9" * 19, 0)),
        *((str(2**30 - 1), 2**30 - 1), (str(2**30), 0)),
    ],
)
def test_an_epoch_is_a_number(text: str, epoch: int) -> None:
    assert written_epoch({EPOCH_ANNOTATION: text}) == epoch


EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule"])
OURS = st.builds(
    Taint, st.sampled_from([f"{PREFIX}quarantine", f"{PREFIX}suspect"]), EFFECTS, st.sampled_from("ab")
)
THEIRS = st.builds(
    Taint,
    st.sampled_from(["a", "node.kubernetes.io/unschedulable", "nodeguard.devs/x"]),
    st.sampled_from(["NoSchedule", "NoExecute"]),
    st.sampled_from(["", "x"]),
    st.sampled_from(["", "2026-01-01T00:00:00Z"]),
)
STATES = st.sampled_from(["", "{}", CORDONED, '{"causes":[],"cordoned":true,"new":1}', "garbage"])
ANNOTATIONS = st.dictionaries(
    st.sampled_from([f"{PREFIX}hold", f"{PREFIX}maintenance", EPOCH_ANNOTATION]), st.sampled_from(["1", "x"])
)


def taint_key(taint: Taint) -> tuple[str, str]:
    return taint.key, taint.effect


NODES = st.builds(
    lambda taints, state, annotations, unschedulable: Node(
        "gpu-7",
        "u7",
        "41",
        {"rack": "r1"},
        annotations | ({STATE_ANNOTATION: state} if state else {}),
        tuple(taints),
        unschedulable,
    ),
    st.lists(OURS | THEIRS, unique_by=taint_key),
    STATES,
    ANNOTATIONS,
    st.booleans(),
)
DESIRED = st.builds(
    lambda taints, state, cordon: DesiredNode("u7", "gpu-7", tuple(taints), state, cordon),
    st.lists(OURS),
    STATES,
    st.none() | st.booleans(),
)


@given(NODES, DESIRED, st.integers(0, 99))
def test_foreign_fields_never_change_and_own_fields_are_as_desired(
    node: Node, desired: DesiredNode, epoch: int
) -> None:
    after = patched(node, mark_patch(node, desired, epoch))

    def foreign(taints: tuple[Taint, ...]) -> list[Taint]:
        return [taint for taint in taints if not taint.key.startswith(PREFIX)]

    assert foreign(after.taints) == foreign(node.taints)
    assert after.labels == node.labels
    assert {
        key: after.annotations.get(key)
        for key in node.annotations
        if key not in {STATE_ANNOTATION, EPOCH_ANNOTATION}
    } == {
        key: text for key, text in node.annotations.items() if key not in {STATE_ANNOTATION, EPOCH_ANNOTATION}
    }
    keys = [taint_key(taint) for taint in after.taints]
    assert len(keys) == len(set(keys))
    ours = {taint for taint in after.taints if taint.key.startswith(PREFIX)}
    assert {taint_key(taint) for taint in ours} == {taint_key(taint) for taint in desired.taints}
    assert ours <= set(desired.taints)
    assert mark_patch(after, desired, epoch + 1) is None
    if node.unschedulable and not is_cordon_recorded(node.annotations.get(STATE_ANNOTATION, "")):
        assert after.unschedulable
    if desired.cordon is None:
        assert after.unschedulable == node.unschedulable


NOW = 1_800_000_000.0
THEN = "2027-01-15T08:00:00Z"
UNHEALTHY = NodeCondition("False", "GpuLost", "GPU 0000:3b:00 fell off the bus")
BARE_NODE = Node("gpu-7", "u7", "41")


def test_a_first_condition_is_a_transition() -> None:
    assert condition_patch(BARE_NODE, UNHEALTHY, NOW) == {
        "metadata": {"uid": "u7"},
        "status": {
            "conditions": [
                {
                    "type": "NodeguardHealthy",
                    "status": "False",
                    "reason": "GpuLost",
                    "message": "GPU 0000:3b:00 fell off the bus",
                    "lastHeartbeatTime": THEN,
                    "lastTransitionTime": THEN,
                }
            ]
        },
    }


@pytest.mark.parametrize(
    ("status", "reason", "written", "is_transition"),
    [
        ("False", "GpuLost", False, False),
        ("False", "LinkDown", True, False),
        ("True", "GpuLost", True, True),
        ("Unknown", "AgentStale", True, True),
    ],
)
def test_a_transition_is_a_change_of_status(
    status: str, reason: str, written: bool, is_transition: bool
) -> None:
    patch = condition_patch(
        replace(BARE_NODE, condition=UNHEALTHY), NodeCondition(status, reason, "other words"), NOW
    )
    assert (patch is not None) == written
    if patch is not None:
        (condition,) = patch["status"]["conditions"]
        assert ("lastTransitionTime" in condition) == is_transition


def test_a_changed_cause_is_written_and_a_changed_reading_is_not() -> None:
    hot = NodeCondition(
        "False", "Quarantined", "GPU 1 has 91 °C. Details: nodeguard explain node gpu-7 (gpu-hot on GPU 1)."
    )
    node = replace(BARE_NODE, condition=hot)
    assert condition_patch(node, replace(hot, message=hot.message.replace("91", "92")), NOW) is None
    also = replace(hot, message="GPU 1 has 91 °C. Details: nodeguard explain node gpu-7 (gpu-ecc on GPU 1).")
    patch = condition_patch(node, also, NOW)
    assert patch is not None
    assert patch["status"]["conditions"][0]["message"] == also.message


def test_a_long_message_keeps_its_reference() -> None:
    patch = condition_patch(BARE_NODE, replace(UNHEALTHY, message=f"{'x' * 9999} Details: see there"), NOW)
    assert patch is not None
    message = patch["status"]["conditions"][0]["message"]
    assert len(message) == 1024
    assert message.endswith("x… Details: see there")


def test_a_long_message_is_not_written_twice() -> None:
    for message in (f"{'x' * 9999} Details: see there", f"x Details: {'y' * 9999}", "x" * 9999):
        wanted = replace(UNHEALTHY, message=message)
        patch = condition_patch(BARE_NODE, wanted, NOW)
        assert patch is not None
        [written] = patch["status"]["conditions"]
        node = replace(BARE_NODE, condition=replace(wanted, message=written["message"]))
        assert condition_patch(node, wanted, NOW) is None


def test_an_existing_condition_is_removed() -> None:
    removed = NodeCondition("", "")
    assert condition_patch(BARE_NODE, removed, NOW) is None
    assert condition_patch(replace(BARE_NODE, condition=UNHEALTHY), removed, NOW) == {
        "metadata": {"uid": "u7"},
        "status": {"conditions": [{"$patch": "delete", "type": "NodeguardHealthy"}]},
    }


def test_a_message_is_cut() -> None:
    patch = condition_patch(BARE_NODE, replace(UNHEALTHY, message="x" * 9999), NOW)
    assert patch is not None
    assert len(patch["status"]["conditions"][0]["message"]) == 1024


_TEXTS = st.sampled_from(["", "91 °C", "92 °C", "x" * 1020, "x" * 2000, f"{DETAILS_PREFIX}y"])
_DETAILS = st.sampled_from(
    ["", DETAILS_PREFIX, f"{DETAILS_PREFIX}a", f"{DETAILS_PREFIX}b", f"{DETAILS_PREFIX}{'z' * 2000}"]
)
_CONDITIONS = st.builds(
    NodeCondition,
    st.sampled_from(["True", "False"]),
    st.sampled_from(["Healthy", "Suspect"]),
    st.builds("{} {}".format, _TEXTS, _DETAILS),
)


@given(st.none() | _CONDITIONS, _CONDITIONS | st.just(NodeCondition("", "")))
def test_the_condition_is_what_the_cluster_has_after_the_patch(
    before: NodeCondition | None, wanted: NodeCondition
) -> None:
    node = replace(BARE_NODE, condition=before)
    patch = condition_patch(node, wanted, 0.0)
    after = apply_desired(node, DesiredNode(node.uid, node.name, condition=wanted))
    if patch is None:
        assert after.condition == before
    else:
        [written] = patch["status"]["conditions"]
        found = NodeCondition(
            written.get("status", ""), written.get("reason", ""), written.get("message", "")
        )
        assert after.condition == (None if "$patch" in written else found)
    assert condition_patch(after, wanted, 0.0) is None
