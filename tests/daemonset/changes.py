"""Changes of Nodes, by whom the admission policies admit them."""

from __future__ import annotations

from typing import NamedTuple

from tests.controlplane.api import Object, Patch

STATE, HOLD = "nodeguard.dev/state", "nodeguard.dev/hold"
FOREIGN = {"key": "example.com/theirs", "effect": "NoSchedule"}
MARK = {"key": "nodeguard.dev/quarantine", "value": "gpu", "effect": "NoSchedule"}
OTHER_MARK = {"key": "nodeguard.dev/suspect", "value": "link", "effect": "NoSchedule"}
CORDONED = '{"causes":[],"cordoned":true}'
HEALTHY = {"type": "NodeguardHealthy", "status": "False", "reason": "Quarantined", "message": "test"}


class Change(NamedTuple):
    """A change of a Node. status: of its status."""

    body: Object
    status: bool = False
    kind: Patch = "merge"


def taints(*items: Object) -> Change:
    return Change({"spec": {"taints": list(items)}})


def annotate(**items: str | None) -> Change:
    return Change(
        {"metadata": {"annotations": {f"nodeguard.dev/{key}": text for key, text in items.items()}}}
    )


def condition(**fields: str) -> Change:
    return Change({"status": {"conditions": [fields]}}, status=True, kind="strategic-merge")


# What removes or forges a mark.
MARK_CHANGES = {
    "taint removed": taints(FOREIGN),
    "taint changed": taints(FOREIGN, {**MARK, "value": "other"}),
    "taint added": taints(FOREIGN, MARK, OTHER_MARK),
    "many taints added": taints(
        FOREIGN, *({"key": f"nodeguard.dev/x{i}", "effect": "NoSchedule"} for i in range(600)), MARK
    ),
    "state removed": annotate(state=None),
    "state removed through the status": Change(annotate(state=None).body, status=True),
    "state changed": annotate(state="{}"),
    "epoch forged": annotate(epoch="99999"),
    "condition changed": condition(**{**HEALTHY, "status": "True"}),
    "condition's message changed": condition(**{**HEALTHY, "message": "other"}),
    "condition removed": Change(
        {"status": {"conditions": [{"$patch": "delete", "type": "NodeguardHealthy"}]}},
        True,
        "strategic-merge",
    ),
}


# What leaves the marks as they are.
OTHER_CHANGES = {
    "hold": annotate(hold="by ada"),
    "maintenance": annotate(maintenance="firmware"),
    "cordon": Change({"spec": {"unschedulable": True}}),
    "label": Change({"metadata": {"labels": {"example.com/rack": "r1"}}}),
    "foreign taint removed": taints(MARK),
    "another taint": taints(FOREIGN, MARK, {"key": "example.com/more", "effect": "NoExecute"}),
    "order of the taints": taints(MARK, FOREIGN),
    "heartbeat": condition(type="Ready", status="True", reason="KubeletReady", message="again"),
}


# What the aggregator writes, and what it must not write.
OWN_WRITES = {
    "marks": Change(
        {
            "metadata": {"annotations": {STATE: "{}", "nodeguard.dev/epoch": "2"}},
            "spec": {"taints": [FOREIGN, MARK, OTHER_MARK]},
        }
    ),
    "release": Change(
        {
            "metadata": {"annotations": {STATE: None, "nodeguard.dev/epoch": None}},
            "spec": {"taints": [FOREIGN]},
        }
    ),
    "hold by `nodeguard unmark`": annotate(hold="ada: test"),
    "condition": condition(**{**HEALTHY, "status": "True", "reason": "Healthy"}),
    "condition removed": MARK_CHANGES["condition removed"],
    "condition of a drain": condition(
        type="Drained", status="True", reason="NodeguardDrained", message="8 of 8 pods have left"
    ),
}


FOREIGN_WRITES = {
    "label": OTHER_CHANGES["label"],
    "label through the status": Change(OTHER_CHANGES["label"].body, status=True),
    "annotation": Change({"metadata": {"annotations": {"example.com/mine": "x"}}}),
    "annotation removed": Change({"metadata": {"annotations": {"example.com/theirs": None}}}),
    "annotation changed": Change({"metadata": {"annotations": {"example.com/theirs": "y"}}}),
    "empty annotation removed": Change({"metadata": {"annotations": {"example.com/empty": None}}}),
    "annotation replaced": Change(
        {"metadata": {"annotations": {"example.com/theirs": None, "example.com/mine": "x"}}}
    ),
    "maintenance": OTHER_CHANGES["maintenance"],
    "cordon": OTHER_CHANGES["cordon"],
    "claim of a cordon": annotate(state=CORDONED),
    "taint removed": OTHER_CHANGES["foreign taint removed"],
    "taint added": taints(FOREIGN, MARK, {"key": "example.com/more", "effect": "NoSchedule"}),
    "taint that evicts": taints(FOREIGN, MARK, {**OTHER_MARK, "effect": "NoExecute"}),
    "provider": Change({"spec": {"providerID": "x://y"}}),
    "finalizer": Change({"metadata": {"finalizers": ["example.com/x"]}}),
    "condition of another drain": condition(type="Drained", status="True", reason="Kubectl", message="x"),
    "other condition": condition(type="Ready", status="False", reason="Forged", message="x"),
    "features": Change({"status": {"features": {"supplementalGroupsPolicy": True}}}, status=True),
    "capacity": Change({"status": {"capacity": {"nvidia.com/gpu": "0"}}}, status=True),
}
