"""Views of the marks of a node, with what each waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.fleet.decide.release import RELEASING, ReleaseWait, cause_key
from nodeguard.fleet.diagnosis.explanation import clearing_message
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.node_marks import NodeMarks
from nodeguard.fleet_api.schema.node import DEGRADED, MarkView, ReleaseWaitView
from nodeguard.fleet_api.service_state import age
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import Mark, MarkCause
from nodeguard.model.node import Device


def marks_of_node(planner: Planner, uid: str, now: Instant) -> tuple[MarkView, ...]:
    """Return the marks of a node and its devices, those to be written or removed included; worst and oldest
    first.
    """
    holding, observed = planner.state.marks(uid), planner.state.observed_marks(uid)
    stay = planner.releases.wait
    views = [
        _mark(
            place, cause, _wait(stay(uid, place, cause), now), now, written=_has_cause(observed, place, cause)
        )
        for place, cause in _causes(holding)
    ]
    releasing = _wait(RELEASING, now)
    views += [
        _mark(place, cause, releasing, now, written=True)
        for place, cause in _causes(observed)
        if not _has_cause(holding, place, cause)
    ]
    views += _of_domains(planner, holding, observed, now)
    order = [*Mark, DEGRADED]
    return tuple(sorted(views, key=lambda mark: (order.index(mark.mark), -mark.age, mark.check, mark.target)))


def _of_domains(
    planner: Planner, holding: NodeMarks, observed: NodeMarks, now: Instant
) -> Iterator[MarkView]:
    """Yield the marks of degraded domains, which all of their nodes carry."""
    for mark in dict.fromkeys((*holding.node.degraded, *observed.node.degraded)):
        degraded = planner.diagnosis.degraded_domains.get(mark.domain)
        if mark in holding.node.degraded and degraded is not None:
            wait = ReleaseWaitView(
                "domain",
                f"{mark.domain} to be in order: {clearing_message(degraded, planner.policy.diagnosis)}",
            )
        else:
            wait = _wait(RELEASING, now)
        yield MarkView(
            mark=DEGRADED,
            device="",
            check=mark.fault_classes[0] if mark.fault_classes else DEGRADED,
            target=mark.domain,
            targets=(),
            component="",
            fault_class=mark.topology,
            since=rfc3339(mark.since),
            age=age(now, mark.since),
            written=mark in observed.node.degraded,
            wait=wait,
        )


def _causes(holding: NodeMarks) -> Iterator[tuple[Device | None, MarkCause]]:
    for place in holding.carriers:
        for cause in holding.record_of(place).causes:
            yield place, cause


def _has_cause(holding: NodeMarks, place: Device | None, cause: MarkCause) -> bool:
    return any(
        cause_key(place, other) == cause_key(place, cause) for other in holding.record_of(place).causes
    )


def _mark(
    place: Device | None, cause: MarkCause, wait: ReleaseWaitView, now: Instant, *, written: bool
) -> MarkView:
    return MarkView(
        mark=cause.mark,
        device=place.name if place else "",
        check=cause.check,
        target=cause.target,
        targets=cause.targets,
        component=cause.component,
        fault_class=cause.fault_class,
        since=rfc3339(cause.since),
        age=age(now, cause.since),
        written=written,
        wait=wait,
    )


def _wait(stay: ReleaseWait, now: Instant) -> ReleaseWaitView:
    """Return what a mark waits for."""
    if not stay.until:
        return ReleaseWaitView(stay.kind, stay.message)
    seconds_left = max(0.0, stay.until - now.mono)
    return ReleaseWaitView(stay.kind, stay.message, rfc3339(now.wall + seconds_left), round(seconds_left, 1))
