"""The manifests are consistent, and the programs accept their arguments and settings."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeguard import __version__
from nodeguard.agent.reporting.endpoint import parse_address
from nodeguard.aggregator.identity.token import TokenRequirements
from nodeguard.aggregator.policy.policy_file import read_policy
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.kube.text_store import CA_BUNDLE_KEY, CONFIG_MAP_NAME
from tests.cli.parsed_options import agent_options, aggregator_options
from tests.daemonset.manifests import AGENT, AGGREGATOR, DAEMONSET, NAMESPACE, document, documents, listed
from tests.daemonset.pods import Mounts, container, pod

WORKLOADS = [("DaemonSet", AGENT), ("Deployment", AGGREGATOR)]


def test_every_manifest_is_listed_once() -> None:
    files = {path.name for path in DAEMONSET.glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(listed()) == sorted(files)


def test_only_the_right_to_events_on_nodes_is_outside_of_the_namespace() -> None:
    elsewhere = {
        (made["kind"], made["metadata"]["name"])
        for made in documents()
        if made["metadata"].get("namespace", NAMESPACE) != NAMESPACE
    }
    assert elsewhere == {("Role", "nodeguard-events"), ("RoleBinding", "nodeguard-events")}


class Environment(dict[str, str]):
    """Variables of a process. read: the names of those that were looked up."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self.read: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    """The variables of this process, which record those that are read."""
    made = Environment(os.environ)
    monkeypatch.setattr(os, "environ", made)
    return made


def variables(kind: str, name: str) -> dict[str, str]:
    """The variables that the manifest of a container sets, with their values, or the fields of these."""
    return {
        variable["name"]: variable.get("value") or variable["valueFrom"]["fieldRef"]["fieldPath"]
        for variable in container(kind, name)["env"]
    }


def ports(kind: str, name: str) -> dict[str, int]:
    """The ports of a container, by name."""
    return {port["name"]: port["containerPort"] for port in container(kind, name)["ports"]}


def writable(kind: str, name: str, path: str) -> bool:
    """Whether a container may write in the directory of a path."""
    mounts = [
        mount
        for mount in container(kind, name)["volumeMounts"]
        if Path(path).is_relative_to(mount["mountPath"])
    ]
    return bool(mounts) and not max(mounts, key=lambda mount: len(mount["mountPath"])).get("readOnly", False)


def test_the_agent_accepts_its_command_line_and_settings(tmp_path: Path, environment: Environment) -> None:
    made = container("DaemonSet", AGENT)
    mounts = Mounts(made, tmp_path)
    file = mounts.local("/etc/nodeguard/agent.yaml")
    file.write_text(document("ConfigMap", AGENT)["data"][file.name])
    environment.update(variables("DaemonSet", AGENT))
    command, *words = made["args"]
    assert command == "agent"
    options = agent_options([str(file) if word == "/etc/nodeguard/agent.yaml" else word for word in words])
    assert environment.read >= set(variables("DaemonSet", AGENT))
    assert (options.node, options.root) == ("spec.nodeName", "/host")
    assert options.listen[1] == ports("DaemonSet", AGENT)["metrics"] == agent_options([]).listen[1]
    for path in (options.state, options.socket):
        assert writable("DaemonSet", AGENT, path)
    assert options.aggregator is not None
    for path in (options.root, *options.checks, options.aggregator.token_file, options.aggregator.ca_file):
        assert mounts.local(path)


def test_the_agent_starts_without_site_checks(tmp_path: Path) -> None:
    [folder] = yaml.safe_load(document("ConfigMap", AGENT)["data"]["agent.yaml"])["checks"]
    mount = next(
        mount for mount in container("DaemonSet", AGENT)["volumeMounts"] if mount["mountPath"] == folder
    )
    volume = next(volume for volume in pod("DaemonSet", AGENT)["volumes"] if volume["name"] == mount["name"])
    assert volume["configMap"]["optional"]
    # The kubelet mounts an empty folder in its place.
    assert load_catalogue([str(tmp_path)]) == load_catalogue()


def test_the_identity_of_the_agent_is_projected_where_its_settings_name_it() -> None:
    settings = yaml.safe_load(document("ConfigMap", AGENT)["data"]["agent.yaml"])["aggregator"]
    identity = next(volume for volume in pod("DaemonSet", AGENT)["volumes"] if volume["name"] == "identity")
    [account, authority] = identity["projected"]["sources"]
    [item] = authority["configMap"]["items"]
    directory = Path(settings["token_file"]).parent
    assert str(directory) in {
        mount["mountPath"]
        for mount in container("DaemonSet", AGENT)["volumeMounts"]
        if mount["name"] == "identity"
    }
    assert settings["token_file"] == str(directory / account["serviceAccountToken"]["path"])
    assert settings["ca_file"] == str(directory / item["path"])
    assert (authority["configMap"]["name"], item["key"]) == (CONFIG_MAP_NAME, CA_BUNDLE_KEY)
    assert account["serviceAccountToken"]["audience"] == TokenRequirements(frozenset()).audience


def test_the_aggregator_accepts_its_command_line(tmp_path: Path, environment: Environment) -> None:
    made = container("Deployment", AGGREGATOR)
    environment.update(variables("Deployment", AGGREGATOR))
    command, *words = made["args"]
    assert command == "aggregator"
    options = aggregator_options(words)
    assert environment.read >= set(variables("Deployment", AGGREGATOR))
    assert (options.namespace, options.pod) == ("metadata.namespace", "metadata.name")
    defaults = aggregator_options([])
    assert options.listen[1] == ports("Deployment", AGGREGATOR)["reports"] == defaults.listen[1]
    assert options.metrics[1] == ports("Deployment", AGGREGATOR)["metrics"] == defaults.metrics[1]
    # Only `kubectl port-forward` reaches it: no port of the container, no Service.
    assert options.page == ("127.0.0.1", 9436)
    assert 9436 not in ports("Deployment", AGGREGATOR).values()
    # `kubectl exec … -- nodeguard status` has no --socket.
    assert options.socket == defaults.socket
    for path in (options.socket, options.history):
        assert writable("Deployment", AGGREGATOR, path)
    assert options.policy is not None
    file = Mounts(made, tmp_path).local(str(options.policy))
    file.write_text(document("ConfigMap", "nodeguard-policy")["data"][file.name])
    assert read_policy(file, {}, 0.0, ()).warnings == ()


def test_the_service_has_the_ports_of_the_aggregator() -> None:
    listed = {port["name"]: port["port"] for port in document("Service", AGGREGATOR)["spec"]["ports"]}
    assert listed == ports("Deployment", AGGREGATOR)


def test_agents_reach_every_aggregator_by_the_name_of_the_service() -> None:
    match = re.search(r"https://\S+?(?=])", document("ConfigMap", AGENT)["data"]["agent.yaml"])
    assert match is not None
    address = parse_address(match[0])
    service = document("Service", AGGREGATOR)
    assert address.host == f"{AGGREGATOR}.{NAMESPACE}.svc"
    assert service["spec"]["clusterIP"] == "None"
    assert address.port in {port["port"] for port in service["spec"]["ports"]}
    labels = document("Deployment", AGGREGATOR)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_the_agent_writes_only_its_two_directories_of_the_node() -> None:
    volumes = {
        volume["name"]: volume["hostPath"]["path"]
        for volume in pod("DaemonSet", AGENT)["volumes"]
        if "hostPath" in volume
    }
    mounts = container("DaemonSet", AGENT)["volumeMounts"]
    written = {
        volumes[mount["name"]] for mount in mounts if mount["name"] in volumes and not mount.get("readOnly")
    }
    assert written == {"/var/lib/nodeguard", "/run/nodeguard"}


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_memory_has_a_limit_and_the_cpu_has_none(kind: str, name: str) -> None:
    resources = container(kind, name)["resources"]
    assert set(resources["limits"]) == {"memory"}
    assert set(resources["requests"]) == {"cpu", "memory"}


@pytest.mark.parametrize(
    ("kind", "name", "pages"),
    [("DaemonSet", AGENT, {"/readyz"}), ("Deployment", AGGREGATOR, {"/readyz", "/healthz"})],
)
def test_every_probe_requests_a_page_of_a_named_port(kind: str, name: str, pages: set[str]) -> None:
    made = container(kind, name)
    requests = [made[probe]["httpGet"] for probe in ("readinessProbe", "livenessProbe") if probe in made]
    assert {request["path"] for request in requests} == pages
    assert {request["port"] for request in requests} <= ports(kind, name).keys()


def test_an_agent_that_waits_for_hardware_is_not_restarted() -> None:
    assert "livenessProbe" not in container("DaemonSet", AGENT)


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_images_have_this_version_and_no_registry(kind: str, name: str) -> None:
    assert container(kind, name)["image"] == f"{name}:{__version__}"


def test_the_policy_observes() -> None:
    assert document("ConfigMap", "nodeguard-policy")["data"]["policy.yaml"] == "defaultMode: observe\n"
