from __future__ import annotations

from nodeguard.model.observation import Component, Observation
from nodeguard.wire.report import Inventory, ReportedComponent
from nodeguard.wire.report_builder import build_inventory


def test_the_inventory_is_what_the_sources_read() -> None:
    gpu = Component("GPU-1", "H100", "165")
    read = [
        Observation("host", "node", signals={"driver.version": "570.1", "host.kernel": "6.8.0"}),
        Observation("nvml", "gpu/0000:3b:00", signals={"gpu.vbios": "96.00"}, component=gpu),
        Observation("pci", "gpu/0000:3b:00", component=Component("")),
        Observation("ib", "port/mlx5_0/1", signals={"port.firmware": "28.39"}, component=Component("0x1")),
        Observation("disk", "fs:/var"),
    ]
    parts = {
        "gpu/0000:3b:00": ReportedComponent("GPU-1", "H100", "165", "96.00"),
        "port/mlx5_0/1": ReportedComponent("0x1", firmware="28.39"),
    }
    assert build_inventory(read, "dgx") == Inventory("570.1", "6.8.0", "dgx", parts)
    assert build_inventory(reversed(read), "dgx") == Inventory("570.1", "6.8.0", "dgx", parts)


def test_a_machine_of_too_many_parts_says_how_many_are_left_out() -> None:
    found = build_inventory(
        Observation("pci", f"pci/{at}", component=Component(str(at))) for at in range(300)
    )
    assert (len(found.components), found.omitted) == (256, 44)
