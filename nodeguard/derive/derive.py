"""Derivation: readings in, the same readings decoded and attributed out, and one more with what follows from
them. Pure.

state, derived = derive(catalogue, wanted, state, readings, instant, site)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.derive import counters, repeats, services
from nodeguard.derive.attribution import attributed, owners
from nodeguard.derive.conclusions import conclusions
from nodeguard.derive.driver import branch, last_move
from nodeguard.derive.events import decoded
from nodeguard.derive.lapsed import failing, lapsed, why
from nodeguard.derive.overdue import overdue
from nodeguard.derive.platform import platform
from nodeguard.derive.state import DeriveState, Wanted
from nodeguard.derive.witness import witnessed
from nodeguard.derive.world import NOTHING, world
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
    told = {reading.source for reading in readings}
    late = overdue((one for one in state.latest.values() if one.source not in told), instant.mono)
    readings = (*readings, *late)
    latest = {**state.latest, **{reading.source: reading for reading in readings}}
    owned = owners(latest.values())
    seen = world((attributed(reading, owned) for reading in latest.values()), instant.mono)
    placed = [attributed(reading, owned) for reading in readings]
    waiting, single = witnessed(state.waiting, placed, latest, instant.mono)
    state, new = decoded(replace(state, waiting=waiting), single, catalogue, branch(seen))
    moved = last_move(state.moved, (event for one in new for event in _events(one)))
    make = platform(seen, catalogue.platforms, site.platform, site.instance_type, state.platform)
    state = replace(
        state,
        platform=make.id if make else "",
        latest=_without_events(latest),
        moved=moved,
        starts=services.starts(seen, state.starts),
        still=counters.still(seen, state.still),
        traps=repeats.traps(seen, state.traps, readings),
    )
    signals, best = conclusions(seen, make, wants, state)
    lost = lapsed(seen, state.derived, signals, state.failing)
    unread = {slot: {name: why(seen, cause) for name, cause in row.items()} for slot, row in lost.items()}
    signs = _signs(readings)
    observations = tuple(
        Observation(
            DERIVED,
            slot,
            signals=signals.get(slot, NOTHING),
            unread=unread.get(slot, {}),
            events=signs.get(slot, ()),
        )
        for slot in {**signals, **unread}
    )
    known = {
        slot: {**dict.fromkeys(signals.get(slot, ()), ""), **lost.get(slot, {})}
        for slot in {**signals, **lost}
    }
    state = replace(state, best=best, derived=known, failing=failing(seen))
    return state, Derived((*new, Reading(DERIVED, instant.mono, observations)), make)


def _events(reading: Reading) -> Iterable[Event]:
    return (event for observation in reading.observations for event in observation.events)


def _without_events(latest: dict[str, Reading]) -> dict[str, Reading]:
    """Readings as they are kept: events happened once, signals stand until the next reading."""
    return {
        source: replace(reading, observations=tuple(_quiet(one) for one in reading.observations))
        if any(one.events for one in reading.observations)
        else reading
        for source, reading in latest.items()
    }


def _quiet(observation: Observation) -> Observation:
    return replace(observation, events=()) if observation.events else observation


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
