from __future__ import annotations

from nodeguard.model.observation import Observation, Part
from nodeguard.wire.inventory import inventory
from nodeguard.wire.report import Inventory, Occupant


def test_the_inventory_is_what_the_sources_read() -> None:
    gpu = Part("GPU-1", "H100", "165")
    read = [
        Observation("host", "node", signals={"driver.version": "570.1", "host.kernel": "6.8.0"}),
        Observation("nvml", "gpu/0000:3b:00", signals={"gpu.vbios": "96.00"}, part=gpu),
        Observation("pci", "gpu/0000:3b:00", part=Part("")),
        Observation("ib", "port/mlx5_0/1", signals={"port.firmware": "28.39"}, part=Part("0x1")),
        Observation("disk", "fs:/var"),
    ]
    parts = {
        "gpu/0000:3b:00": Occupant("GPU-1", "H100", "165", "96.00"),
        "port/mlx5_0/1": Occupant("0x1", firmware="28.39"),
    }
    assert inventory(read, "dgx") == Inventory("570.1", "6.8.0", "dgx", parts)
    assert inventory(reversed(read), "dgx") == Inventory("570.1", "6.8.0", "dgx", parts)


def test_a_machine_of_too_many_parts_says_how_many_are_left_out() -> None:
    found = inventory(Observation("pci", f"pci/{at}", part=Part(str(at))) for at in range(300))
    assert (len(found.parts), found.more) == (256, 44)
