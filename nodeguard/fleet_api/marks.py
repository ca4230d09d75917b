"""Views of the marks of a node, with the wait of each. Pure."""

from __future__ import annotations

from nodeguard.fleet.decide.release import ReleaseWait
from nodeguard.fleet.decide.release_tracker import ActiveMark
from nodeguard.fleet.planner import Planner
from nodeguard.fleet_api.schema.node import MarkView, ReleaseWaitView
from nodeguard.fleet_api.service_state import age
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import mark_rank
from nodeguard.model.projection import project
from nodeguard.model.target import target_order


def marks_of_node(planner: Planner, uid: str, now: Instant) -> tuple[MarkView, ...]:
    """Return the marks of a node and its devices, worst and oldest first."""
    views = [_view(mark, now) for mark in planner.releases.active_marks(uid)]
    return tuple(
        sorted(
            views, key=lambda mark: (mark_rank(mark.mark), -mark.age, mark.check, target_order(mark.target))
        )
    )


def _view(mark: ActiveMark, now: Instant) -> MarkView:
    cause, wait = mark.cause, _wait(mark.wait, now)
    return project(
        MarkView,
        cause,
        device=mark.device.name if mark.device else "",
        check=cause.check or cause.fault_class.partition(",")[0] or cause.mark,
        fault_class=cause.taint_value,
        since=rfc3339(cause.since),
        age=age(now, cause.since),
        written=mark.is_written,
        wait=wait,
    )


def _wait(wait: ReleaseWait, now: Instant) -> ReleaseWaitView:
    if not wait.until:
        return ReleaseWaitView(wait.kind, wait.message)
    seconds_left = max(0.0, wait.until - now.mono)
    return ReleaseWaitView(wait.kind, wait.message, rfc3339(now.wall + seconds_left), round(seconds_left, 1))
