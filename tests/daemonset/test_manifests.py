"""What the manifests say fits together, and is what the programs understand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nodeguard import __version__
from nodeguard.agent.config import config
from nodeguard.agent.reporting.address import parsed
from nodeguard.cli.agent_options import options
from tests.daemonset.manifests import AGENT, AGGREGATOR, DAEMONSET, NAMESPACE, document, documents, listed

WORKLOADS = [("DaemonSet", AGENT), ("Deployment", AGGREGATOR)]


def pod(kind: str, name: str) -> Any:
    return document(kind, name)["spec"]["template"]["spec"]


def container(kind: str, name: str) -> Any:
    (one,) = pod(kind, name)["containers"]
    return one


def under(path: str, mounts: list[str]) -> bool:
    return any(path == mount or path.startswith(f"{mount}/") for mount in mounts)


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


def test_the_agents_settings_are_understood_and_their_files_mounted(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(document("ConfigMap", AGENT)["data"]["agent.yaml"])
    told = config(str(path))
    assert told.aggregator is not None
    mounts = [mount["mountPath"] for mount in container("DaemonSet", AGENT)["volumeMounts"]]
    for file in (told.state, *told.checks, told.aggregator.token_file, told.aggregator.ca_file):
        assert under(file, mounts)
    identity = next(one for one in pod("DaemonSet", AGENT)["volumes"] if one["name"] == "identity")
    paths = {
        *(source["serviceAccountToken"]["path"] for source in identity["projected"]["sources"][:1]),
        *(item["path"] for item in identity["projected"]["sources"][1]["configMap"]["items"]),
    }
    assert {Path(told.aggregator.token_file).name, Path(told.aggregator.ca_file).name} == paths


def test_the_agents_reach_every_aggregator_by_the_services_name() -> None:
    told = re.search(r"https://\S+?(?=])", document("ConfigMap", AGENT)["data"]["agent.yaml"])
    assert told is not None
    address = parsed(told[0])
    service = document("Service", AGGREGATOR)
    assert address.host == f"{AGGREGATOR}.{NAMESPACE}.svc"
    assert service["spec"]["clusterIP"] == "None"
    assert address.port in {port["port"] for port in service["spec"]["ports"]}
    labels = document("Deployment", AGGREGATOR)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_the_agents_command_line_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(document("ConfigMap", AGENT)["data"]["agent.yaml"])
    monkeypatch.setenv("NODE_NAME", "node-1")
    command, *words = container("DaemonSet", AGENT)["args"]
    assert command == "agent"
    told = options([str(path) if word == "/etc/nodeguard/agent.yaml" else word for word in words])
    assert (told.node, told.root, told.listen) == ("node-1", "/host", ("0.0.0.0", 9434))
    assert "NODE_NAME" in {one["name"] for one in container("DaemonSet", AGENT)["env"]}


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


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_every_probe_and_mount_names_what_is_there(kind: str, name: str) -> None:
    one = container(kind, name)
    ports = {port["name"] for port in one["ports"]}
    probes = [one[probe] for probe in ("readinessProbe", "livenessProbe") if probe in one]
    assert {probe["httpGet"]["port"] for probe in probes} <= ports
    assert {mount["name"] for mount in one["volumeMounts"]} == {
        volume["name"] for volume in pod(kind, name)["volumes"]
    }


def test_an_agent_that_waits_for_hardware_is_not_restarted() -> None:
    assert "livenessProbe" not in container("DaemonSet", AGENT)


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_images_are_of_this_version_and_of_no_registry(kind: str, name: str) -> None:
    assert container(kind, name)["image"] == f"{name}:{__version__}"


def test_it_begins_by_observing() -> None:
    assert document("ConfigMap", "nodeguard-policy")["data"]["policy.yaml"] == "mode: observe\n"
