"""Derivation: readings in, the same readings decoded and attributed out, and one more with what follows from
them. Pure.

state, derived = derive(catalogue, wanted, state, readings, instant, site)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.derive import gpus, pcie, ports, presence, services, storage, thermal
from nodeguard.derive import port_counters as counters
from nodeguard.derive import repeated_traps as repeats
from nodeguard.derive.attribution import attribute_reading, find_owners, keep_last_mounts
from nodeguard.derive.derivation import Derivation, Values, run_derivations
from nodeguard.derive.driver import driver_branch, driver_changing_derivation, last_driver_change
from nodeguard.derive.event_decoding import decode_events
from nodeguard.derive.event_dedup import deduplicate_xids
from nodeguard.derive.latest_readings import LatestReadings, retain_reading
from nodeguard.derive.platform import match_platform
from nodeguard.derive.references import (
    BestReadings,
    add_inventory_references,
    add_peer_references,
    best_values,
    update_inventory,
)
from nodeguard.derive.state import DerivationPlan, DeriveState
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.instant import Instant
from nodeguard.model.observation import DERIVED, Event, Observation, Reading
from nodeguard.model.platform import Platform
from nodeguard.model.target import NODE


def overdue_readings(latest: Iterable[Reading], now: float) -> list[Reading]:
    """For each reading that does not hold any more, one that failed in its place.

    latest: each source's latest reading. now: seconds since boot.
    """
    return [
        Reading(
            one.source,
            now,
            (Observation(one.source, NODE, "failed", detail=_why(now - one.at)),),
            complete=False,
        )
        for one in latest
        if now - one.at > one.valid_for
    ]


def _why(seconds: float) -> str:
    return f"not read for {seconds:.0f} s"


def add_derived_signals(
    latest: LatestReadings, platform: Platform | None, wants: DerivationPlan, state: DeriveState
) -> dict[str, BestReadings]:
    """Add all derived signals to the readings, and return the inventory after this look.

    platform: None where it is not known. state: services and counters as they are after this look, the
    inventory as it was before.
    """
    most_links = best_values(latest, state.best, "gpu.nvlink.active")
    run_derivations(
        latest,
        (
            driver_changing_derivation(state.driver_changed_at),
            *presence.DERIVATIONS,
            *gpus.gpu_derivations(platform, most_links),
            *pcie.pcie_derivations(),
            *thermal.DERIVATIONS,
            *services.service_derivations(state.starts, platform),
            *counters.port_counter_derivations(wants.bits, state.heartbeats),
            repeats.trap_derivation(state.traps),
            *storage.DERIVATIONS,
            Derivation(NODE, ("gpu.count",), _gpu_count),
            ports.fabric_count_derivation(platform),
        ),
    )
    add_peer_references(latest, wants.peers)
    best = update_inventory(latest, wants.inventory, state.best)
    add_inventory_references(latest, state.best, best)
    run_derivations(
        latest,
        (
            gpus.nvlink_derivation(platform, most_links),
            *ports.port_derivations(platform, best_values(latest, state.best, "port.up")),
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
    hidden = latest.node_signal("gpu.handles_hidden") if on_bus is None else 0
    yield "gpu.count", len(there | (in_nvml or frozenset())) + (hidden if isinstance(hidden, int) else 0)


class PlatformHints(Struct, frozen=True):
    """What a site says of the node itself.

    platform: id of its platform. instance_type: the cloud's name for it.
    """

    platform: str = ""
    instance_type: str = ""


class DerivedReadings(Struct, frozen=True):
    """Readings to judge, and the platform to judge them by, None where it is not known."""

    readings: tuple[Reading, ...]
    platform: Platform | None


def derive(
    catalogue: Catalogue,
    wants: DerivationPlan,
    state: DeriveState,
    readings: Sequence[Reading],
    instant: Instant,
    site: PlatformHints,
) -> tuple[DeriveState, DerivedReadings]:
    """State and derived readings after a round. state: of the round before, DeriveState() at the start."""
    if state.boot_id != instant.boot_id:
        state = DeriveState(boot_id=instant.boot_id, best=state.best)
    read_now = {reading.source for reading in readings}
    late = overdue_readings(
        (reading for name, reading in state.latest.items() if name not in read_now), instant.mono
    )
    readings = (*readings, *late)
    latest = dict(state.latest)
    for reading in readings:
        latest[reading.source] = retain_reading(latest.get(reading.source), reading)
    owned = find_owners(latest, state.owners)
    places = keep_last_mounts(owned, state.owners)
    seen = LatestReadings(
        (attribute_reading(reading, places) for reading in latest.values()), wants.sources, instant.mono
    )
    placed = [attribute_reading(reading, places) for reading in readings]
    waiting, single = deduplicate_xids(state.dedup, placed, latest, instant.mono)
    state, new = decode_events(replace(state, waiting=waiting), single, catalogue, driver_branch(seen))
    moved = last_driver_change(
        state.driver_changed_at, (event for reading in new for event in _events(reading))
    )
    make = match_platform(seen, catalogue.platforms, site.platform, site.instance_type, state.platform)
    state = replace(
        state,
        platform=make.id if make else "",
        latest=latest,
        owners=owned,
        moved=moved,
        starts=services.track_starts(seen, state.starts),
        still=counters.track_heartbeats(seen, state.heartbeats),
        traps=repeats.record_traps(seen, state.traps, readings),
    )
    best = add_derived_signals(seen, make, wants, state)
    signs = _signs(placed)
    observations = tuple(
        Observation(
            DERIVED,
            slot,
            signals=seen.derived.get(slot, {}),
            unreadable=seen.derived_unread.get(slot, {}),
            events=signs.get(slot, ()),
        )
        for slot in {**seen.derived, **seen.derived_unread, **signs}
    )
    counted = (counters.drop_unused_counters(reading, seen.derived) for reading in new)
    return replace(state, best=best), DerivedReadings(
        (*counted, Reading(DERIVED, instant.mono, observations)), make
    )


def _events(reading: Reading) -> Iterable[Event]:
    return (event for observation in reading.observations for event in observation.events)


def _signs(readings: Iterable[Reading]) -> dict[str, tuple[Event, ...]]:
    """By slot, the driver's word that a GPU needs no recovery: a sign that what it reported before is over.

    It was asked after the reading began, which is therefore the moment that it surely speaks of.
    """
    return {
        one.target: (Event("gpu.recovery_none", reading.began),)
        for reading in readings
        for one in reading.observations
        if one.signals.get("gpu.recovery_action") == 0
    }
