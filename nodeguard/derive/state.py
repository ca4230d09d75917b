"""State of the derivation between two rounds, and its plan: the references that checks use."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from nodeguard.derive.event_dedup import DedupState
from nodeguard.derive.link_errors import LinkErrors
from nodeguard.derive.program_deaths import NodeWork
from nodeguard.derive.references import BestReadings
from nodeguard.derive.repeated_traps import Trap
from nodeguard.derive.xid_index import XidRecord
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Compare
from nodeguard.model.observation import Event, Reading
from nodeguard.model.signal import Signal


class XidLine(Struct, frozen=True, array_like=True):
    """A line of Xid, and the source that read it."""

    source: str
    event: Event


class DeriveState(Struct, frozen=True):
    """State of the derivation, empty at the start."""

    boot_id: str = ""
    platform: str = ""
    """Id of the node's platform; empty where it is not known."""

    latest: dict[str, Reading] = {}
    """Each source's latest reading."""

    lines: dict[str, tuple[XidLine, ...]] = {}
    """Xid lines of each GPU within the window in which they explain each other."""

    xids: dict[str, tuple[XidRecord, ...]] = {}
    """Codes of each GPU within that window."""

    best: dict[str, BestReadings] = {}
    """The last good inventory, by target."""

    driver_changed_at: float | None = None
    """Last load or unload of the driver, in seconds since boot."""

    load_begun_at: float | None = None
    """Start of the load of the driver that is under way, in seconds since boot."""

    starts: dict[str, tuple[int, int]] = {}
    """See host.track_starts."""

    heartbeats: dict[str, tuple[float, float]] = {}
    """See ports.track_heartbeats."""

    traps: dict[str, tuple[Trap, ...]] = {}
    dedup: DedupState = DedupState()
    owners: dict[str, str] = {}
    """See attribution.find_owners."""

    disk_uses: dict[str, str] = {}
    """See disks.disk_uses."""

    link_errors: dict[str, LinkErrors] = {}
    work: NodeWork = NodeWork()


class DerivationPlan(Struct, frozen=True):
    """The catalogue, and the references and counters that its checks need.

    peers: kind of each signal that a check compares with peers. inventory: signals that a check compares with
    the last good inventory. bits: width of each counter that stops at its maximum. sources: name of the
    source that reads each signal.
    """

    catalogue: Catalogue
    peers: dict[str, str]
    inventory: frozenset[str]
    bits: dict[str, int]
    sources: dict[str, str]


# References that the derivation of expected ports and links needs.
_OWN_PEERS = {"port.up": "state", "gpu.nvlink.active": "state"}
_OWN_INVENTORY = frozenset({"port.up", "gpu.nvlink.active"})


def plan_derivation(catalogue: Catalogue, signals: Mapping[str, Signal]) -> DerivationPlan:
    """Return the plan for the checks of a catalogue. signals: all that exist, by name."""
    peers = dict(_OWN_PEERS)
    inventory = set(_OWN_INVENTORY)
    for check in catalogue.checks:
        for leaf in check.leaves():
            if isinstance(leaf, Compare) and leaf.than is not None:
                if leaf.than.of == "peers":
                    peers[leaf.than.name] = signals[leaf.than.name].kind
                elif leaf.than.of == "inventory":
                    inventory.add(leaf.than.name)
    bits = {name: signal.bits for name, signal in signals.items() if signal.bits and signal.bits < _WIDE}
    sources = {name: signal.source for name, signal in signals.items()}
    return DerivationPlan(catalogue, peers, frozenset(inventory), bits, sources)


# Counters of this width do not reach their maximum.
_WIDE = 32
