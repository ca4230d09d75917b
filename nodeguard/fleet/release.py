"""What is given back: for proof and a soak, and never for anything else but where it is said here. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.heard import Heard, proves, tells_of
from nodeguard.fleet.holding import Holding, given_back
from nodeguard.fleet.modes import held_check
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Cause, Record
from nodeguard.model.node import Device
from nodeguard.model.policy import Policy, Soak
from nodeguard.model.slot import label

# What a mark waits for: see Stay.
On = Literal[
    "finding", "proof", "soak", "check", "hold", "maintenance", "silence", "domain", "evaluation", "write"
]

# Slots that are named before the rest is counted.
_SHOWN = 4


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


class Stay(Struct, frozen=True):
    """Why a mark stays: what has to happen before it is released.

    on: `finding`: its check must stop finding the fault; `proof`: the check must report that it is over;
    `soak`: it has, and time must pass; `check`: no agent has that check any more; `hold`, `maintenance`:
    people must end theirs; `silence`: the node's agent must report; `domain`: the domain must not be degraded
    any more; `evaluation`: the aggregator must evaluate it, for the first time since its start; `write`:
    nothing but the write. says: in words. until: seconds of the monotonic clock at which a
    soak period ends; 0 for any other.
    """

    on: On
    says: str
    until: float = 0.0


RELEASING = Stay("write", "is being released")
NOT_EVALUATED = Stay("evaluation", "the aggregator to evaluate it, which it has not done since it started")


class NodeFacts(Struct, frozen=True):
    """What the release of a node's marks follows from.

    heard: its latest report, None while that proves nothing; absent: why that is so. proven: see `proofs`.
    """

    heard: Heard | None
    absent: Stay
    proven: Mapping[Key, Proof]


class Released(Struct, frozen=True):
    """What is left of what a node holds, what is released, and why the rest stays, by what identifies it."""

    holding: Holding
    freed: tuple[Freed, ...]
    stays: dict[Key, Stay]


def released(
    policy: Policy,
    holding: Holding,
    facts: NodeFacts,
    removed: Callable[[Device | None, Cause], bool],
    suppressed: Callable[[Cause], bool],
    now: Instant,
) -> Released:
    """Return what is released of what a node holds, and why the rest stays.

    removed: whether a cause's mark is not there any more though nodeguard did not take it away. suppressed:
    whether a cause's check is suppressed and nothing else confirms the cause.
    """
    freed: list[Freed] = []
    stays: dict[Key, Stay] = {}

    def why(place: Device | None, cause: Cause) -> str:
        proof = facts.proven.get(key(place, cause))
        if proof is not None and now.mono >= proof.until:
            return "proven"
        if held_check(policy, cause.check) is not None or suppressed(cause):
            return "retracted"
        told = facts.heard is not None and tells_of(facts.heard.findings, cause)
        return "removed" if not told and removed(place, cause) else ""

    for place in holding.places:
        record = holding.of(place)
        gone = [Freed(cause, said) for cause in record.causes if (said := why(place, cause))]
        left = tuple(cause for cause in record.causes if all(cause is not one.cause for one in gone))
        stays.update((key(place, cause), _stay(facts, place, cause)) for cause in left)
        if gone:
            freed += gone
            holding = without(holding, place, replace(record, causes=left), policy.soak, now.wall)
    return Released(_forgotten(holding, policy.soak, now.wall), tuple(freed), stays)


def all_stay(holding: Holding, why: Stay) -> dict[Key, Stay]:
    """Return the same reason for everything that a node holds."""
    return {key(place, cause): why for place in holding.places for cause in holding.of(place).causes}


def finds_still(check: str) -> Stay:
    """Return why a mark stays whose check finds the fault still."""
    return Stay("finding", f"{check} to find it no more; it finds it still")


def no_such_check(check: str) -> Stay:
    """Return why a mark stays whose check no agent has any more: nothing can prove that it is over."""
    remedy = "hold the check in the policy, or remove the mark by hand"
    return Stay("check", f"check {check}, which no agent has any more: {remedy}")


def _stay(facts: NodeFacts, place: Device | None, cause: Cause) -> Stay:
    proof = facts.proven.get(key(place, cause))
    if proof is not None:
        return Stay("soak", f"the soak period to end, while {cause.check} goes on proving it", proof.until)
    if facts.heard is None:
        return facts.absent
    if tells_of(facts.heard.findings, cause):
        return finds_still(cause.check)
    return Stay("proof", f"{cause.check} to prove that {_unproven(facts.heard, cause)} in order")


def _unproven(one: Heard, cause: Cause) -> str:
    """Return the slots of which a check has not reported yet that they are in order."""
    places = dict.fromkeys(cause.slots or (cause.target,))
    for group in one.proven:
        if cause.check in group.checks:
            for slot in group.slots:
                places.pop(slot, None)
    # All of them are proven, and the next plan says so.
    missing = [label(slot) for slot in places or cause.slots or (cause.target,)]
    rest = len(missing) - _SHOWN
    names = ", ".join(missing[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
    return f"{names} {'is' if len(missing) == 1 else 'are'}"


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
