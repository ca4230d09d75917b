"""Latest readings for tests of derivations, made of some observations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derivation import Derivation, run_derivations
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.derive.state import plan_derivation
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.observation import Component, Event, Observation, Reading
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar

GPUS = [f"gpu/0000:{bus:02x}:00" for bus in (0x1B, 0x43, 0x52, 0x61)]


@cache
def tables() -> Catalogue:
    """The catalogue that comes with nodeguard."""
    return load_catalogue()[0]


def observe(
    source: str, target: str, signals: Mapping[str, Scalar] | None = None, *, part: str = ""
) -> Observation:
    """Return the observation of a target by a source. part: its model."""
    return Observation(
        source, target, signals=dict(signals or {}), component=Component("id", model=part) if part else None
    )


def readings(
    *observations: Observation, at: float = 100.0, empty: tuple[str, ...] = (), cut: tuple[str, ...] = ()
) -> list[Reading]:
    """Return one round. empty: sources without observations; cut: sources with an incomplete round."""
    names = dict.fromkeys((*empty, *cut, *(observation.source for observation in observations)))
    return [
        Reading(
            name,
            at,
            tuple(observation for observation in observations if observation.source == name),
            complete=name not in cut,
        )
        for name in names
    ]


@cache
def sources() -> Mapping[str, str]:
    """The source of each signal."""
    return plan_derivation(*load_catalogue()).sources


def machine(
    *observations: Observation, at: float = 100.0, empty: tuple[str, ...] = (), cut: tuple[str, ...] = ()
) -> LatestReadings:
    """The readings of one round."""
    return LatestReadings(readings(*observations, at=at, empty=empty, cut=cut), sources(), at)


def expecting(**expect: Scalar | tuple[Scalar, ...]) -> Platform:
    """A platform that expects this."""
    return Platform("made-up", "A made-up platform", (), dict(expect), "")


def xid(code: int, rest: str = "pid=1234, name=python3, Ch 00000008", at: float = 100.0) -> Event:
    """A line of Xid as the kernel log's source gives it."""
    return Event(
        "gpu.xid.line",
        at,
        f"NVRM: Xid (PCI:0000:1b:00): {code}, {rest}",
        {"pci": "0000:1b:00", "xid": code, "rest": rest},
    )


def derived(latest: LatestReadings, *derivations: Derivation) -> dict[str, dict[str, Scalar]]:
    """Return the derived signals by target."""
    run_derivations(latest, derivations)
    return latest.derived


def unread(latest: LatestReadings, *derivations: Derivation) -> dict[str, dict[str, str]]:
    """Return the reasons of signals that could not be derived, by target."""
    run_derivations(latest, derivations)
    return latest.derived_unread
