"""The versions of a node as failure domains. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.model.target import target_kind
from nodeguard.wire.report import Report


def version_domains(report: Report) -> tuple[str, ...]:
    """Return every version of a node from its report: several of one topology if its parts differ.

    A domain of a version may be most of the fleet: it has no budget.
    """
    return tuple(
        dict.fromkeys(f"{topology}/{_step(version)}" for topology, version in _versions(report) if version)
    )


def _versions(report: Report) -> Iterator[tuple[str, str]]:
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
