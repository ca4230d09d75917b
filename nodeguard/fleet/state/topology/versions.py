"""The versions that a node runs, as domains of one level: `driver/580.95.05`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.model.target import target_kind


def version_domains(heard: LatestReport) -> tuple[str, ...]:
    """Every version of a node, by what its agent said last: several of one view where its parts differ.

    A domain of one may be most of the fleet: no budget is kept for them.
    """
    return tuple(dict.fromkeys(f"{view}/{_step(version)}" for view, version in _found(heard) if version))


def _found(heard: LatestReport) -> Iterator[tuple[str, str]]:
    inventory = heard.inventory
    yield "driver", inventory.driver
    parts = sorted(inventory.components.items())
    yield from (("vbios", part.vbios) for slot, part in parts if target_kind(slot) == "gpu")
    yield "kernel", inventory.kernel
    yield from (("firmware", part.firmware) for slot, part in parts if target_kind(slot) == "port")
    yield "agent", heard.agent
    yield "catalogue", heard.catalogue


def _step(version: str) -> str:
    """A version as a step of a path, in which `/` parts the steps."""
    return version.replace("/", "_")
