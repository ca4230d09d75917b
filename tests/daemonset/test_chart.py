"""The chart with other values: what Helm renders, what a real API server accepts, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from nodeguard.agent.options import OptionsFile
from tests.controlplane.api import Object
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.daemonset.chart_values import EVERY_SET, VALUES
from tests.daemonset.helm import CHART, EARLIER, RELEASE, Helm, objects, pick
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE, documents, is_served
from tests.paths import ROOT

pytestmark = pytest.mark.slow


@EVERY_SET
def test_lint_has_no_complaint(values: Mapping[str, Any], helm: Helm) -> None:
    output = helm("lint", "--strict", str(CHART), values=values)
    assert "0 chart(s) failed" in output
    assert not re.search(r"\[(WARNING|ERROR)\]", output)


def used(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each value. A map with keys of the site is one value."""
    if isinstance(values, dict) and values and path not in FREE:
        for key, value in values.items():
            yield from used(value, (*path, key))
    else:
        yield path


FREE = {
    ("policy",),
    ("policyFiles",),
    ("commonLabels",),
    ("siteChecks",),
    ("notifications",),
    ("agent", "settings"),
    ("certificates", "certManager", "issuerRef"),
    *((part, name) for part in ("agent", "aggregator") for name in ("nodeSelector", "resources", "affinity")),
    *((part, name) for part in ("agent", "aggregator") for name in ("podAnnotations", "podLabels")),
    ("metrics", "dashboards", "labels"),
    ("metrics", "podMonitor", "labels"),
    ("metrics", "prometheusRule", "labels"),
}


def test_every_value_has_a_default_a_schema_and_a_test() -> None:
    defaults = set(used(yaml.safe_load((CHART / "values.yaml").read_text())))
    tested = {path for values in VALUES.values() for path in used(dict(values))}
    exceptions = {("certificates", "certManager", "issuerRef"), ("image", "registry")}
    assert defaults - tested - exceptions <= {
        ("agent", "image", "repository"),
        ("aggregator", "image", "digest"),
    }
    schema = json.loads((CHART / "values.schema.json").read_text())
    for path in defaults:
        properties = schema
        for key in path:
            properties = properties["properties"][key]
        assert properties.keys() & {"type", "enum", "$ref"}, path


def test_the_schema_has_the_settings_of_the_agent_that_the_chart_does_not_set(helm: Helm) -> None:
    # The policy of the aggregator decides about injected faults.
    own = {"listen", "state", "checks", "aggregator", "node", "socket", "allow_injection"}
    text = pick(helm.template(), "ConfigMap", AGENT)["data"]["agent.yaml"]
    assert yaml.safe_load(text).keys() <= own
    schema = json.loads((CHART / "values.schema.json").read_text())
    settings = schema["properties"]["agent"]["properties"]["settings"]["properties"]
    assert settings.keys() == {field.encode_name for field in msgspec.structs.fields(OptionsFile)} - own


@pytest.fixture(scope="module")
def served(new_cluster: NewCluster) -> Iterator[Cluster]:
    """An API server with the definitions of other projects that the chart uses."""
    with new_cluster(API) as made:
        for group, kind in (
            ("monitoring.coreos.com", "PodMonitor"),
            ("monitoring.coreos.com", "PrometheusRule"),
            ("cert-manager.io", "Certificate"),
        ):
            define(made, group, kind)
        made.api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield made


def define(made: Cluster, group: str, kind: str) -> None:
    """Define a resource that accepts every spec."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }
    made.api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    path = f"/apis/{group}/v1/namespaces/default/{plural}"
    made.until(lambda: is_served(made, path), "kube-apiserver")


@EVERY_SET
def test_the_api_server_accepts_what_is_rendered(
    values: Mapping[str, Any], helm: Helm, served: Cluster, tmp_path: Path
) -> None:
    rendered = helm.template(values)
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(rendered))
    applied = served.kubectl("apply", "--server-side", "--dry-run=server", "-f", str(file), "-o", "name")
    assert len(applied.splitlines()) == len(rendered)


DOCUMENTED = re.findall(
    r"```yaml\n(.*?)```", (ROOT / "docs" / "install" / "kubernetes.md").read_text(), re.DOTALL
)


@pytest.mark.parametrize("text", DOCUMENTED)
def test_the_documented_values_are_accepted(text: str, helm: Helm) -> None:
    assert helm.template(yaml.safe_load(text))


def with_hooks(helm: Helm, chart: Path, values: Mapping[str, Any]) -> list[Object]:
    return list(objects(helm("template", RELEASE, str(chart), values=values)))


@EVERY_SET
def test_every_object_has_the_standard_labels(values: Mapping[str, Any], helm: Helm) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    standard = {
        "app.kubernetes.io/instance": RELEASE,
        "app.kubernetes.io/part-of": "nodeguard",
        "app.kubernetes.io/version": version,
        "app.kubernetes.io/managed-by": "Helm",
        "helm.sh/chart": f"nodeguard-{version}",
        **values.get("commonLabels", {}),
    }
    for made in with_hooks(helm, CHART, values):
        labels = made["metadata"]["labels"]
        assert labels.items() >= standard.items(), (made["kind"], made["metadata"]["name"])
        component = labels["app.kubernetes.io/component"]
        name = "nodeguard" if component == "cluster" else f"nodeguard-{component}"
        assert labels["app.kubernetes.io/name"] == name


def immutable_fields(rendered: list[Object]) -> dict[tuple[str, str], Any]:
    """Return what an upgrade cannot change: selectors of workloads, and the roles of bindings."""
    fields = {}
    for made in rendered:
        found = (made.get("spec", {}).get("selector"), made.get("roleRef"))
        if made["kind"] in {"DaemonSet", "Deployment", "RoleBinding", "ClusterRoleBinding"}:
            fields[made["kind"], made["metadata"]["name"]] = found
    return fields


@EVERY_SET
def test_an_upgrade_changes_no_immutable_field(values: Mapping[str, Any], helm: Helm, tmp_path: Path) -> None:
    earlier = immutable_fields(with_hooks(helm, EARLIER, {}))
    now = immutable_fields(helm.template(values))
    assert {("DaemonSet", AGENT), ("Deployment", AGGREGATOR)} <= earlier.keys() & now.keys()
    assert all(now[name] == earlier[name] for name in earlier.keys() & now.keys())


def test_what_is_switched_off_is_absent(helm: Helm) -> None:
    kinds = {made["kind"] for made in documents()}
    absent = kinds - {made["kind"] for made in helm.template(VALUES["without"])}
    admission = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert absent == {"Namespace", "CustomResourceDefinition", "NetworkPolicy", *admission}


def test_another_namespace_is_used_everywhere(helm: Helm) -> None:
    values = {**VALUES["cert-manager"], **VALUES["monitoring"]}
    rendered = helm.template({**values, "createNamespace": True}, namespace="gpu-health")
    assert {made["metadata"].get("namespace", "gpu-health") for made in rendered} == {"gpu-health", "default"}
    text = yaml.safe_dump_all(rendered)
    for name in (
        "nodeguard-aggregator.gpu-health.svc",
        "system:serviceaccount:gpu-health:nodeguard-aggregator",
    ):
        assert name in text
    assert not re.search(
        r"\.nodeguard\.svc|serviceaccount:nodeguard|namespace: nodeguard$", text, re.MULTILINE
    )
