"""DeviceTaintRule objects of nodeguard: each keeps new work off one device of a Node. Pure.

The Node owns the rule, so Kubernetes deletes both together.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from nodeguard.kube.node_patch import MarkError
from nodeguard.model.mark import EPOCH_ANNOTATION, NO_SCHEDULE, STATE_ANNOTATION, DeviceRule
from nodeguard.model.node import PREFIX, Taint

# The label and value that distinguish nodeguard's rules from all others.
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "nodeguard"


class _Owner(Struct):
    kind: str
    name: str
    uid: str


class _Meta(Struct):
    name: str
    uid: str
    version: str = field(name="resourceVersion")
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owners: list[_Owner] = field(name="ownerReferences", default_factory=list)


class _Selector(Struct):
    driver: str = ""
    pool: str = ""
    device: str = ""


class _Spec(Struct):
    taint: Taint
    selector: _Selector = field(name="deviceSelector", default_factory=_Selector)


class _Object(Struct):
    metadata: _Meta
    spec: _Spec


class ObservedRule(Struct, frozen=True):
    """A rule in the cluster. uid, version: of the object. annotations: those with nodeguard's prefix.
    is_managed: whether it has nodeguard's label.
    """

    uid: str
    version: str
    rule: DeviceRule
    annotations: dict[str, str]
    is_managed: bool


_DECODER = msgspec.json.Decoder(_Object)


def decode_rule(raw: msgspec.Raw | bytes) -> ObservedRule:
    """Return the rule of an object's JSON. Raises msgspec.MsgspecError."""
    decoded = _DECODER.decode(raw)
    meta, selector, taint = decoded.metadata, decoded.spec.selector, decoded.spec.taint
    owner = next((owner for owner in meta.owners if owner.kind == "Node"), _Owner("", "", ""))
    annotations = {key: text for key, text in meta.annotations.items() if key.startswith(PREFIX)}
    rule = DeviceRule(
        name=meta.name,
        node=owner.name,
        uid=owner.uid,
        driver=selector.driver,
        pool=selector.pool,
        device=selector.device,
        # Without the time, which the server adds.
        taint=Taint(taint.key, taint.effect, taint.value),
        state=annotations.get(STATE_ANNOTATION, ""),
    )
    return ObservedRule(
        meta.uid, meta.version, rule, annotations, meta.labels.get(MANAGED_BY_LABEL) == MANAGER
    )


def rule_body(rule: DeviceRule, epoch: int) -> dict[str, Any]:
    """Return the object of a rule, which is also the merge patch that corrects one. Raises MarkError."""
    if rule.taint.effect != NO_SCHEDULE:
        raise MarkError(f"{rule.name}: the effect of a device's taint must be {NO_SCHEDULE}")
    if not (rule.driver and rule.pool and rule.device):
        raise MarkError(f"{rule.name}: a rule without driver, pool and device would taint many devices")
    owner = {"apiVersion": "v1", "kind": "Node", "name": rule.node, "uid": rule.uid}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": rule.name,
            "labels": {MANAGED_BY_LABEL: MANAGER},
            "annotations": {STATE_ANNOTATION: rule.state, EPOCH_ANNOTATION: str(epoch)},
            "ownerReferences": [owner],
        },
        "spec": {
            "deviceSelector": {"driver": rule.driver, "pool": rule.pool, "device": rule.device},
            "taint": {"key": rule.taint.key, "value": rule.taint.value, "effect": rule.taint.effect},
        },
    }
