"""The marks of a node, and what each of them waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.fleet.decide.release import RELEASING, ReleaseWait, cause_key
from nodeguard.fleet.diagnosis.explanation import clearing_message
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.node_marks import NodeMarks
from nodeguard.fleet_api.schema.node import DEGRADED, MarkView, ReleaseWait
from nodeguard.fleet_api.service_state import age
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import Mark, MarkCause
from nodeguard.model.node import Device


def marks_of_node(planner: Planner, uid: str, now: Instant) -> tuple[MarkView, ...]:
    """What stands on a node and its devices, is about to, or is about to go; worst and oldest first."""
    holding, seen = planner.state.marks(uid), planner.state.observed_marks(uid)
    stay = planner.releases.wait
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


def _of_domains(planner: Planner, holding: NodeMarks, seen: NodeMarks, now: Instant) -> Iterator[MarkView]:
    """The marks of domains, which all of their nodes carry, whatever they show themselves."""
    for one in dict.fromkeys((*holding.node.degraded, *seen.node.degraded)):
        blamed = planner.diagnosis.degraded_domains.get(one.domain)
        if one in holding.node.degraded and blamed is not None:
            wait = ReleaseWait(
                "domain", f"{one.domain} to be in order: {clearing_message(blamed, planner.policy.diagnosis)}"
            )
        else:
            wait = _wait(RELEASING, now)
        yield MarkView(
            mark=DEGRADED,
            device="",
            check=one.fault_classes[0] if one.fault_classes else DEGRADED,
            target=one.domain,
            slots=(),
            part="",
            word=one.topology,
            since=rfc3339(one.since),
            age=age(now, one.since),
            written=one in seen.node.degraded,
            wait=wait,
        )


def _causes(holding: NodeMarks) -> Iterator[tuple[Device | None, MarkCause]]:
    for place in holding.carriers:
        for cause in holding.record_of(place).causes:
            yield place, cause


def _holds(holding: NodeMarks, place: Device | None, cause: MarkCause) -> bool:
    return any(cause_key(place, one) == cause_key(place, cause) for one in holding.record_of(place).causes)


def _mark(
    place: Device | None, cause: MarkCause, wait: ReleaseWait, now: Instant, *, written: bool
) -> MarkView:
    return MarkView(
        mark=cause.mark,
        device=place.name if place else "",
        check=cause.check,
        target=cause.target,
        slots=cause.targets,
        part=cause.component,
        word=cause.fault_class,
        since=rfc3339(cause.since),
        age=age(now, cause.since),
        written=written,
        wait=wait,
    )


def _wait(one: ReleaseWait, now: Instant) -> ReleaseWait:
    """What a mark waits for."""
    if not one.until:
        return ReleaseWait(one.kind, one.message)
    left = max(0.0, one.until - now.mono)
    return ReleaseWait(one.kind, one.message, rfc3339(now.wall + left), round(left, 1))
