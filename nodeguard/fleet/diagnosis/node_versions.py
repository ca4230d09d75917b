"""The versions of a node as failure domains. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.model.target import target_kind


def version_domains(report: LatestReport) -> tuple[str, ...]:
    """Return every version of a node from its latest report: several of one topology if its parts differ.

    A domain of a version may be most of the fleet: it has no budget.
    """
    return tuple(
        dict.fromkeys(f"{topology}/{_step(version)}" for topology, version in _versions(report) if version)
    )


def _versions(report: LatestReport) -> Iterator[tuple[str, str]]:
    inventory = report.inventory
    yield "driver", inventory.driver
    parts = sorted(inventory.components.items())
    yield from (("vbios", part.vbios) for target, part in parts if target_kind(target) == "gpu")
    yield "kernel", inventory.kernel
    yield from (("firmware", part.firmware) for target, part in parts if target_kind(target) == "port")
    yield "agent", report.agent
    yield "catalogue", report.catalogue


def _step(version: str) -> str:
    """Return a version as a step of a path, which `/` separates."""
    return version.replace("/", "_")
