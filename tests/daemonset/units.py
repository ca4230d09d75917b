"""The systemd units that a site without Kubernetes installs, and the files that they read."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from tests.daemonset.manifests import DAEMONSET

UNITS = ("nodeguard-agent.service", "nodeguard-aggregator.service")

# Shipped files of /etc, at their own paths.
ETC = DAEMONSET / "etc"

# Where docs/install/agent.md and docs/install/standalone.md install nodeguard.
BINARY = "/opt/nodeguard/bin/nodeguard"


class Setting(NamedTuple):
    """One assignment of a unit file."""

    section: str
    key: str
    value: str


def path(unit: str) -> Path:
    """Return the file of a unit."""
    return DAEMONSET / unit


def settings(unit: str) -> list[Setting]:
    """Return the assignments of a unit file in their order, as systemd.syntax(7) defines them."""
    assignments, section, continued = [], "", ""
    for line in path(unit).read_text().splitlines():
        if line.startswith(("#", ";")) or not (line.strip() or continued):
            continue
        if line.endswith("\\"):
            continued += line.removesuffix("\\") + " "
            continue
        text, continued = continued + line, ""
        if text.startswith("["):
            section = text.strip("[]")
        else:
            key, equals, value = text.partition("=")
            assert equals, f"{unit}: no section, assignment or comment: {text}"
            assignments.append(Setting(section, key.strip(), value.strip()))
    return assignments


def value(unit: str, key: str) -> str:
    """Return the only value of a key; empty where it is not set."""
    values = [setting.value for setting in settings(unit) if setting.key == key]
    assert len(values) < 2, f"{unit}: {key} is set twice"
    return "".join(values)


def arguments(unit: str, host: str = "aggregator-1") -> list[str]:
    """Return the command line of a unit after the binary. host: the name of the machine."""
    binary, *words = shlex.split(value(unit, "ExecStart"))
    assert binary == BINARY
    return [word.replace("%H", host) for word in words]


def writable(unit: str) -> list[str]:
    """Return the directories that systemd makes for a unit, and that it may write."""
    kinds = {"StateDirectory": "/var/lib", "RuntimeDirectory": "/run"}
    return [f"{parent}/{name}" for key, parent in kinds.items() for name in value(unit, key).split()]


def shipped() -> dict[str, Path]:
    """Return the shipped files of /etc by the path where they are installed."""
    return {f"/etc/{file.relative_to(ETC)}": file for file in ETC.rglob("*") if file.is_file()}
