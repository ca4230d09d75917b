"""Values that the chart refuses, and what its notes say of those that it accepts."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tests.daemonset.chart_values import SITE_CHECK
from tests.daemonset.helm import CHART, RELEASE, Helm
from tests.daemonset.manifests import NAMESPACE


def nested(path: str, value: object) -> dict[str, Any]:
    """Return the values with one value at a path."""
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


ENFORCED = {"mode": "enforce", "check": "gpu-lost"}
REFUSED = {
    "a typo": ({"agent": {"tolerationz": []}}, "'tolerationz' not allowed"),
    "a typo of a section": ({"podMonitor": {}}, "'podMonitor' not allowed"),
    "a type": ({"aggregator": {"replicas": "two"}}, "/aggregator/replicas': got string, want integer"),
    "a mode": ({"certificates": {"mode": "cert-manager"}}, "must be one of 'builtin', 'certManager'"),
    "no issuer": ({"certificates": {"mode": "certManager"}}, "issuerRef': missing property 'name'"),
    "a policy key": ({"policy": {"budgets": {}}}, "'/policy': additional properties 'budgets'"),
    "a policy value": ({"policy": {"defaultMode": "on"}}, "must be one of 'enforce', 'observe'"),
    "a setting of the chart": ({"agent": {"settings": {"listen": "x"}}}, "'listen' not allowed"),
    "a digest": ({"agent": {"image": {"digest": "latest"}}}, "/agent/image/digest"),
    "the policy as a file": ({"policyFiles": {"policy.yaml": "x"}}, "'/policyFiles/policy.yaml'"),
    "a standard label": (
        {"commonLabels": {"app.kubernetes.io/name": "x"}},
        "/commonLabels/app.kubernetes.io~1name'",
    ),
    "a variable of the chart": (
        {"agent": {"extraEnv": [{"name": "NODE_NAME", "value": "x"}]}},
        "/agent/extraEnv/0/name': 'not' failed",
    ),
    "a check's file": ({"siteChecks": {"a.txt": "x"}}, "'a.txt' not allowed"),
    "a webhook without a name": ({"notifications": {"webhooks": [{}]}}, "missing property 'name'"),
    "a typo of a webhook": ({"notifications": {"webhook": []}}, "'webhook' not allowed"),
    "no registry": (
        {"image": {"tag": "1.2.3"}},
        "image.registry is empty: set it to the registry with your images",
    ),
    "more than all": (
        {"policy": {"budget": {"fleet": "200%"}}},
        "'/policy/budget/fleet': value must be 'text like 5% or 2.5%, at most 100%'",
    ),
    "a share without a unit": (
        {"policy": {"budget": {"fleet": 5}}},
        "'/policy/budget/fleet': value must be 'text like 5% or 2.5%, at most 100%'",
    ),
    "a pattern of checks": (
        {"policy": {"modeRules": [ENFORCED, {"mode": "enforce", "checks": ["GPU_LOST"]}]}},
        "'/policy/modeRules/1/checks/0': value must be 'text like gpu-* or gpu-lost'",
    ),
    "a webhook's name": (
        {"notifications": {"webhooks": [{"name": "On Call"}]}},
        "'/notifications/webhooks/0/name': value must be 'text like training or pool-1'",
    ),
    "a registry with a scheme": (
        {"image": {"registry": "https://registry.example"}},
        "'/image/registry': value must be 'a host and a path in lower case without https://",
    ),
    "more than all of a pool": (
        {"policy": {"pools": [{"name": "a", "labels": {"a": "b"}, "share": "100.1%"}]}},
        "'/policy/pools/0/share': value must be 'text like 5%",
    ),
    "no aggregator": ({"aggregator": {"replicas": 0}}, "/aggregator/replicas': minimum: got 0, want 1"),
    "no upgrade": ({"agent": {"maxUnavailable": 0}}, "/agent/maxUnavailable': minimum: got 0, want 1"),
    "no upgrade, as a share": (
        {"agent": {"maxUnavailable": "0%"}},
        "/agent/maxUnavailable': value must be 'a number of nodes such as 5, or a share",
    ),
    **{
        f"an unknown check of {field.split('.')[-1]}": (
            {"policy": policy},
            f"policy.{field}[{number}]: no check is named gpu-lsot: see `nodeguard checks`",
        )
        for field, number, policy in (
            ("modeRules", 1, {"modeRules": [ENFORCED, {"mode": "enforce", "check": "gpu-lsot"}]}),
            ("modeRules", 0, {"modeRules": [{"mode": "enforce", "checks": ["gpu-*", "gpu-lsot"]}]}),
            ("holds", 0, {"holds": [{"check": "gpu-lsot"}]}),
            ("silences", 0, {"silences": [{"check": "gpu-lsot"}]}),
            ("budget.checkOverrides", 0, {"budget": {"checkOverrides": [{"check": "gpu-lsot", "new": 1}]}}),
            ("injection", 0, {"injection": {"allowed": True, "checks": ["gpu-lsot"]}}),
        )
    },
    "everybody": ({"networkPolicy": {"metricsFrom": []}}, "/networkPolicy/metricsFrom': minItems"),
    **{
        f"{path} is {value!r}": (nested(path, value), f"'/{path.replace('.', '/')}': {error}")
        for path, value, error in (
            ("image.registry", "registry example", "value must be 'a host and a path in lower case"),
            ("image.tag", "1.0 beta", "value must be 'a tag such as 1.2.3'"),
            ("agent.image.repository", "Nodeguard", "value must be 'a path in lower case without a tag"),
            ("agent.priorityClassName", "System_Critical", "value must be 'a name of lower-case letters"),
            ("agent.maxUnavailable", 10**12, "maximum"),
            ("agent.resources.requests.cpu", "20 m", "value must be 'a quantity such as 20m"),
            ("agent.resources.limits.memory", "192MB", "value must be 'a quantity such as 20m, 192Mi"),
            ("aggregator.resources.requests.memory", -1, "minimum"),
            ("aggregator.resources.limits.memory", True, "got boolean, want number or string"),
            ("aggregator.nodeSelector.pool", "a b", "value must be 'the value of a label"),
            ("aggregator.podLabels.team", "a/b", "value must be 'the value of a label"),
            ("notificationSecretName", "Webhooks", "value must be 'a name of lower-case letters"),
            ("certificates.certManager.duration", "90d", "value must be 'a duration such as 2160h"),
            ("metrics.podMonitor.interval", "30", "value must be 'a duration such as 30s"),
            ("priorityClass.value", -(10**12), "minimum"),
        )
    },
}


@pytest.mark.parametrize(("values", "error"), REFUSED.values(), ids=REFUSED)
def test_invalid_values_are_refused(values: Mapping[str, Any], error: str, helm: Helm) -> None:
    assert error in helm.refusal(values)


def test_checks_of_the_site_are_not_compared_with_the_catalogue(helm: Helm) -> None:
    values = {
        "siteChecks": {"site.yaml": SITE_CHECK},
        "policy": {"modeRules": [{**ENFORCED, "check": "gpu-warm-here"}]},
    }
    assert helm.template(values)


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        ({}, "Its policy is in observe mode: it writes nothing to Nodes."),
        ({"modeRules": [{"mode": "observe", "check": "gpu-lost"}]}, "Its policy is in observe mode"),
        (
            {"modeRules": [ENFORCED, {"mode": "enforce", "checks": ["xid-*"]}]},
            "Its policy ENFORCES these checks: gpu-lost, xid-*. It marks their nodes.",
        ),
        ({"defaultMode": "enforce"}, "Its policy ENFORCES every check, except"),
        ({"defaultMode": "enforce", "pause": True}, "Its policy sets no new marks: `pause` is true."),
        ({"defaultMode": "enforce", "drain": {"mode": "enforce"}}, "It EVICTS the pods that use"),
    ],
)
def test_the_notes_name_what_is_enforced(policy: Mapping[str, Any], line: str, helm: Helm) -> None:
    notes = helm("install", RELEASE, str(CHART), "--dry-run=client", values={"policy": policy})
    assert line in notes
    assert ("EVICTS" in notes) == ("EVICTS" in line)
    assert f"helm test {RELEASE} -n {NAMESPACE} --logs" in notes
    assert f"kubectl port-forward -n {NAMESPACE} deploy/nodeguard-aggregator 9436" in notes
    assert ("writes nothing to Nodes" in notes) == (
        "writes nothing to Nodes" in line or "in observe mode" in line[:35]
    )


def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm("template", str(CHART), "--kube-version=1.29.0")
    assert "kubeVersion: >=1.30.0-0" in refused.value.stderr
