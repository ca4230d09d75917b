"""The versions of a node as failure domains, and when the node received them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from nodeguard.model.target import target_kind
from nodeguard.wire.report import Inventory

# Seconds for which a report has the age of a new version: for longer than its reader takes it for new.
REPORTED_SECONDS = 86_400.0


class VersionReceipts(Struct, frozen=True):
    """The versions of a node, and when it received each that replaced another one.

    versions: their domains, see `version_domains`. received: by domain, in seconds of one clock.
    """

    versions: tuple[str, ...] = ()
    received: dict[str, float] = {}

    def update(self, versions: tuple[str, ...], now: float) -> VersionReceipts:
        """Return the receipts with the versions of a time. Without one of a topology, for example while a
        driver is replaced, the latest version stays.
        """
        if versions == self.versions:
            return self
        topologies, earlier = set(map(_topology, versions)), set(map(_topology, self.versions))
        rest = (path for path in self.versions if _topology(path) not in topologies)
        after = (*versions, *rest)
        received = {path: at for path, at in self.received.items() if path in after}
        new = (path for path in versions if path not in self.versions and _topology(path) in earlier)
        return VersionReceipts(after, received | dict.fromkeys(new, now))

    def ages(self, now: float) -> dict[str, float]:
        """Return for how many seconds the node has had each new version, by domain. A time in the future, as
        after the clock was set back, is no age.
        """
        ages = {path: now - at for path, at in self.received.items()}
        return {path: age for path, age in ages.items() if 0.0 <= age < REPORTED_SECONDS}


def version_domains(inventory: Inventory, agent: str, catalogue: str) -> tuple[str, ...]:
    """Return every version of a node: several of one topology if its parts differ.

    A domain of a version may be most of the fleet: it has no budget.
    """
    versions = _versions(inventory, agent, catalogue)
    return tuple(dict.fromkeys(f"{topology}/{_step(version)}" for topology, version in versions if version))


def _versions(inventory: Inventory, agent: str, catalogue: str) -> Iterator[tuple[str, str]]:
    yield "driver", inventory.driver
    parts = sorted(inventory.components.items())
    yield from (("vbios", part.vbios) for target, part in parts if target_kind(target) == "gpu")
    yield "kernel", inventory.kernel
    yield from (("firmware", part.firmware) for target, part in parts if target_kind(target) == "port")
    yield "agent", agent
    yield "catalogue", catalogue


def _step(version: str) -> str:
    """Return a version as a step of a path, which `/` separates."""
    return version.replace("/", "_")


def _topology(path: str) -> str:
    return path.partition("/")[0]
