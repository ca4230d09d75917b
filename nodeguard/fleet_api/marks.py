"""The marks of a node, and what each of them waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.fleet.domains.words import until_cleared
from nodeguard.fleet.holding import Holding
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.release import RELEASING, Stay, key
from nodeguard.fleet_api.ages import age
from nodeguard.fleet_api.node_forms import DEGRADED, MarkTold, Wait
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import Cause, Mark
from nodeguard.model.node import Device


def marks(planner: Planner, uid: str, now: Instant) -> tuple[MarkTold, ...]:
    """What stands on a node and its devices, is about to, or is about to go; worst and oldest first."""
    holding, seen = planner.roster.holding(uid), planner.roster.observed(uid)
    stay = planner.releases.stay
    told = [
        _mark(place, cause, _wait(stay(uid, place, cause), now), now, written=_holds(seen, place, cause))
        for place, cause in _causes(holding)
    ]
    going = _wait(RELEASING, now)
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
            wait = _wait(RELEASING, now)
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


def _wait(one: Stay, now: Instant) -> Wait:
    """What a mark waits for."""
    if not one.until:
        return Wait(one.on, one.says)
    left = max(0.0, one.until - now.mono)
    return Wait(one.on, one.says, rfc3339(now.wall + left), round(left, 1))
