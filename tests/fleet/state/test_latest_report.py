from __future__ import annotations

from msgspec.structs import replace

from nodeguard.fleet.state.latest_report import LatestReport, TupleInterner, latest_report
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.wire.encoding import decode_message, encode
from nodeguard.wire.report import VERSION, Inventory, Report, ReportedComponent

GPU = "gpu/0000:1b:00"


def received(node: str) -> tuple[Report, LatestReport]:
    """Return the decoded report of a node, and its state."""
    component = ReportedComponent(f"GPU-{node}", "NVIDIA H100 80GB HBM3", f"serial-{node}", "96.00.89.00.01")
    report = Report(
        version=VERSION,
        node=node,
        boot_id="boot-1",
        sequence=1,
        health=Health.OK,
        agent="0.1.0",
        catalogue="0123456789abcdef",
        inventory=Inventory("570.124.06", "6.8.0-45-generic", "dgx-h100", {GPU: component}),
    )
    message = decode_message(encode(report))
    assert isinstance(message, Report)
    return message, latest_report(message, Instant(1e9, 1.0, ""), TupleInterner())


def test_the_inventory_of_a_report_stays_equal() -> None:
    report, latest = received("node-1")
    assert latest.inventory == report.inventory


def test_an_equal_inventory_of_the_next_report_is_stored_once() -> None:
    report, first = received("node-1")
    second = latest_report(report, Instant(1e9, 2.0, ""), TupleInterner(), first)
    assert second.inventory is first.inventory
    changed = replace(report, inventory=replace(report.inventory, driver="570.1"))
    assert (
        latest_report(changed, Instant(1e9, 3.0, ""), TupleInterner(), first).inventory == changed.inventory
    )


def test_nodes_of_one_model_share_the_text_of_their_inventories() -> None:
    (_, first), (_, second) = received("node-1"), received("node-2")
    assert first.inventory != second.inventory
    assert first.agent is second.agent
    assert first.catalogue is second.catalogue
    assert first.inventory.driver is second.inventory.driver
    assert first.inventory.kernel is second.inventory.kernel
    assert first.inventory.platform is second.inventory.platform
    [(target, component)] = first.inventory.components.items()
    [(other_target, other)] = second.inventory.components.items()
    assert target is other_target
    assert component.model is other.model
    assert component.vbios is other.vbios
