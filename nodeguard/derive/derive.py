"""Derivation: attributes and decodes the readings of one round, and adds a reading of derived signals.

    state, derived = derive(plan, state, readings, instant, hints)

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.derive import presence, repeated_traps
from nodeguard.derive.attribution import attribute_reading, event_owners_of, find_owners
from nodeguard.derive.derivation import Derivation, Values, run_derivations
from nodeguard.derive.disks import DISK_SOURCES, FILESYSTEM_DERIVATIONS, disk_uses, worst_uses
from nodeguard.derive.driver_loads import date_loads
from nodeguard.derive.event_decoding import decode_events
from nodeguard.derive.event_dedup import DedupState, deduplicate_xids
from nodeguard.derive.fault_ends import SOAK, LoggedEvent, end_faults
from nodeguard.derive.gpus import THERMAL_DERIVATIONS, gpu_derivations, nvlink_derivation
from nodeguard.derive.host import (
    driver_branch,
    driver_changing_derivation,
    last_driver_change,
    service_derivations,
    track_starts,
)
from nodeguard.derive.latest_readings import LatestReadings, UnreadError, has_same_data, retain_reading
from nodeguard.derive.network_ports import PORT_COUNT_DERIVATION
from nodeguard.derive.pcie import pcie_derivations
from nodeguard.derive.planes import PLANE_DERIVATIONS
from nodeguard.derive.ports import (
    drop_unused_counters,
    fabric_count_derivation,
    port_counter_derivations,
    port_derivations,
    track_heartbeats,
)
from nodeguard.derive.program_deaths import NodeWork, record_work, report_deaths
from nodeguard.derive.references import (
    BestReadings,
    add_inventory_references,
    add_peer_references,
    best_values,
    update_inventory,
)
from nodeguard.derive.state import DerivationPlan, DeriveState
from nodeguard.model.instant import Instant
from nodeguard.model.observation import DERIVED, Event, Observation, Reading
from nodeguard.model.platform import Platform, PlatformMatch
from nodeguard.model.target import NODE


def match_platform(
    latest: LatestReadings, platforms: Iterable[Platform], named: str, instance_type: str, before: str
) -> Platform | None:
    """Return the platform with the configured id, else the first that matches, else the previous platform.

    instance_type: the cloud's name for the machine, empty where unknown. before: id of the platform at the
    last round, empty where it is not previous: a fault does not change the platform. Nothing matches
    by a part of a name: `gh200` is not `h200`.
    """
    candidates = tuple(platforms)
    if named:
        return next((platform for platform in candidates if platform.id == named), None)
    previous = next((candidate for candidate in candidates if candidate.id == before), None)
    names = {name for _, name in latest.read_values("gpu", "gpu.name")}
    facts: dict[str, object] = {
        "instance_type": instance_type or None,
        "gpu": names.pop() if len(names) == 1 else None,
    }
    for fact, signal in _SIGNALS.items():
        try:
            facts[fact] = latest.node_signal(signal)
        except UnreadError:
            if previous is not None:
                return previous
            facts[fact] = None
    matching = (
        candidate for candidate in candidates if any(_matches(match, facts) for match in candidate.match)
    )
    return next(matching, previous)


_SIGNALS = {
    "product_name": "host.product_name",
    "sys_vendor": "host.sys_vendor",
    "chassis_asset_tag": "host.chassis_asset_tag",
    "nvswitches": "nvswitch.pci_count",
}


def _matches(match: PlatformMatch, facts: dict[str, object]) -> bool:
    least, required = _required(match)
    switches = facts["nvswitches"]
    enough = isinstance(switches, int) and switches >= least if least else True
    return enough and bool(required) and all(facts[name] == value for name, value in required)


@lru_cache(maxsize=1024)  # each round compares the node with all platforms
def _required(match: PlatformMatch) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Return the least number of NVSwitches of a match, and the other facts that it requires."""
    required = {name: value for name in match.__struct_fields__ if (value := getattr(match, name))}
    return required.pop("nvswitches", 0), tuple(required.items())


class PlatformHints(Struct, frozen=True):
    """The configured platform of the node. platform: id. instance_type: the cloud's name."""

    platform: str = ""
    instance_type: str = ""


class DerivedSignals(Struct, frozen=True):
    """The derived signals of one round, which the next one uses again where no input changed.

    readings: each source's latest, see DeriveState. latest: with the derived signals. state: the part of the
    state before the round that derivations use.
    """

    readings: dict[str, Reading]
    latest: LatestReadings
    state: DeriveState


class DerivedReadings(Struct, frozen=True):
    """The readings for the judge, and the node's platform; None where it is not known.

    The last reading is that of the derived signals, unless these are the same as in the round before.
    signals: for the next round.
    """

    readings: tuple[Reading, ...]
    platform: Platform | None
    signals: DerivedSignals


def derive(
    plan: DerivationPlan,
    state: DeriveState,
    readings: Sequence[Reading],
    instant: Instant,
    hints: PlatformHints,
    before: DerivedSignals | None = None,
    remembered: Iterable[LoggedEvent] = (),
) -> tuple[DeriveState, DerivedReadings]:
    """Return the state and the readings for the judge.

    state: of the last call or DeriveState(). before: signals of the last call with the same plan and
    hints; without them, the result is the same and takes longer. remembered: the events of earlier rounds.
    """
    catalogue = plan.catalogue
    if state.boot_id != instant.boot_id:
        state = DeriveState(boot_id=instant.boot_id, best=state.best)
    sources = {reading.source for reading in readings}
    others = (reading for name, reading in state.latest.items() if name not in sources)
    readings = (*readings, *overdue_readings(others, instant.mono))
    retained = dict(state.latest)
    for reading in readings:
        retained[reading.source] = retain_reading(retained.get(reading.source), reading)
    uses = state.disk_uses if sources.isdisjoint(DISK_SOURCES) else disk_uses(retained)
    if before is not None and before.readings is state.latest and has_same_data(state.latest, retained):
        owners, latest = state.owners, before.latest
    else:
        before = None
        owners = find_owners(retained, state.owners)
        latest = _latest_readings(retained, owners, plan, instant.mono)
    event_owners = event_owners_of(readings, latest, owners, state.owners)
    event_uses = worst_uses(uses, state.disk_uses)
    attributed = [attribute_reading(reading, event_owners, event_uses) for reading in readings]
    load_begun_at, attributed = date_loads(state.load_begun_at, attributed)
    dedup, deduplicated = deduplicate_xids(state.dedup, attributed, retained, instant.mono)
    state = replace(state, dedup=dedup, load_begun_at=load_begun_at)
    state, decoded = decode_events(state, deduplicated, catalogue, driver_branch(latest))
    if before is None:
        platform = match_platform(
            latest, catalogue.platforms, hints.platform, hints.instance_type, state.platform
        )
    else:
        platform = next(
            (candidate for candidate in catalogue.platforms if candidate.id == state.platform), None
        )
    events = (event for reading in decoded for event in _events(reading))
    work, died = record_work(state.work, deduplicated, latest, state.xids, catalogue, instant.mono)
    decoded = report_deaths(decoded, died)
    state = replace(
        state,
        platform=platform.id if platform else "",
        latest=retained,
        owners=owners,
        disk_uses=uses,
        driver_changed_at=last_driver_change(state.driver_changed_at, events),
        starts=track_starts(latest, state.starts),
        heartbeats=track_heartbeats(latest, state.heartbeats),
        traps=repeated_traps.record_traps(latest, state.traps, readings),
        work=work,
    )
    used_state = _state_of_derivations(state)
    if before is not None and before.state == used_state:
        return state, DerivedReadings(tuple(decoded), platform, replace(before, readings=retained))
    if before is not None:
        latest = _latest_readings(retained, owners, plan, instant.mono)
    best = add_derived_signals(latest, platform, plan, state)
    used = (drop_unused_counters(reading, latest.derived) for reading in decoded)
    ends = end_faults(chain(remembered, _logged_events(decoded)), latest, readings)
    derived = Reading(DERIVED, latest.mono, _derived_observations(latest, attributed, ends))
    signals = DerivedSignals(retained, latest, used_state)
    return replace(state, best=best), DerivedReadings((*used, derived), platform, signals)


def _latest_readings(
    retained: Mapping[str, Reading], owners: Mapping[str, str], plan: DerivationPlan, now: float
) -> LatestReadings:
    """Return the latest readings by target. retained: by source. now: seconds since boot."""
    read_at = max((reading.at for reading in retained.values() if reading.observations), default=now)
    return LatestReadings(
        (attribute_reading(reading, owners, {}) for reading in retained.values()), plan.sources, read_at
    )


def _state_of_derivations(state: DeriveState) -> DeriveState:
    """Return the state without the parts that only decode events; see add_derived_signals."""
    return replace(state, latest={}, lines={}, xids={}, dedup=DedupState(), link_errors={}, work=NodeWork())


def overdue_readings(latest: Iterable[Reading], now: float) -> list[Reading]:
    """Return a failed reading in the place of each reading that is no longer valid.

    latest: each source's latest reading. now: seconds since boot.
    """
    return [
        Reading(
            reading.source,
            now,
            (Observation(reading.source, NODE, "failed", detail=f"not read for {now - reading.at:.0f} s"),),
            complete=False,
        )
        for reading in latest
        if now - reading.at > reading.valid_for
    ]


def add_derived_signals(
    latest: LatestReadings, platform: Platform | None, plan: DerivationPlan, state: DeriveState
) -> dict[str, BestReadings]:
    """Add the derived signals in the order of their dependencies, and return the new inventory.

    platform: None where it is not known. state: with services and counters after this round, and the
    inventory before it.
    """
    most_links = best_values(latest, state.best, "gpu.nvlink.active")
    run_derivations(
        latest,
        (
            driver_changing_derivation(state.driver_changed_at),
            *presence.DERIVATIONS,
            *gpu_derivations(platform, most_links),
            *pcie_derivations(),
            *THERMAL_DERIVATIONS,
            *service_derivations(state.starts, platform),
            *port_counter_derivations(plan.bits, state.heartbeats),
            *PLANE_DERIVATIONS,
            repeated_traps.trap_derivation(state.traps),
            *FILESYSTEM_DERIVATIONS,
            Derivation(NODE, ("gpu.count",), _gpu_count),
            PORT_COUNT_DERIVATION,
            fabric_count_derivation(platform),
        ),
    )
    add_peer_references(latest, plan.peers)
    best = update_inventory(latest, plan.inventory, state.best)
    add_inventory_references(latest, state.best, best)
    run_derivations(
        latest,
        (
            nvlink_derivation(platform, most_links),
            *port_derivations(platform, best_values(latest, state.best, "port.up")),
        ),
    )
    return best


def _gpu_count(latest: LatestReadings, _node: str) -> Values:
    """`gpu.count`: GPUs on the bus or in NVML's list, whether or not this process may use them."""
    on_bus, in_nvml = latest.listed("pci", "gpu"), latest.listed("nvml", "gpu")
    if on_bus is None and in_nvml is None:
        return
    present = {
        gpu for gpu in on_bus or () if latest.get(gpu, "pci.present") and not latest.get(gpu, "pci.virtual")
    }
    # Where the bus cannot be read, NVML's count of hidden handles is the only sign of a hidden GPU.
    hidden = latest.node_signal("gpu.handles_hidden") if on_bus is None else 0
    total = len(present | (in_nvml or frozenset()))
    yield "gpu.count", total + (hidden if isinstance(hidden, int) else 0)


def _derived_observations(
    latest: LatestReadings, attributed: Iterable[Reading], ends: Mapping[str, tuple[Event, ...]]
) -> tuple[Observation, ...]:
    """Return the derived signals, signs and ends of faults as one observation for each target."""
    signs = _recovery_signs(attributed)
    return tuple(
        Observation(
            DERIVED,
            target,
            signals=latest.derived.get(target, {}),
            unreadable=latest.derived_unread.get(target, {}),
            events=(*signs.get(target, ()), *ends.get(target, ())),
        )
        for target in {**latest.derived, **latest.derived_unread, **signs, **ends}
    )


def _events(reading: Reading) -> Iterable[Event]:
    return (event for observation in reading.observations for event in observation.events)


def _logged_events(readings: Iterable[Reading]) -> Iterator[LoggedEvent]:
    for reading in readings:
        for observation in reading.observations:
            for event in observation.events:
                yield observation.target, event.signal, event.at


def _recovery_signs(readings: Iterable[Reading]) -> dict[str, tuple[Event, ...]]:
    """Return by target the driver's report that a GPU needs no recovery: a sign that clears earlier events.

    It is about events that happened SOAK before the reading began: a reset leaves no line in the log, and
    shortly after an error "none" shows that the driver did not record the error, not that a reset was done.
    """
    return {
        observation.target: (Event("gpu.recovery_none", reading.began - SOAK),)
        for reading in readings
        for observation in reading.observations
        if observation.signals.get("gpu.recovery_action") == 0
    }
