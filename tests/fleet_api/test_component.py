from __future__ import annotations

from nodeguard.fleet_api.component import ComponentKind, list_components
from nodeguard.fleet_api.node import placements
from nodeguard.fleet_api.schema.component import ComponentList
from nodeguard.model.finding import Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.node import Node
from nodeguard.wire.report import Inventory, ReportedComponent
from tests.fleet.scene import Fleet, finding, in_order

GPU, LOST, PORT = "gpu/0000:3b:00", "gpu/0000:5d:00", "port/mlx5_0/1"
HOT = finding("gpu-hot", f"{GPU}/nvlink/3", health=Health.SUSPECT)
GONE = finding("gpu-lost", LOST, component="GPU-2", hardware=Hardware(1, "166"))
INVENTORY = Inventory(
    components={
        GPU: ReportedComponent("GPU-1", "H100", "165", "96.00", index=0),
        PORT: ReportedComponent("0x1", "MT4129", firmware="28.39"),
    }
)


def listed(fleet: Fleet, kind: ComponentKind, of: str = "") -> ComponentList:
    return list_components(fleet.planner, fleet.now, kind, placements(fleet.planner, of))


def test_gpus_of_the_inventory_and_lost_ones_have_their_worst_finding() -> None:
    fleet = Fleet(2)
    fleet.report(0, GONE, finding("gpu-ecc", GPU, health=Health.WARNING), HOT, inventory=INVENTORY)
    fleet.see(Node("node-2", "uid-2", gpus=8))
    response = listed(fleet, "gpu")
    worn, lost = response.components
    assert (worn.name, worn.index, worn.model, worn.id) == ("node-0/0000:3b:00", 0, "H100", "GPU-1")
    assert (worn.health, worn.findings, worn.worst, worn.in_inventory) == ("suspect", 2, "gpu-hot", True)
    assert (lost.name, lost.index, lost.serial, lost.id) == ("node-0/0000:5d:00", 1, "166", "GPU-2")
    assert (lost.health, lost.worst, lost.in_inventory) == ("fatal", "gpu-lost", False)
    assert (response.omitted, response.not_reported) == (0, 1)
    assert listed(fleet, "gpu", "node-1").components == ()


def test_a_finding_of_the_node_counts_for_each_of_its_targets() -> None:
    fleet = Fleet(1)
    fleet.report(0, finding("gpus-omitted", "node", targets=(GPU, LOST)), inventory=INVENTORY)
    assert [gpu.worst for gpu in listed(fleet, "gpu").components] == ["gpus-omitted", "gpus-omitted"]


def test_a_component_is_ok_only_if_a_check_of_it_passed_in_a_current_report() -> None:
    fleet = Fleet(2)
    fleet.report(0, proven=(in_order(targets=(GPU,)),), inventory=INVENTORY)
    [gpu], [port] = listed(fleet, "gpu").components, listed(fleet, "port").components
    assert (gpu.health, port.health) == ("ok", "unknown")
    assert (port.name, port.id, port.model, port.firmware) == ("node-0/mlx5_0/1", "0x1", "MT4129", "28.39")
    fleet.report(1, GONE, inventory=INVENTORY)
    fleet.after(3600.0, quiet=("uid-0", "uid-1"))
    assert {gpu.health for gpu in listed(fleet, "gpu").components} == {"unknown"}
    assert listed(fleet, "gpu").components[-1].worst == "gpu-lost"


def test_ports_are_in_the_order_of_their_numbers() -> None:
    fleet = Fleet(1)
    names = [f"port/mlx5_{number}/1" for number in (0, 1, 2, 10, 11)]
    components = {name: ReportedComponent("0x1") for name in sorted(names)}
    fleet.report(0, inventory=Inventory(components=components | {"port/roce/1": ReportedComponent("0x2")}))
    assert [port.target for port in listed(fleet, "port").components] == [*names, "port/roce/1"]


def test_components_that_a_full_report_left_out_are_counted_where_the_list_may_lack_them() -> None:
    fleet = Fleet(1)
    fleet.report(0, inventory=Inventory(components=INVENTORY.components, omitted=9))
    assert listed(fleet, "gpu").omitted == 0
    response = listed(fleet, "port")
    assert (response.omitted, response.omitted_of) == (9, ("node-0",))
    fleet.report(0, inventory=Inventory(omitted=9))
    assert listed(fleet, "gpu").omitted == 9
