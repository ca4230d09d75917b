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
from nodeguard.aggregator.policy.policy_file import read_policy
from nodeguard.cli.check_catalogue import load_catalogue
from tests.alerts.rules import alerts, all_rules
from tests.cli.parsed_options import agent_options, aggregator_options
from tests.controlplane.api import Object
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.daemonset.helm import CHART, EARLIER, RELEASE, Helm, objects, pick
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE, documents, is_served
from tests.paths import ROOT

pytestmark = pytest.mark.slow

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


def test_images_have_registry_tag_and_digest(helm: Helm) -> None:
    rendered = helm.template(VALUES["images"])
    assert [pod_container(template)["image"] for template in workloads(rendered)] == [
        f"registry.example/team/nodeguard-agent@{DIGEST}",
        "registry.example/team/aggregator:1.2.3",
    ]
    for template in workloads(rendered):
        assert pod_container(template)["imagePullPolicy"] == "Always"
        assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]


def test_pods_have_the_fields_of_their_values(helm: Helm) -> None:
    values = VALUES["pods"]["agent"]
    for template in workloads(helm.template(VALUES["pods"])):
        for name in ("tolerations", "affinity", "priorityClassName"):
            assert template["spec"][name] == values[name]
        assert values["nodeSelector"].items() <= template["spec"]["nodeSelector"].items()
        assert values["podAnnotations"].items() <= template["metadata"]["annotations"].items()
        assert values["podLabels"].items() <= template["metadata"]["labels"].items()
        assert pod_container(template)["resources"]["limits"] == values["resources"]["limits"]


def test_the_programs_accept_their_settings(helm: Helm, tmp_path: Path) -> None:
    rendered = helm.template(VALUES["settings"])
    settings = tmp_path / "agent.yaml"
    settings.write_text(pick(rendered, "ConfigMap", AGENT)["data"]["agent.yaml"])
    options = agent_options(["--config", str(settings), "--node=a"])
    assert (options.listen, options.spread, options.log_level) == (("::", 9434), 120.0, "debug")
    for name, text in pick(rendered, "ConfigMap", "nodeguard-policy")["data"].items():
        (tmp_path / name).write_text(text)
    policy, warnings = read_policy(tmp_path / "policy.yaml", {}, 0.0, ())
    assert ([location.node for location in policy.locations], warnings) == (["gpu-1"], ())
    checks = tmp_path / "checks"
    checks.mkdir()
    for name, text in pick(rendered, "ConfigMap", "nodeguard-checks")["data"].items():
        (checks / name).write_text(text)
    catalogue, _ = load_catalogue([str(checks)])
    assert "gpu-warm-here" in {check.id for check in catalogue.checks}
    _, aggregator = workloads(rendered)
    arguments = pod_container(aggregator)["args"]
    assert "--checks=/etc/nodeguard-checks" in arguments
    started = aggregator_options(arguments[1:])
    assert (started.listen, started.metrics, started.log_level) == (("::", 8443), ("::", 9435), "debug")


def test_all_pods_mount_the_checks_of_a_site_also_without_any(helm: Helm) -> None:
    for template in workloads(helm.template({})):
        assert {"name": "checks", "configMap": {"name": "nodeguard-checks", "optional": True}} in template[
            "spec"
        ]["volumes"]
        [path] = [
            mount["mountPath"]
            for mount in pod_container(template)["volumeMounts"]
            if mount["name"] == "checks"
        ]
        assert path == "/etc/nodeguard-checks"


def test_a_change_of_settings_replaces_the_pods(helm: Helm) -> None:
    def checksums(values: Mapping[str, Any]) -> list[str | None]:
        templates = workloads(helm.template(values))
        return [
            template["metadata"].get("annotations", {}).get("checksum/settings") for template in templates
        ]

    first = checksums(VALUES["settings"])
    changed = checksums({**VALUES["settings"], "siteChecks": {"site.yaml": f"{SITE_CHECK}\n# changed"}})
    assert all(before != after for before, after in zip(first, changed, strict=True))
    assert checksums({}) == [None, None]
    webhooks = {"webhooks": [{"name": "chat", "url": "https://chat.example"}]}
    agent, aggregator = checksums({"notifications": webhooks})
    assert (agent, aggregator is None) == (None, False)


def test_cert_managers_certificate_is_mounted_and_its_ca_published(helm: Helm) -> None:
    rendered = helm.template(VALUES["cert-manager"])
    certificate = pick(rendered, "Certificate", AGGREGATOR)["spec"]
    _, aggregator = workloads(rendered)
    container = pod_container(aggregator)
    options = aggregator_options(container["args"][1:])
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "certificate"]
    files = {Path(path) for path in (options.certificate, options.key, options.publish_ca)}
    assert files == {Path(mount["mountPath"]) / name for name in ("tls.crt", "tls.key", "ca.crt")}
    [volume] = [volume for volume in aggregator["spec"]["volumes"] if volume["name"] == "certificate"]
    assert volume["secret"]["secretName"] == certificate["secretName"]
    assert f"{AGGREGATOR}.{NAMESPACE}.svc" in certificate["dnsNames"]
    agent, _ = workloads(rendered)
    assert certificate["secretName"] not in json.dumps(agent)


def test_pod_monitors_scrape_under_the_jobs_of_the_alerts(helm: Helm) -> None:
    rendered = helm.template(VALUES["monitoring"])
    jobs = {}
    for part in ("agent", "aggregator"):
        spec = pick(rendered, "PodMonitor", f"nodeguard-{part}")["spec"]
        [endpoint] = spec["podMetricsEndpoints"]
        [template] = [
            template
            for template in workloads(rendered)
            if spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        ]
        assert endpoint["port"] in {port["name"] for port in pod_container(template)["ports"]}
        jobs[part] = {
            rule["replacement"] for rule in endpoint["relabelings"] if rule.get("targetLabel") == "job"
        }
    for part, names in jobs.items():
        for alert in alerts(part):
            named = set(re.findall(r'\{job="(.*?)"', alert["expr"]))
            assert names <= named <= set[str]().union(*jobs.values())
    assert jobs == {"agent": {"nodeguard"}, "aggregator": {"nodeguard-aggregator"}}


def test_the_object_has_every_rule_and_alerts_have_the_sites_runbook(helm: Helm) -> None:
    spec = pick(helm.template(VALUES["monitoring"]), "PrometheusRule", "nodeguard")["spec"]
    rules = [rule for group in spec["groups"] for rule in group["rules"]]
    expected = [*all_rules("agent"), *all_rules("aggregator")]
    for rule, shipped in zip(rules, expected, strict=True):
        if "alert" in shipped:
            anchor = shipped["annotations"]["runbook_url"].rpartition("/")[2]
            assert rule["annotations"].pop("runbook_url") == f"https://runbooks.example/nodeguard/{anchor}"
            shipped["annotations"].pop("runbook_url")
        assert rule == shipped


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


def test_pods_have_no_label_that_restarts_them_without_a_new_image(helm: Helm) -> None:
    for template in workloads(helm.template()):
        keys = {key.rpartition("/")[2] for key in template["metadata"]["labels"]}
        assert keys == {"name", "instance", "component", "part-of"}


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


def test_variables_are_added_to_those_of_the_chart(helm: Helm) -> None:
    for template in workloads(helm.template(VALUES["pods"])):
        variables = [variable["name"] for variable in pod_container(template)["env"]]
        assert variables[-1] == "TZ"
        assert len(variables) > 1
        assert template["metadata"]["labels"]["example.com/team"] == "ada"


def test_each_dashboard_is_a_config_map(helm: Helm) -> None:
    files = sorted(CHART.glob("dashboards/*.json"))
    maps = [
        made
        for made in helm.template(VALUES["monitoring"])
        if made["metadata"].get("labels", {}).get("grafana_dashboard")
    ]
    assert [json.loads(text) for made in maps for text in made["data"].values()] == [
        json.loads(file.read_text()) for file in files
    ]


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
