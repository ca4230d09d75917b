"""The aggregator's rights follow the values of the chart, switch by switch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.controlplane.api import Object
from tests.daemonset.helm import Helm, pick
from tests.daemonset.manifests import AGGREGATOR

Right = tuple[str, ...]

CERT_MANAGER = {"certificates": {"mode": "certManager", "certManager": {"issuerRef": {"name": "ca"}}}}
NO_DEVICES = {"policy": {"markWith": {"deviceTaint": False}}}
EVICTIONS: set[Right] = {
    ("pods/eviction", "create"),
    ("poddisruptionbudgets", "list"),
    ("podgroups", "get"),
    ("resourceclaims", "get"),
    ("jobs", "get"),
}

# The rights to Events in all namespaces, beside those in its own.
NOTICES: set[Right] = {("pods", "patch")}

# Values that differ from the defaults, with the rights that they add and remove.
SWITCHES: dict[str, tuple[Mapping[str, Any], set[Right], set[Right]]] = {
    "cordons": ({"policy": {"markWith": {"cordon": True}}}, {("cordons", "create")}, set()),
    "no cordons": ({"policy": {"markWith": {"cordon": False}}}, set(), set()),
    "no marks on devices": (
        NO_DEVICES,
        set(),
        {("devicetaintrules", verb) for verb in ("get", "create", "patch")},
    ),
    "no jobs": ({"jobs": {"read": False}}, set(), {("pods", "list")}),
    "no drains": ({"policy": {"drain": {"mode": "disabled"}}}, set(), set()),
    "observed drains": ({"policy": {"drain": {"mode": "observe"}}}, EVICTIONS, set()),
    "drains": ({"policy": {"drain": {"mode": "enforce"}}}, EVICTIONS, set()),
    "drains and no jobs": (
        {"policy": {"drain": {"mode": "enforce"}}, "jobs": {"read": False}},
        EVICTIONS,
        set(),
    ),
    "announced drains": (
        {"policy": {"drain": {"mode": "observe", "rules": [{"check": "gpu-lost", "when": "deadline"}]}}},
        {*EVICTIONS, *NOTICES},
        set(),
    ),
    "drains at once": (
        {"policy": {"drain": {"mode": "enforce", "rules": [{"check": "gpu-lost", "when": "immediately"}]}}},
        EVICTIONS,
        set(),
    ),
    "cert-manager": (CERT_MANAGER, set(), {("secrets", "create"), ("secrets", "nodeguard-ca", "get")}),
}


def rights(rules: list[Object]) -> set[Right]:
    """Return the rights of rules: the resource, its name if the rule has one, and the verb."""
    return {
        (resource, *((name,) if name else ()), verb)
        for rule in rules
        for resource in rule.get("resources", ())
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def rendered_rights(helm: Helm, values: Mapping[str, Any]) -> tuple[set[Right], set[Right]]:
    """Return the rights of the ClusterRole, and those of the Role in the namespace."""
    rendered = helm.template(values)
    return (
        rights(pick(rendered, "ClusterRole", AGGREGATOR)["rules"]),
        rights(pick(rendered, "Role", AGGREGATOR)["rules"]),
    )


@pytest.mark.parametrize(("values", "added", "removed"), SWITCHES.values(), ids=SWITCHES)
def test_each_switch_adds_and_removes_its_rights(
    values: Mapping[str, Any], added: set[Right], removed: set[Right], helm: Helm
) -> None:
    before, after = (
        {*cluster, *own} for cluster, own in (rendered_rights(helm, {}), rendered_rights(helm, values))
    )
    assert (after - before, before - after) == (added, removed)


def test_an_aggregator_without_the_right_reads_no_jobs(helm: Helm) -> None:
    for values, expected in (({}, False), (SWITCHES["no jobs"][0], True)):
        [container] = pick(helm.template(values), "Deployment", AGGREGATOR)["spec"]["template"]["spec"][
            "containers"
        ]
        assert ("--no-jobs" in container["args"]) == expected


def test_objects_that_exist_are_named(helm: Helm) -> None:
    _, own = rendered_rights(helm, {})
    unnamed = {right for right in own if len(right) == 2}
    # A creation has no name in RBAC: the admission policy nodeguard-objects compares it. Pods, Events and actions
    # have no fixed name.
    assert unnamed == {
        ("pods", "get"),
        ("events", "create"),
        ("events", "patch"),
        *(("nodeactions", verb) for verb in ("get", "list", "watch", "create", "delete")),
        ("nodeactions/status", "update"),
        *((kind, "create") for kind in ("leases", "configmaps", "secrets")),
    }
