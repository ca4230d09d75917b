"""Views of components: the GPUs or the ports of the latest inventories, with the findings on them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.latest_report import LatestReport
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.fleet_api.node import UNKNOWN, known_health
from nodeguard.fleet_api.schema.component import ComponentList, ComponentView
from nodeguard.fleet_api.schema.status import VERSION
from nodeguard.model.finding import Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.target import bus_address, parent_target, target_kind, target_order
from nodeguard.wire.report import Inventory, ReportedComponent, ReportedFinding
from nodeguard.wire.report_builder import FIRST_KINDS

ComponentKind = Literal["gpu", "port"]

_ABSENT = ReportedComponent()


def list_components(
    planner: Planner, now: Instant, kind: ComponentKind, nodes: Iterable[NodePlacement]
) -> ComponentList:
    """Return the components of one kind of some nodes, in the order of these."""
    stale = planner.state.stale_agents(now).stale
    components: list[ComponentView] = []
    omitted: dict[str, int] = {}
    not_reported = 0
    for placement in nodes:
        report = planner.reports.get(placement.uid)
        if report is None:
            not_reported += 1
            continue
        is_known = known_health(planner, placement.uid, stale) is not None
        components += _components(placement.name, report, kind, is_known=is_known)
        if _may_lack(report.inventory, kind):
            omitted[placement.name] = report.inventory.omitted
    return ComponentList(
        VERSION, rfc3339(now.wall), tuple(components), sum(omitted.values()), tuple(omitted), not_reported
    )


def _may_lack(inventory: Inventory, kind: ComponentKind) -> bool:
    """Return whether a full report may have left out components of a kind: a report leaves out the last."""
    last = target_kind(next(reversed(inventory.components), "gpu/"))
    return inventory.omitted > 0 and last in FIRST_KINDS[: FIRST_KINDS.index(kind) + 1]


def _components(
    node: str, report: LatestReport, kind: ComponentKind, *, is_known: bool
) -> Iterator[ComponentView]:
    """Yield the components of a node, by target. is_known: whether its health is known."""
    inventory = report.inventory.components
    findings = defaultdict[str, list[ReportedFinding]](list)
    for finding in report.findings:
        for target in dict.fromkeys(map(_component_target, (finding.target, *finding.targets))):
            findings[target].append(finding)
    passed = {target for group in report.proven for target in group.targets}
    for target in sorted({*inventory, *findings}, key=target_order):
        if target_kind(target) == kind:
            health = _health(findings[target], passed=target in passed) if is_known else UNKNOWN
            yield _component(node, target, inventory.get(target), findings[target], health)


def _component_target(target: str) -> str:
    """Return the GPU of an NVLink, else the target itself."""
    return parent_target(target) if target_kind(target) == "nvlink" else target


def _health(findings: Iterable[ReportedFinding], *, passed: bool) -> str:
    worst = max((finding.health for finding in findings), key=lambda health: health.rank, default=None)
    return worst.value if worst is not None else Health.OK.value if passed else UNKNOWN


def _component(
    node: str, target: str, component: ReportedComponent | None, findings: list[ReportedFinding], health: str
) -> ComponentView:
    reported = component or _ABSENT
    worst = max(findings, key=lambda finding: finding.health.rank, default=None)
    # A finding has the names of a GPU that the inventory lacks.
    hardware = next((finding.hardware for finding in findings if finding.hardware), Hardware())
    reported_id = next((finding.component for finding in findings if finding.component), "")
    kind, _, location = target.partition("/")
    return ComponentView(
        name=f"{node}/{location}",
        node=node,
        target=target,
        index=reported.index if reported.index is not None else hardware.index,
        model=reported.model,
        id=reported.id or reported_id,
        address=(bus_address(location) or "") if kind == "gpu" else "",
        serial=reported.serial or hardware.serial,
        vbios=reported.vbios,
        firmware=reported.firmware,
        health=health,
        findings=len(findings),
        worst=worst.check if worst else "",
        message=worst.message if worst else "",
        in_inventory=component is not None,
    )
