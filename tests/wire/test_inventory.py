from __future__ import annotations

from nodeguard.model.hardware import Hardware
from nodeguard.model.observation import Component, Observation
from nodeguard.wire.report import Inventory, ReportedComponent
from nodeguard.wire.report_builder import build_inventory


def test_observations_of_a_target_are_combined() -> None:
    gpu = Component("GPU-1", "H100", Hardware(5, "165"))
    observations = [
        Observation("host", "node", signals={"driver.version": "570.1", "host.kernel": "6.8.0"}),
        Observation("nvml", "gpu/0000:3b:00", signals={"gpu.vbios": "96.00"}, component=gpu),
        Observation("pci", "gpu/0000:3b:00", component=Component("")),
        Observation("ib", "port/mlx5_0/1", signals={"port.firmware": "28.39"}, component=Component("0x1")),
        Observation("disk", "fs:/var"),
    ]
    components = {
        "gpu/0000:3b:00": ReportedComponent("GPU-1", "H100", "165", "96.00", index=5),
        "port/mlx5_0/1": ReportedComponent("0x1", firmware="28.39"),
    }
    assert build_inventory(observations, "dgx") == Inventory("570.1", "6.8.0", "dgx", components)
    assert build_inventory(reversed(observations), "dgx") == Inventory("570.1", "6.8.0", "dgx", components)


def test_components_above_the_limit_are_counted() -> None:
    inventory = build_inventory(
        Observation("pci", f"pci/{number}", component=Component(str(number))) for number in range(300)
    )
    assert (len(inventory.components), inventory.omitted) == (256, 44)


def test_gpus_and_ports_precede_components_above_the_limit() -> None:
    names = [f"disk/{number}" for number in range(250)]
    names += [f"gpu/0000:{number:02x}:00" for number in range(8)] + [
        f"port/mlx5_{number}/1" for number in range(8)
    ]
    inventory = build_inventory(Observation("pci", name, component=Component(name)) for name in names)
    assert set(names[250:]) <= inventory.components.keys()
    assert (len(inventory.components), inventory.omitted) == (256, 10)


def test_a_serial_number_stays_where_a_later_observation_lacks_it() -> None:
    inventory = build_inventory(
        Observation("nvml", "gpu/0000:3b:00", component=Component("GPU-1", "H100", hardware))
        for hardware in (Hardware(serial="165"), Hardware(index=0))
    )
    component = inventory.components["gpu/0000:3b:00"]
    assert (component.serial, component.index) == ("165", 0)
