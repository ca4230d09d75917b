"""What is given back: for proof and a soak, and never for anything else but where it is said here. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.heard import Heard, proves, tells_of
from nodeguard.fleet.holding import Holding, given_back
from nodeguard.fleet.modes import held_check
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Cause, Record
from nodeguard.model.node import Device
from nodeguard.model.policy import Policy, Soak


class Proof(Struct, frozen=True):
    """A cause that is proven to be over. since: seconds of the monotonic clock from when it has been, without
    a break; until: from then on its mark goes.
    """

    since: float
    until: float


class Freed(Struct, frozen=True):
    """A cause whose mark was given back, and why: `proven`, `retracted` (its check is held), `superseded` (a
    domain's mark covers the node), `removed` (by a person's own hand, and nothing is found there any more),
    or `gone` (with its device).
    """

    cause: Cause
    why: str


# What identifies a cause on a node: where it is remembered, its check, and the slot.
Key = tuple[Device | None, str, str]


def key(place: Device | None, cause: Cause) -> Key:
    """What identifies a cause that is remembered in some place."""
    return place, cause.check, cause.target


def proofs(
    before: Mapping[Key, Proof], holding: Holding, heard: Heard | None, soak: Soak, now: Instant
) -> dict[Key, Proof]:
    """Which causes are proven to be over now, and since when. heard: None while nothing is heard of the node,
    which proves nothing.
    """
    if heard is None:
        return {}
    found = {}
    for place in holding.places:
        for cause in holding.of(place).causes:
            if proves(heard, cause):
                name = key(place, cause)
                since = before[name].since if name in before else now.mono
                found[name] = Proof(since, since + _soak(holding, cause.check, soak, now.wall))
    return found


def released(
    policy: Policy,
    holding: Holding,
    heard: Heard | None,
    proven: Mapping[Key, Proof],
    removed: Callable[[Device | None, Cause], bool],
    held: Callable[[Cause], bool],
    now: Instant,
) -> tuple[Holding, tuple[Freed, ...]]:
    """What is left of what a node holds, and what was given back.

    removed: whether a cause's mark is not there any more though nodeguard did not take it away. held: whether
    a cause's check is not believed.
    """
    freed: list[Freed] = []

    def why(place: Device | None, cause: Cause) -> str:
        proof = proven.get(key(place, cause))
        if proof is not None and now.mono >= proof.until:
            return "proven"
        if held_check(policy, cause.check) is not None or held(cause):
            return "retracted"
        told = heard is not None and tells_of(heard.findings, cause)
        return "removed" if not told and removed(place, cause) else ""

    for place in holding.places:
        record = holding.of(place)
        gone = [Freed(cause, said) for cause in record.causes if (said := why(place, cause))]
        if not gone:
            continue
        freed += gone
        left = tuple(cause for cause in record.causes if all(cause is not one.cause for one in gone))
        holding = without(holding, place, replace(record, causes=left), policy.soak, now.wall)
    return _forgotten(holding, policy.soak, now.wall), tuple(freed)


def without(holding: Holding, place: Device | None, record: Record, soak: Soak, now: float) -> Holding:
    """With another record in a place, whose charge is given back where no cause is left. now: seconds since
    the epoch.
    """
    charge = record.charge
    if record.causes or charge is None:
        return holding.put(place, record)
    return given_back(holding.put(place, replace(record, charge=None)), charge, soak, now)


def _forgotten(holding: Holding, soak: Soak, now: float) -> Holding:
    """Without a past that counts for nothing any more, once nothing stands."""
    past = holding.node.past
    if not past or holding.marked or any(now - one.ended < soak.forget for one in past):
        return holding
    return replace(holding, node=replace(holding.node, past=()))


def _soak(holding: Holding, check: str, soak: Soak, now: float) -> float:
    times = max(
        (one.times for one in holding.node.past if one.check == check and now - one.ended < soak.forget),
        default=0,
    )
    return float(min(soak.most, soak.first * 2.0 ** min(times, 30)))
