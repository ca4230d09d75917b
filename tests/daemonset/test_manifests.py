"""What the manifests say fits together, and is what the programs understand."""

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
from nodeguard.cli.agent_options import parse_options
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.commands.aggregator import parse_options as aggregator_options
from nodeguard.kube.authority_store import CA_BUNDLE_KEY, CONFIG_MAP_NAME
from tests.daemonset.manifests import AGENT, AGGREGATOR, DAEMONSET, NAMESPACE, document, documents, listed
from tests.daemonset.pods import Mounts, container, pod

WORKLOADS = [("DaemonSet", AGENT), ("Deployment", AGGREGATOR)]


def test_every_manifest_is_listed_once() -> None:
    there = {path.name for path in DAEMONSET.glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(listed()) == sorted(there)


def test_everything_lives_in_its_own_namespace_but_the_right_to_events_on_nodes() -> None:
    elsewhere = {
        (one["kind"], one["metadata"]["name"])
        for one in documents()
        if one["metadata"].get("namespace", NAMESPACE) != NAMESPACE
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
    """The variables of this process, with a note of those that are read."""
    made = Environment(os.environ)
    monkeypatch.setattr(os, "environ", made)
    return made


def variables(kind: str, name: str) -> dict[str, str]:
    """The variables that the manifest of a container sets, each with the field that it takes its value from."""
    return {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container(kind, name)["env"]}


def ports(kind: str, name: str) -> dict[str, int]:
    """The ports of a container, by name."""
    return {port["name"]: port["containerPort"] for port in container(kind, name)["ports"]}


def writable(kind: str, name: str, path: str) -> bool:
    """Whether a container may write in the directory of a path."""
    mounts = [
        one for one in container(kind, name)["volumeMounts"] if Path(path).is_relative_to(one["mountPath"])
    ]
    return bool(mounts) and not max(mounts, key=lambda one: len(one["mountPath"])).get("readOnly", False)


def test_the_agent_accepts_its_command_line_and_settings(tmp_path: Path, environment: Environment) -> None:
    made = container("DaemonSet", AGENT)
    mounts = Mounts(made, tmp_path)
    file = mounts.local("/etc/nodeguard/agent.yaml")
    file.write_text(document("ConfigMap", AGENT)["data"][file.name])
    environment.update(variables("DaemonSet", AGENT))
    command, *words = made["args"]
    assert command == "agent"
    given = parse_options([str(file) if word == "/etc/nodeguard/agent.yaml" else word for word in words])
    assert environment.read >= set(variables("DaemonSet", AGENT))
    assert (given.node, given.root) == ("spec.nodeName", "/host")
    assert given.listen[1] == ports("DaemonSet", AGENT)["metrics"] == parse_options([]).listen[1]
    for path in (given.state, given.socket):
        assert writable("DaemonSet", AGENT, path)
    assert given.aggregator is not None
    for path in (given.root, *given.checks, given.aggregator.token_file, given.aggregator.ca_file):
        assert mounts.local(path)


def test_the_agent_starts_without_site_checks(tmp_path: Path) -> None:
    [folder] = yaml.safe_load(document("ConfigMap", AGENT)["data"]["agent.yaml"])["checks"]
    mount = next(one for one in container("DaemonSet", AGENT)["volumeMounts"] if one["mountPath"] == folder)
    volume = next(one for one in pod("DaemonSet", AGENT)["volumes"] if one["name"] == mount["name"])
    assert volume["configMap"]["optional"]
    # The kubelet mounts an empty folder in its place.
    assert load_catalogue([str(tmp_path)]) == load_catalogue()


def test_the_identity_of_the_agent_is_projected_where_its_settings_name_it() -> None:
    settings = yaml.safe_load(document("ConfigMap", AGENT)["data"]["agent.yaml"])["aggregator"]
    identity = next(one for one in pod("DaemonSet", AGENT)["volumes"] if one["name"] == "identity")
    [account, authority] = identity["projected"]["sources"]
    [item] = authority["configMap"]["items"]
    directory = Path(settings["token_file"]).parent
    assert str(directory) in {
        one["mountPath"] for one in container("DaemonSet", AGENT)["volumeMounts"] if one["name"] == "identity"
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
    given = aggregator_options(words)
    assert environment.read >= set(variables("Deployment", AGGREGATOR))
    assert (given.namespace, given.pod) == ("metadata.namespace", "metadata.name")
    defaults = aggregator_options([])
    assert given.listen[1] == ports("Deployment", AGGREGATOR)["reports"] == defaults.listen[1]
    assert given.metrics[1] == ports("Deployment", AGGREGATOR)["metrics"] == defaults.metrics[1]
    # `kubectl exec … -- nodeguard status` has no --socket.
    assert given.socket == defaults.socket
    for path in (given.socket, given.history):
        assert writable("Deployment", AGGREGATOR, path)
    assert given.policy is not None
    file = Mounts(made, tmp_path).local(str(given.policy))
    file.write_text(document("ConfigMap", "nodeguard-policy")["data"][file.name])
    assert read_policy(file, {}, 0.0).warnings == ()


def test_the_service_has_the_ports_of_the_aggregator() -> None:
    listed = {one["name"]: one["port"] for one in document("Service", AGGREGATOR)["spec"]["ports"]}
    assert listed == ports("Deployment", AGGREGATOR)


def test_the_agents_reach_every_aggregator_by_the_services_name() -> None:
    told = re.search(r"https://\S+?(?=])", document("ConfigMap", AGENT)["data"]["agent.yaml"])
    assert told is not None
    address = parse_address(told[0])
    service = document("Service", AGGREGATOR)
    assert address.host == f"{AGGREGATOR}.{NAMESPACE}.svc"
    assert service["spec"]["clusterIP"] == "None"
    assert address.port in {port["port"] for port in service["spec"]["ports"]}
    labels = document("Deployment", AGGREGATOR)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_nothing_of_the_node_is_written_but_its_own_two_directories() -> None:
    volumes = {
        one["name"]: one["hostPath"]["path"]
        for one in pod("DaemonSet", AGENT)["volumes"]
        if "hostPath" in one
    }
    mounts = container("DaemonSet", AGENT)["volumeMounts"]
    written = {
        volumes[mount["name"]] for mount in mounts if mount["name"] in volumes and not mount.get("readOnly")
    }
    assert written == {"/var/lib/nodeguard", "/run/nodeguard"}


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_memory_is_bounded_and_the_cpu_is_not(kind: str, name: str) -> None:
    resources = container(kind, name)["resources"]
    assert set(resources["limits"]) == {"memory"}
    assert set(resources["requests"]) == {"cpu", "memory"}


@pytest.mark.parametrize(
    ("kind", "name", "pages"),
    [("DaemonSet", AGENT, {"/readyz"}), ("Deployment", AGGREGATOR, {"/readyz", "/healthz"})],
)
def test_every_probe_asks_a_page_of_a_named_port(kind: str, name: str, pages: set[str]) -> None:
    made = container(kind, name)
    asked = [made[probe]["httpGet"] for probe in ("readinessProbe", "livenessProbe") if probe in made]
    assert {one["path"] for one in asked} == pages
    assert {one["port"] for one in asked} <= ports(kind, name).keys()


def test_an_agent_that_waits_for_hardware_is_not_restarted() -> None:
    assert "livenessProbe" not in container("DaemonSet", AGENT)


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_images_are_of_this_version_and_of_no_registry(kind: str, name: str) -> None:
    assert container(kind, name)["image"] == f"{name}:{__version__}"


def test_it_begins_by_observing() -> None:
    assert document("ConfigMap", "nodeguard-policy")["data"]["policy.yaml"] == "defaultMode: observe\n"
