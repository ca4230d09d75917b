"""Views of drains that are not finished. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.fleet.act.drain_report import DrainReport
from nodeguard.fleet_api.schema.drain import DrainView, PodGroupView, PodView
from nodeguard.fleet_api.service_state import age
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.projection import project


def drain_views(reports: Iterable[DrainReport], now: Instant, uid: str = "") -> tuple[DrainView, ...]:
    """Return the views of drains, those of one node if its uid is given, by name of the node."""
    return tuple(
        project(
            DrainView,
            report,
            state=report.state.value,
            pods=tuple(project(PodView, pod) for pod in report.pods),
            pod_groups=tuple(project(PodGroupView, group) for group in report.pod_groups),
            since=rfc3339(report.since),
            evict_at=rfc3339(report.evict_at) if report.evict_at else "",
            limited_until=rfc3339(report.limited_until) if report.limited_until else "",
            age=age(now, report.since),
        )
        for report in sorted(reports, key=lambda report: (report.node, report.resource))
        if uid in {"", report.uid}
    )
