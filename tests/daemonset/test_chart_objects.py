"""What objects of the chart have from its values: images, settings, checks, certificates and monitoring."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodeguard.aggregator.policy.policy_file import read_policy
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import CHECKS_ENVIRONMENT
from tests.alerts.rules import alerts, all_rules
from tests.cli.parsed_options import agent_options, aggregator_options
from tests.daemonset.chart_values import DIGEST, SITE_CHECK, VALUES, pod_container, workloads
from tests.daemonset.helm import CHART, Helm, pick
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE

pytestmark = pytest.mark.slow


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
    started = aggregator_options(pod_container(aggregator)["args"][1:])
    assert (started.listen, started.metrics, started.log_level) == (("::", 8443), ("::", 9435), "debug")


def test_all_pods_mount_the_checks_of_a_site_for_each_command_in_them_also_without_any(helm: Helm) -> None:
    for template in workloads(helm.template({})):
        assert {"name": "checks", "configMap": {"name": "nodeguard-checks", "optional": True}} in template[
            "spec"
        ]["volumes"]
        [path] = [
            mount["mountPath"]
            for mount in pod_container(template)["volumeMounts"]
            if mount["name"] == "checks"
        ]
        variables = {item["name"]: item.get("value") for item in pod_container(template)["env"]}
        assert path == variables[CHECKS_ENVIRONMENT] == "/etc/nodeguard-checks"


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


def test_pods_have_no_label_that_restarts_them_without_a_new_image(helm: Helm) -> None:
    for template in workloads(helm.template()):
        keys = {key.rpartition("/")[2] for key in template["metadata"]["labels"]}
        assert keys == {"name", "instance", "component", "part-of"}


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
