"""What derivation remembers from one round to the next, and what the catalogue wants it to look for."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from nodeguard.derive.event_dedup import DedupState
from nodeguard.derive.link_errors import LinkErrors
from nodeguard.derive.references import BestReadings
from nodeguard.derive.repeated_traps import Trap
from nodeguard.derive.xid_index import XidRecord
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Compare
from nodeguard.model.observation import Event, Reading
from nodeguard.model.signal import Signal


class XidLine(Struct, frozen=True, array_like=True):
    """A line of Xid, and the source that brought it."""

    source: str
    event: Event


class DeriveState(Struct, frozen=True):
    """The memory of derivation. Empty at the start.

    platform: id of the node's platform, empty where it is not known. latest: each source's latest reading.
    lines: Xid lines of each GPU within the window in which they explain each other, said: their codes. best:
    the last good inventory, by slot. moved: when the driver was last loaded or unloaded, in seconds since
    boot. starts: see services; still: see counters; traps: see repeats. waiting: see witness. owners: see
    attribution. links: see link_errors.
    """

    boot_id: str = ""
    platform: str = ""
    latest: dict[str, Reading] = {}
    lines: dict[str, tuple[XidLine, ...]] = {}
    xids: dict[str, tuple[XidRecord, ...]] = {}
    best: dict[str, BestReadings] = {}
    driver_changed_at: float | None = None
    starts: dict[str, tuple[int, int]] = {}
    heartbeats: dict[str, tuple[float, float]] = {}
    traps: dict[str, tuple[Trap, ...]] = {}
    dedup: DedupState = DedupState()
    owners: dict[str, str] = {}
    link_errors: dict[str, LinkErrors] = {}


class DerivationPlan(Struct, frozen=True):
    """What derivation is to look for.

    peers: signal → its kind, where some check holds it against peers. inventory: signals that some check
    holds against the last good inventory. bits: width by name of counters that stop at their maximum.
    sources: name of the source that reads a signal, by signal.
    """

    peers: dict[str, str]
    inventory: frozenset[str]
    bits: dict[str, int]
    sources: dict[str, str]


# What derivation itself asks of peers and inventory, to know which ports and links should be up.
_OWN_PEERS = {"port.up": "state", "gpu.nvlink.active": "state"}
_OWN_INVENTORY = frozenset({"port.up", "gpu.nvlink.active"})


def plan_derivation(catalogue: Catalogue, signals: Mapping[str, Signal]) -> DerivationPlan:
    """What the checks of a catalogue want. signals: all that exist, by name."""
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
    return DerivationPlan(peers, frozenset(inventory), bits, sources)


# Counters as wide as this do not come to their end.
_WIDE = 32
