"""The systemd units are valid, and agree with the programs, the shipped settings and the manifests."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from nodeguard.agent import control
from nodeguard.agent.options import read_options_file
from nodeguard.aggregator.api import requests as asking
from nodeguard.aggregator.policy.policy_file import read_policy
from tests.cli.parsed_options import agent_options, aggregator_options
from tests.daemonset.manifests import document
from tests.daemonset.units import BINARY, ETC, UNITS, arguments, path, settings, shipped, value, writable

AGENT, AGGREGATOR = UNITS
EVERY_UNIT = pytest.mark.parametrize("unit", UNITS)

# Keys of systemd.unit(5), systemd.service(5), systemd.exec(5) and systemd.resource-control(5) that the units use.
KEYS = {
    "Unit": {"Description", "After", "Wants"},
    "Service": {
        *("Type", "ExecStart", "ExecReload", "WatchdogSec", "Restart", "RestartSec", "DynamicUser"),
        *("StateDirectory", "StateDirectoryMode", "RuntimeDirectory", "RuntimeDirectoryPreserve"),
        *("ProtectSystem", "ProtectHome", "PrivateDevices", "PrivateTmp", "NoNewPrivileges"),
        *("CapabilityBoundingSet", "RestrictAddressFamilies", "MemoryMax", "OOMScoreAdjust", "LimitNOFILE"),
        *(
            "Environment",
            "KeyringMode",
            "LockPersonality",
            "MemoryDenyWriteExecute",
            "PrivateUsers",
            "ProcSubset",
        ),
        *(
            "ProtectClock",
            "ProtectControlGroups",
            "ProtectHostname",
            "ProtectKernelLogs",
            "ProtectKernelModules",
        ),
        *("ProtectKernelTunables", "ProtectProc", "RemoveIPC", "RestrictNamespaces", "RestrictRealtime"),
        *(
            "RestrictSUIDSGID",
            "SystemCallArchitectures",
            "SystemCallErrorNumber",
            "SystemCallFilter",
            "UMask",
        ),
    },
    "Install": {"WantedBy"},
}


def paths(unit: str) -> set[str]:
    """The paths on the command line of a unit."""
    return {word for word in arguments(unit) if word.startswith("/")}


# Keys that add to a list each time they are set.
LISTS = {("Service", "SystemCallFilter")}


@EVERY_UNIT
def test_keys_are_valid_and_set_once(unit: str) -> None:
    counted = Counter((setting.section, setting.key) for setting in settings(unit))
    assert {key for key, count in counted.items() if count > 1} - LISTS == set()
    assert {(section, key) for section, key in counted if key not in KEYS.get(section, ())} == set()


@EVERY_UNIT
def test_systemd_analyze_accepts_the_unit(unit: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return  # a machine without systemd: the test above reads the same files
    copy = tmp_path / unit
    copy.write_text(path(unit).read_text().replace(BINARY, "/bin/true"))
    result = subprocess.run(
        [analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(("unit", "exposure"), [(AGENT, 4.0), (AGGREGATOR, 1.5)])
def test_systemd_rates_the_exposure_of_the_unit_as_low(unit: str, exposure: float) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return  # a machine without systemd
    result = subprocess.run(
        [analyze, "security", "--offline=yes", "--no-pager", str(path(unit))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    rated = re.search(r"Overall exposure level for \S+: ([0-9.]+)", result.stdout)
    if rated is None:
        return  # systemd before 250 cannot rate a file
    assert float(rated.group(1)) <= exposure


def test_each_capability_of_the_agent_has_a_reason() -> None:
    comments = "".join(line for line in path(AGENT).read_text().splitlines() if line.startswith("#"))
    assert [
        name
        for name in value(AGENT, "CapabilityBoundingSet").split()
        if not re.search(rf"\b{name.removeprefix('CAP_')}\b[^.]*:", comments)
    ] == []


@EVERY_UNIT
def test_paths_are_created_by_the_unit_or_installed(unit: str) -> None:
    installed = {*shipped(), *documented_targets()}
    # A socket is in a directory that systemd makes.
    left = paths(unit) - {*writable(unit), *installed}
    assert {path for path in left if str(Path(path).parent) not in writable(unit)} == set()


def documented_targets() -> set[str]:
    pages = (ETC.parent.parent / "docs" / "install" / name for name in ("agent.md", "standalone.md"))
    return set(
        re.findall(r"^    install -D .* (/etc/\S+)$", "\n".join(map(Path.read_text, pages)), re.MULTILINE)
    )


@EVERY_UNIT
def test_the_documentation_installs_the_unit_where_systemd_reads_it(unit: str) -> None:
    assert f"/etc/systemd/system/{unit}" in documented_targets()


def test_the_documentation_installs_every_shipped_file() -> None:
    assert set(shipped()) - documented_targets() == set()


def test_the_agent_accepts_its_command_line() -> None:
    command, *words = arguments(AGENT)
    assert command == "agent"
    options = agent_options([str(shipped().get(word, word)) for word in words])
    assert options.config == str(shipped()["/etc/nodeguard/agent.yaml"])
    assert options.state in writable(AGENT)
    assert options.aggregator is None
    assert (options.listen, options.socket) == (agent_options([]).listen, control.PATH)


def test_the_aggregator_accepts_its_command_line() -> None:
    command, *words = arguments(AGGREGATOR)
    assert command == "aggregator"
    options = aggregator_options(words)
    defaults = aggregator_options(["--standalone", "--insecure"])
    assert options.standalone
    assert {options.state, options.history} <= {*writable(AGGREGATOR)}
    assert options.hosts == ("aggregator-1",)
    assert options.listen[1] == defaults.listen[1]
    assert (options.metrics, options.socket) == (defaults.metrics, asking.SOCKET_PATH)


@pytest.mark.parametrize(("unit", "socket"), [(AGENT, control.PATH), (AGGREGATOR, asking.SOCKET_PATH)])
def test_commands_find_the_socket_without_an_option(unit: str, socket: str) -> None:
    assert str(Path(socket).parent) in writable(unit)


def test_no_two_units_share_a_directory() -> None:
    # systemd gives a directory to the user of the unit that starts last.
    directories = [directory for unit in UNITS for directory in writable(unit)]
    assert len(directories) == len(set(directories))


def test_the_shipped_settings_have_an_aggregator_as_a_comment(tmp_path: Path) -> None:
    shipped_file = ETC / "nodeguard" / "agent.yaml"
    assert read_options_file(str(shipped_file)).aggregator is None
    uncommented = tmp_path / "agent.yaml"
    uncommented.write_text(re.sub(r"^#(?! [A-Z])", "", shipped_file.read_text(), flags=re.MULTILINE))
    example = read_options_file(str(uncommented))
    assert example.checks == ("/etc/nodeguard/checks.d",)
    assert example.aggregator is not None
    page = (ETC.parent.parent / "docs" / "install" / "standalone.md").read_text()
    [block] = re.findall(r"```yaml\n(node: .*?)```", page, re.DOTALL)
    assert yaml.safe_load(block).items() <= yaml.safe_load(uncommented.read_text()).items()


def test_shipped_policy_equals_that_of_the_manifests() -> None:
    policy = ETC / "nodeguard" / "policy.yaml"
    _, warnings = read_policy(policy, {}, 0.0, ())
    assert warnings == ()
    manifest = document("ConfigMap", "nodeguard-policy")["data"]["policy.yaml"]
    # The values of a chart name no version: an upgrade of the chart does not change that of a site's values.
    assert yaml.safe_load(policy.read_text()) == {"version": 1, **yaml.safe_load(manifest)}


def test_systemd_waits_for_the_agent_to_be_ready_and_watches_it() -> None:
    # nodeguard.agent.process sends both; the aggregator sends neither.
    assert (value(AGENT, "Type"), value(AGENT, "WatchdogSec")) == ("notify", "30")
    assert (value(AGGREGATOR, "Type"), value(AGGREGATOR, "WatchdogSec")) == ("", "")
