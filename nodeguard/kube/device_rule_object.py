"""DeviceTaintRules of nodeguard's: what keeps work off one device of a Node. Pure.

A rule is owned by its Node: it goes with it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from nodeguard.kube.node_patch import MarkError
from nodeguard.model.mark import EPOCH_ANNOTATION, NO_SCHEDULE, STATE_ANNOTATION, DeviceRule
from nodeguard.model.node import PREFIX, Taint

# What tells nodeguard's rules from all others.
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
    """A rule as it stands in the cluster. uid, version: of the object. annotations: those of PREFIX."""

    uid: str
    version: str
    rule: DeviceRule
    annotations: dict[str, str]
    is_managed: bool


_DECODER = msgspec.json.Decoder(_Object)


def decode_rule(raw: msgspec.Raw | bytes) -> ObservedRule:
    """An object's JSON. Raises msgspec.MsgspecError."""
    said = _DECODER.decode(raw)
    meta, selector, taint = said.metadata, said.spec.selector, said.spec.taint
    owner = next((one for one in meta.owners if one.kind == "Node"), _Owner("", "", ""))
    annotations = {key: text for key, text in meta.annotations.items() if key.startswith(PREFIX)}
    rule = DeviceRule(
        name=meta.name,
        node=owner.name,
        uid=owner.uid,
        driver=selector.driver,
        pool=selector.pool,
        device=selector.device,
        # The server notes on its own when a device was tainted.
        taint=Taint(taint.key, taint.effect, taint.value),
        state=annotations.get(STATE_ANNOTATION, ""),
    )
    return ObservedRule(
        meta.uid, meta.version, rule, annotations, meta.labels.get(MANAGED_BY_LABEL) == MANAGER
    )


def rule_body(rule: DeviceRule, epoch: int) -> dict[str, Any]:
    """A rule as an object, and as the merge patch that puts one right. Raises MarkError."""
    if rule.taint.effect != NO_SCHEDULE:
        raise MarkError(f"{rule.name}: a device's taint keeps new work away and does nothing else")
    if not (rule.driver and rule.pool and rule.device):
        raise MarkError(f"{rule.name}: a rule without driver, pool and device would take many devices")
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
