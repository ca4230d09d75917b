from __future__ import annotations

import pytest

from nodeguard.model.hardware import Hardware, hardware_label

GPU = "gpu/0000:c3:00"
WHOLE = Hardware(5, "1650522100005", "692-2G520-0200-000", 6, "slot 5, tray 4 of chassis 182")


@pytest.mark.parametrize(
    ("target", "hardware", "label"),
    [
        (GPU, None, "GPU 0000:c3:00"),
        (GPU, Hardware(), "GPU 0000:c3:00"),
        (GPU, Hardware(5), "GPU 5 (0000:c3:00)"),
        (GPU, Hardware(0, "165", module_id=0), "GPU 0 (0000:c3:00, serial 165, module 0)"),
        (GPU, Hardware(serial="165"), "GPU (0000:c3:00, serial 165)"),
        (GPU, WHOLE, "GPU 5 (0000:c3:00, serial 1650522100005, module 6, slot 5, tray 4 of chassis 182)"),
        (f"{GPU}/nvlink/3", Hardware(5, "165"), "GPU 5 (0000:c3:00, serial 165) NVLink 3"),
        ("gpu/index-5", Hardware(5, "165"), "GPU 5 (index-5, serial 165)"),
        ("node", WHOLE, "node"),
        ("port/mlx5_0/1", WHOLE, "port mlx5_0/1"),
    ],
)
def test_a_label_has_the_names_that_are_known(target: str, hardware: Hardware | None, label: str) -> None:
    assert hardware_label(target, hardware) == label


def test_unknown_names_are_those_of_an_earlier_reading() -> None:
    assert Hardware(4).completed_by(WHOLE) == Hardware(4, *(getattr(WHOLE, name) for name in NAMES))
    assert WHOLE.completed_by(Hardware(1, "x", "y", 0, "z")) == WHOLE
    assert Hardware(module_id=0).completed_by(WHOLE).module_id == 0


NAMES = ("serial", "board_part_number", "module_id", "slot")
