"""Values of the chart for its tests, and the pods that it renders from them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.controlplane.api import Object
from tests.daemonset.helm import pick
from tests.daemonset.manifests import AGENT, AGGREGATOR
from tests.paths import ROOT

DIGEST = f"sha256:{'a' * 64}"
PAGE = (ROOT / "docs" / "tasks" / "write-a-check.md").read_text()
[SITE_CHECK] = re.findall(r"```yaml\n(version: 1\nfamily: .*?)```", PAGE, re.DOTALL)

# Sets of values that together use every value of the chart.
VALUES: dict[str, Mapping[str, Any]] = {
    "default": {},
    "images": {
        "image": {"registry": "registry.example/team/", "tag": "1.2.3", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "agent": {"image": {"digest": DIGEST}},
        "aggregator": {"image": {"repository": "aggregator"}},
    },
    "pods": {
        part: {
            "nodeSelector": {"nvidia.com/gpu.present": "true"},
            "tolerations": [{"key": "example.com/x", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "high",
            "resources": {"limits": {"memory": "1Gi"}},
            "podAnnotations": {"example.com/a": "b"},
            "podLabels": {"example.com/c": "d"},
            "extraEnv": [{"name": "TZ", "value": "Europe/Berlin"}],
        }
        for part in ("agent", "aggregator")
    }
    | {"commonLabels": {"example.com/team": "ada"}},
    "settings": {
        "policy": {"defaultMode": "observe", "nodeLocations": "racks.csv"},
        "policyFiles": {"racks.csv": "node,rack\ngpu-1,r1\n"},
        "siteChecks": {"site.yaml": SITE_CHECK},
        "notifications": {"webhooks": [{"name": "chat", "format": "slack", "urlFile": "slack-url"}]},
        "notificationSecretName": "webhooks",
        "agent": {"settings": {"spread": "2m", "log_level": "debug"}, "maxUnavailable": 3},
        "aggregator": {"replicas": 1, "extraArgs": ["--log-level=debug"]},
        "listenAddress": "[::]",
        "networkPolicy": {"apiServerPorts": [6443]},
    },
    "cert-manager": {
        "certificates": {
            "mode": "certManager",
            "certManager": {
                "issuerRef": {"name": "ca", "kind": "ClusterIssuer", "group": "cert-manager.io"},
                "duration": "720h",
                "renewBefore": "240h",
            },
        }
    },
    "monitoring": {
        "metrics": {
            "podMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
            "prometheusRule": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "runbookUrlBase": "https://runbooks.example/nodeguard/",
            },
            "dashboards": {"enabled": True, "labels": {"grafana_dashboard": "1"}},
        }
    },
    "rights": {
        "roles": {
            "viewer": {"enabled": True, "users": ["eve"], "groups": ["gpu-users"]},
            "operator": {"enabled": True, "users": ["ada"], "groups": ["gpu-operators"]},
            "admin": {"enabled": True, "users": ["root"], "groups": ["gpu-admins"]},
        },
        "networkPolicy": {"metricsFrom": [{"namespaceSelector": {}}], "apiServerPorts": [443]},
        "jobs": {"read": False},
        "policyCheck": {"enabled": False},
        "fill": {"enabled": True},
        "priorityClass": {"create": True, "value": 1000},
        "createNamespace": True,
    },
    "without": {
        "crd": {"install": False},
        "networkPolicy": {"enabled": False},
        "admissionPolicy": {"enabled": False},
        "roles": {"viewer": {"enabled": False}, "operator": {"enabled": False}, "admin": {"enabled": True}},
        "uninstall": {"removeMarks": False, "timeoutSeconds": 600},
    },
}
EVERY_SET = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)


def workloads(rendered: list[Object]) -> Iterator[Any]:
    """Yield the pod templates of agent and aggregator."""
    for kind, name in (("DaemonSet", AGENT), ("Deployment", AGGREGATOR)):
        yield pick(rendered, kind, name)["spec"]["template"]


def pod_container(template: Any) -> Any:
    [only] = template["spec"]["containers"]
    return only
