"""Derivation: readings in, the same readings decoded and attributed out, and one more with what follows from
them. Pure.

state, derived = derive(catalogue, wanted, state, readings, instant, site)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.derive import counters, repeats, services
from nodeguard.derive.attribution import attributed, owners, with_last_mounts
from nodeguard.derive.conclusions import conclude
from nodeguard.derive.driver import branch, last_move
from nodeguard.derive.events import decoded
from nodeguard.derive.latest import LatestReadings, retained
from nodeguard.derive.overdue import overdue
from nodeguard.derive.platform import platform
from nodeguard.derive.state import DeriveState, Wanted
from nodeguard.derive.witness import witnessed
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.instant import Instant
from nodeguard.model.observation import DERIVED, Event, Observation, Reading
from nodeguard.model.platform import Platform


class Site(Struct, frozen=True):
    """What a site says of the node itself.

    platform: id of its platform. instance_type: the cloud's name for it.
    """

    platform: str = ""
    instance_type: str = ""


class Derived(Struct, frozen=True):
    """Readings to judge, and the platform to judge them by, None where it is not known."""

    readings: tuple[Reading, ...]
    platform: Platform | None


def derive(
    catalogue: Catalogue,
    wants: Wanted,
    state: DeriveState,
    readings: Sequence[Reading],
    instant: Instant,
    site: Site,
) -> tuple[DeriveState, Derived]:
    """State and derived readings after a round. state: of the round before, DeriveState() at the start."""
    if state.boot_id != instant.boot_id:
        state = DeriveState(boot_id=instant.boot_id, best=state.best)
    read_now = {reading.source for reading in readings}
    late = overdue((reading for name, reading in state.latest.items() if name not in read_now), instant.mono)
    readings = (*readings, *late)
    latest = dict(state.latest)
    for reading in readings:
        latest[reading.source] = retained(latest.get(reading.source), reading)
    owned = owners(latest, state.owners)
    places = with_last_mounts(owned, state.owners)
    seen = LatestReadings(
        (attributed(reading, places) for reading in latest.values()), wants.sources, instant.mono
    )
    placed = [attributed(reading, places) for reading in readings]
    waiting, single = witnessed(state.waiting, placed, latest, instant.mono)
    state, new = decoded(replace(state, waiting=waiting), single, catalogue, branch(seen))
    moved = last_move(state.moved, (event for reading in new for event in _events(reading)))
    make = platform(seen, catalogue.platforms, site.platform, site.instance_type, state.platform)
    state = replace(
        state,
        platform=make.id if make else "",
        latest=latest,
        owners=owned,
        moved=moved,
        starts=services.starts(seen, state.starts),
        still=counters.still(seen, state.still),
        traps=repeats.traps(seen, state.traps, readings),
    )
    best = conclude(seen, make, wants, state)
    signs = _signs(placed)
    observations = tuple(
        Observation(
            DERIVED,
            slot,
            signals=seen.derived.get(slot, {}),
            unread=seen.derived_unread.get(slot, {}),
            events=signs.get(slot, ()),
        )
        for slot in {**seen.derived, **seen.derived_unread, **signs}
    )
    counted = (counters.counted(reading, seen.derived) for reading in new)
    return replace(state, best=best), Derived((*counted, Reading(DERIVED, instant.mono, observations)), make)


def _events(reading: Reading) -> Iterable[Event]:
    return (event for observation in reading.observations for event in observation.events)


def _signs(readings: Iterable[Reading]) -> dict[str, tuple[Event, ...]]:
    """By slot, the driver's word that a GPU needs no recovery: a sign that what it reported before is over.

    It was asked after the reading began, which is therefore the moment that it surely speaks of.
    """
    return {
        one.slot: (Event("gpu.recovery_none", reading.began),)
        for reading in readings
        for one in reading.observations
        if one.signals.get("gpu.recovery_action") == 0
    }
