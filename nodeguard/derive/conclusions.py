"""All derived signals of a node, in the order in which they rest on each other. Pure."""

from __future__ import annotations

from nodeguard.derive import counters, gpus, pcie, ports, presence, repeats, services, storage, thermal
from nodeguard.derive.derivation import Derivation, Values, run
from nodeguard.derive.driver import changing
from nodeguard.derive.latest import LatestReadings
from nodeguard.derive.references import Best, before, best_of, inventory, peers
from nodeguard.derive.state import DeriveState, Wanted
from nodeguard.model.platform import Platform
from nodeguard.model.slot import NODE


def conclude(
    latest: LatestReadings, platform: Platform | None, wants: Wanted, state: DeriveState
) -> dict[str, Best]:
    """Add all derived signals to the readings, and return the inventory after this look.

    platform: None where it is not known. state: services and counters as they are after this look, the
    inventory as it was before.
    """
    most_links = best_of(latest, state.best, "gpu.nvlink.active")
    run(
        latest,
        (
            changing(state.moved),
            *presence.DERIVATIONS,
            *gpus.gpus(platform, most_links),
            *pcie.pcie(),
            *thermal.DERIVATIONS,
            *services.services(state.starts, platform),
            *counters.counters(wants.bits, state.still),
            repeats.repeats(state.traps),
            *storage.DERIVATIONS,
            Derivation(NODE, ("gpu.count",), _gpu_count),
            ports.fabric_count(platform),
        ),
    )
    peers(latest, wants.peers)
    best = inventory(latest, wants.inventory, state.best)
    before(latest, state.best, best)
    run(
        latest,
        (
            gpus.links(platform, most_links),
            *ports.ports(platform, best_of(latest, state.best, "port.up")),
        ),
    )
    return best


def _gpu_count(latest: LatestReadings, _node: str) -> Values:
    """`gpu.count`: GPUs that are on the bus or in NVML's list, whoever may use them."""
    on_bus, in_nvml = latest.listed("pci", "gpu"), latest.listed("nvml", "gpu")
    if on_bus is None and in_nvml is None:
        return
    there = {
        gpu for gpu in on_bus or () if latest.get(gpu, "pci.present") and not latest.get(gpu, "pci.virtual")
    }
    # Without a bus to look at, the handles that are hidden from this process are all that is known of a GPU.
    hidden = latest.node("gpu.handles_hidden") if on_bus is None else 0
    yield "gpu.count", len(there | (in_nvml or frozenset())) + (hidden if isinstance(hidden, int) else 0)
