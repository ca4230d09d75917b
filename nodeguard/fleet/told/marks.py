"""The marks of a node, and what each of them waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.fleet.domains.words import until_cleared
from nodeguard.fleet.heard import Heard, tells_of
from nodeguard.fleet.holding import Holding
from nodeguard.fleet.modes import held_check
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.release import key
from nodeguard.fleet.told.ages import age
from nodeguard.fleet.told.node_forms import DEGRADED, MarkTold, Wait
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import Cause, Mark
from nodeguard.model.node import Device
from nodeguard.model.slot import label

_SHOWN = 4


def marks(planner: Planner, uid: str, now: Instant) -> tuple[MarkTold, ...]:
    """What stands on a node and its devices, is about to, or is about to go; worst and oldest first."""
    holding, seen = planner.roster.holding(uid), planner.roster.observed(uid)
    told = [
        _mark(place, cause, _wait(planner, uid, place, cause, now), now, written=_holds(seen, place, cause))
        for place, cause in _causes(holding)
    ]
    going = Wait("write", "is being given back")
    told += [
        _mark(place, cause, going, now, written=True)
        for place, cause in _causes(seen)
        if not _holds(holding, place, cause)
    ]
    told += _of_domains(planner, holding, seen, now)
    order = [*Mark, DEGRADED]
    return tuple(sorted(told, key=lambda one: (order.index(one.mark), -one.age, one.check, one.target)))


def _of_domains(planner: Planner, holding: Holding, seen: Holding, now: Instant) -> Iterator[MarkTold]:
    """The marks of domains, which all of their nodes carry, whatever they show themselves."""
    for one in dict.fromkeys((*holding.node.degraded, *seen.node.degraded)):
        blamed = planner.diagnosis.blamed.get(one.domain)
        if one in holding.node.degraded and blamed is not None:
            wait = Wait(
                "domain", f"{one.domain} to be in order: {until_cleared(blamed, planner.policy.blame)}"
            )
        else:
            wait = Wait("write", "is being given back")
        yield MarkTold(
            mark=DEGRADED,
            device="",
            check=one.kinds[0] if one.kinds else DEGRADED,
            target=one.domain,
            slots=(),
            part="",
            word=one.view,
            since=rfc3339(one.since),
            age=age(now, one.since),
            written=one in seen.node.degraded,
            wait=wait,
        )


def _causes(holding: Holding) -> Iterator[tuple[Device | None, Cause]]:
    for place in holding.places:
        for cause in holding.of(place).causes:
            yield place, cause


def _holds(holding: Holding, place: Device | None, cause: Cause) -> bool:
    return any(key(place, one) == key(place, cause) for one in holding.of(place).causes)


def _mark(place: Device | None, cause: Cause, wait: Wait, now: Instant, *, written: bool) -> MarkTold:
    return MarkTold(
        mark=cause.mark,
        device=place.name if place else "",
        check=cause.check,
        target=cause.target,
        slots=cause.slots,
        part=cause.part,
        word=cause.word,
        since=rfc3339(cause.since),
        age=age(now, cause.since),
        written=written,
        wait=wait,
    )


def _wait(planner: Planner, uid: str, place: Device | None, cause: Cause, now: Instant) -> Wait:
    """What a mark waits for: the first thing that keeps the planner from giving it back."""
    seat, one = planner.roster.seats.get(uid), planner.heard.get(uid)
    if seat is not None and seat.hold:
        return Wait("hold", f"the hold to end ({seat.hold}); until then nothing is changed here")
    if held_check(planner.policy, cause.check) is not None:
        return Wait("write", f"is being given back: check {cause.check} is held")
    if seat is not None and seat.maintenance:
        return Wait("maintenance", f"maintenance to end ({seat.maintenance}), and proof after it")
    if seat is None or one is None or uid in planner.silence.silent:
        return Wait("silence", "the node's agent to be heard; nothing goes because nobody speaks")
    proof = planner.proofs.get(uid, {}).get(key(place, cause))
    if proof is not None:
        left = max(0.0, proof.until - now.mono)
        until = rfc3339(now.wall + left)
        says = f"the soak to end, while {cause.check} goes on proving it"
        return Wait("soak", says, until, round(left, 1))
    if tells_of(one.findings, cause):
        return Wait("finding", f"{cause.check} to find it no more; it finds it still")
    if cause.check not in planner.checks:
        remedy = "hold the check in the policy, or take the mark away by hand"
        return Wait("check", f"a check that no agent has any more, {cause.check}: {remedy}")
    return Wait("proof", f"{cause.check} to prove that {_unproven(one, cause)} in order")


def _unproven(one: Heard, cause: Cause) -> str:
    """The slots of which a check has not said yet that they are in order."""
    places = dict.fromkeys(cause.slots or (cause.target,))
    for group in one.proven:
        if cause.check in group.checks:
            for slot in group.slots:
                places.pop(slot, None)
    # All of them are proven, and the next plan says so.
    missing = [label(slot) for slot in places or cause.slots or (cause.target,)]
    rest = len(missing) - _SHOWN
    named = ", ".join(missing[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
    return f"{named} {'is' if len(missing) == 1 else 'are'}"
