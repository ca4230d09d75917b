"""The directories, files, sockets and ports that the documentation names are those of the units and manifests."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from nodeguard.agent import control
from nodeguard.aggregator.api import requests as asking
from nodeguard.cli.commands.aggregator import PAGE
from nodeguard.sources.observations import ObservationsSource
from tests.cli.parsed_options import agent_options, aggregator_options
from tests.daemonset.helm import CHART
from tests.daemonset.manifests import AGENT, AGGREGATOR
from tests.daemonset.pods import container
from tests.daemonset.units import UNITS, shipped, writable
from tests.docs.pages import PAGES, commands, text
from tests.paths import ROOT

# The status page's socket is one that an operator may choose.
SOCKETS = {control.PATH, asking.SOCKET_PATH, "/run/nodeguard-aggregator/page.sock"}

# The folder that examples use for site checks; docs/install/agent.md introduces it.
SITE_CHECKS = "/etc/nodeguard/checks.d"

# Where the chart mounts the notification file, if there is one.
NOTIFICATIONS = "/etc/nodeguard-notifications"

# The files that a site deploys have comments with paths, too.
FILES = [
    *PAGES,
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "daemonset").rglob("*")) if path.is_file()),
]


def mounted() -> set[str]:
    """The directories that the pods have."""
    pods = (container("DaemonSet", AGENT), container("Deployment", AGGREGATOR))
    return {mount["mountPath"] for pod in pods for mount in pod["volumeMounts"]}


def made() -> set[str]:
    """The directories that systemd makes for the units."""
    return {directory for unit in UNITS for directory in writable(unit)}


def installed() -> set[str]:
    """The files of /etc/nodeguard that the documentation installs."""
    return {command.words[-1] for command in commands() if command.words[0] == "install"}


def named(file: str, parent: str) -> set[str]:
    """The paths of nodeguard below a directory that a file mentions."""
    return set(re.findall(rf"(?<![\w/.])({parent}/[\w./-]*nodeguard[\w./-]*\w)", text(file)))


def test_a_directory_is_made_by_a_unit_or_mounted() -> None:
    directories = made() | mounted()
    for file in FILES:
        for path in named(file, "/run") | named(file, "/var/lib"):
            assert any(Path(path).is_relative_to(directory) for directory in directories), (file, path)


def test_a_file_of_etc_is_installed_or_mounted() -> None:
    configured = mounted() | installed() | {SITE_CHECKS, NOTIFICATIONS, "/etc/nodeguard"}
    in_config_maps = {
        "/etc/nodeguard/agent.yaml",
        "/etc/nodeguard/policy.yaml",
        f"{NOTIFICATIONS}/notifications.yaml",
    }
    for file in FILES:
        assert named(file, "/etc") - configured - in_config_maps == set(), file


def test_a_socket_is_the_one_that_commands_ask() -> None:
    for file in FILES:
        assert {path for path in named(file, "/run") if path.endswith((".sock", "/socket"))} <= SOCKETS, file


def test_a_unit_is_shipped() -> None:
    for file in FILES:
        assert set(re.findall(r"\bnodeguard[\w-]*\.service\b", text(file))) <= set(UNITS), file


def test_a_port_is_a_default() -> None:
    agent, aggregator = agent_options([]), aggregator_options([])
    page = aggregator_options(["--page", PAGE]).page
    assert page is not None
    defaults = {str(listen[1]) for listen in (agent.listen, aggregator.listen, aggregator.metrics, page)}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    api_servers = {str(port) for port in values["networkPolicy"]["apiServerPorts"]}
    for file in FILES:
        ports = set(re.findall(r"(?:[\w\]]:|[Pp]ort: |port )([1-9]\d{3,4})\b", text(file)))
        assert ports <= defaults | api_servers, file


def test_observations_are_read_below_the_runtime_directory_of_the_agent() -> None:
    [path] = ObservationsSource.paths
    assert any(Path(path).is_relative_to(directory) for directory in made())
    assert path in text("docs/tasks/add-a-probe.md")


def test_what_is_shipped_for_etc_is_documented() -> None:
    assert set(shipped()) <= installed()
