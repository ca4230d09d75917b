"""What follows from the readings of a node: signals that no source can read by itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from nodeguard.derive import counters, gpus, ports, presence, repeats, services, storage
from nodeguard.derive.driver import changing
from nodeguard.derive.references import Best, before, best_of, inventory, peers
from nodeguard.derive.state import DeriveState, Wanted
from nodeguard.derive.world import World
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar
from nodeguard.model.slot import NODE


def conclusions(
    seen: World, make: Platform | None, wants: Wanted, state: DeriveState
) -> tuple[dict[str, dict[str, Scalar]], dict[str, Best]]:
    """Derived signals by slot, and the inventory after this look.

    make: the platform, None where it is not known. state: services and counters as they are after this look,
    the inventory as it was before.
    """
    result: dict[str, dict[str, Scalar]] = {slot: {} for slot in seen.slots("gpu")}
    result[NODE] = changing(seen, state.moved)

    def add(pairs: Iterable[tuple[str, dict[str, Scalar]]]) -> None:
        for slot, values in pairs:
            result.setdefault(slot, {}).update(values)

    add(presence.gpus(seen))
    add(presence.rdma(seen))
    add(gpus.gpus(seen))
    add(services.services(seen, state.starts))
    add(services.needed(seen, make))
    add(counters.saturated(seen, wants.bits))
    add(counters.silence(seen, state.still))
    add(repeats.repeats(seen, state.traps))
    add(storage.filesystems(seen))
    add([(NODE, _counts(seen, make))])
    more = _with(seen, result)
    add(peers(more, wants.peers))
    best = inventory(more, wants.inventory, state.best)
    add(before(more, state.best, best))
    more = _with(seen, result)
    add(gpus.links(more, make, best_of(seen, state.best, "gpu.nvlink.active")))
    add(ports.expected(more, make, best_of(seen, state.best, "port.up")))
    return {slot: values for slot, values in result.items() if values or _is_gpu(seen, slot)}, best


def _is_there(seen: World, slot: str) -> bool:
    """Whether a GPU is on the bus or in NVML's list, whoever may use it."""
    signals = seen.of(slot)
    on_bus = bool(signals.get("pci.present")) and not signals.get("pci.virtual")
    return on_bus or slot in seen.of_source.get("nvml", ())


def _is_gpu(seen: World, slot: str) -> bool:
    return "gpu.recovery_action" in seen.of(slot)


def _with(seen: World, derived: dict[str, dict[str, Scalar]]) -> World:
    """The world with derived signals beside the read ones."""
    return replace(
        seen, signals={**seen.signals, **{slot: {**seen.of(slot), **more} for slot, more in derived.items()}}
    )


def _counts(seen: World, make: Platform | None) -> dict[str, Scalar]:
    """Counts of the node that no source can take by itself."""
    counted: dict[str, Scalar] = {}
    if any(source in seen.of_source and source not in seen.failed for source in ("pci", "nvml")):
        hidden = seen.node("gpu.handles_hidden") if "pci" not in seen.of_source else 0
        there = sum(1 for slot in seen.slots("gpu") if _is_there(seen, slot))
        counted["gpu.count"] = there + (hidden if isinstance(hidden, int) else 0)
    if make is not None and "infiniband" in seen.of_source and "infiniband" not in seen.failed:
        counted["port.fabric_count"] = len(ports.fabric(seen, make))
    return counted
