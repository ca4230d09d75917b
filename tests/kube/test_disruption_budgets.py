"""Tests for nodeguard.kube.disruption_budgets, with budgets as Kubernetes 1.37 returns them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodeguard.kube.disruption_budgets import decode_budgets
from nodeguard.model.pod import DisruptionBudget, NodePod, PodKey


def budget(
    selector: object,
    allowed: int = 1,
    observed: int = 3,
    policy: str = "",
    healthy: int = 2,
    desired: int = 1,
) -> DisruptionBudget:
    """Return the budget of a list of one. selector: None for none. policy: for pods that are not ready."""
    meta = {"name": "b1", "namespace": "team-a", "uid": "u", "resourceVersion": "5", "generation": 3}
    counts = {"currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": 2, "conditions": []}
    single = {
        "metadata": meta,
        "spec": {
            "minAvailable": desired,
            **({} if selector is None else {"selector": selector}),
            **({"unhealthyPodEvictionPolicy": policy} if policy else {}),
        },
        "status": {**counts, "disruptionsAllowed": allowed, "observedGeneration": observed},
    }
    body = {"kind": "PodDisruptionBudgetList", "metadata": {"resourceVersion": "9"}, "items": [single]}
    [result] = decode_budgets(json.dumps(body).encode())
    return result


def selects(selector: object, namespace: str = "team-a", **labels: str) -> bool:
    return budget(selector).selects(NodePod(PodKey(namespace, "train-0", "u"), "1", labels=labels))


def expression(operator: str, *values: str) -> dict[str, Any]:
    return {
        "matchExpressions": [{"key": "app", "operator": operator, **({"values": values} if values else {})}]
    }


@pytest.mark.parametrize(
    ("selector", "labels", "is_selected"),
    [
        (None, {"app": "train"}, False),
        ({}, {}, True),
        ({}, {"app": "train"}, True),
        ({"matchLabels": {"app": "train"}}, {"app": "train", "x": "y"}, True),
        ({"matchLabels": {"app": "train", "x": "y"}}, {"app": "train"}, False),
        ({"matchLabels": {"app": "train"}}, {}, False),
        (expression("In", "train", "eval"), {"app": "eval"}, True),
        (expression("In", "train", "eval"), {"app": "web"}, False),
        (expression("NotIn", "train"), {"app": "train"}, False),
        (expression("NotIn", "train"), {}, True),
        (expression("Exists"), {"app": ""}, True),
        (expression("Exists"), {}, False),
        (expression("DoesNotExist"), {}, True),
        (expression("DoesNotExist"), {"app": "train"}, False),
        ({"matchLabels": {"x": "y"}, **expression("Exists")}, {"x": "y"}, False),
        ({"matchLabels": {"x": "y"}, **expression("Exists")}, {"x": "y", "app": "a"}, True),
    ],
    ids=str,
)
def test_a_selector_selects_as_in_kubernetes(
    selector: object, labels: dict[str, str], is_selected: bool
) -> None:
    assert selects(selector, **labels) is is_selected


def test_a_budget_selects_no_pod_of_another_namespace() -> None:
    assert not selects({}, namespace="team-b")


def test_an_unknown_operator_forbids_each_eviction_of_the_namespace() -> None:
    assert selects(expression("Matches", "t.*"), app="web")
    unknown = budget(expression("Matches", "t.*"), allowed=4, policy="AlwaysAllow")
    assert (unknown.allowed, unknown.frees_unready) == (0, False)
    assert budget(expression("In", "web"), allowed=4).allowed == 4


@pytest.mark.parametrize(("observed", "is_current"), [(2, False), (3, True), (4, True)])
def test_a_status_of_an_earlier_spec_is_not_current(observed: int, is_current: bool) -> None:
    assert budget({}, observed=observed).is_current is is_current


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "observed", "is_free"),
    [
        ("", 2, 2, 3, True),
        ("IfHealthyBudget", 2, 2, 3, True),
        ("IfHealthyBudget", 1, 2, 3, False),
        ("IfHealthyBudget", 2, 0, 3, False),
        ("IfHealthyBudget", 2, 2, 2, False),
        ("AlwaysAllow", 1, 2, 2, True),
        ("OfALaterVersion", 2, 2, 3, False),
    ],
)
def test_a_pod_that_is_not_ready_is_free_by_the_policy_of_its_budget(
    policy: str, healthy: int, desired: int, observed: int, is_free: bool
) -> None:
    found = budget({}, observed=observed, policy=policy, healthy=healthy, desired=desired)
    assert found.frees_unready is is_free


def test_a_new_budget_without_a_status_allows_nothing() -> None:
    meta = {"name": "b1", "namespace": "team-a", "uid": "u", "resourceVersion": "5", "generation": 1}
    items = [{"metadata": meta, "spec": {"selector": {}}}]
    [new] = decode_budgets(json.dumps({"metadata": {"resourceVersion": "9"}, "items": items}).encode())
    assert (new.allowed, new.is_current) == (0, False)


def test_a_namespace_without_budgets() -> None:
    assert decode_budgets(b'{"metadata": {"resourceVersion": "9"}, "items": null}') == ()
