"""Which published device a fault of a GPU is about."""

from __future__ import annotations

import pytest

from nodeguard.fleet.state.device_index import DeviceIndex
from nodeguard.model.device import Device


def device(name: str, uuid: str, address: str = "") -> Device:
    return Device("node-0", "gpu.nvidia.com", "node-0", name, address, uuid)


GPU, OTHER = device("gpu-0", "GPU-0", "0000:3b:00"), device("gpu-1", "GPU-1", "0000:5e:00")


def found(target: str, component: str, *devices: Device) -> str | None:
    """Return the name of the device of a target."""
    index = DeviceIndex()
    index.update_devices("node-0", devices)
    device_of_target = index.finder("node-0")(target, component)
    return None if device_of_target is None else device_of_target.name


def test_a_device_is_found_by_its_id_or_address() -> None:
    assert found("gpu/0000:3b:00", "", OTHER, GPU) == "gpu-0"
    assert found("gpu/0000:d8:00", "GPU-0", OTHER, GPU) == "gpu-0"
    assert found("gpu/0000:d8:00", "", OTHER, GPU) is None


@pytest.mark.parametrize("component", ["", "GPU-0"])
@pytest.mark.parametrize(
    "parts",
    [
        (GPU, device("gpu-0-mig-0", "GPU-0")),
        (device("gpu-0-mig-0", "GPU-0", "0000:3b:00"), device("gpu-0-mig-1", "GPU-0", "0000:3b:00")),
        (GPU, device("gpu-vfio-0", "", "0000:3b:00")),
    ],
)
def test_a_gpu_of_several_devices_has_no_single_one(parts: tuple[Device, ...], component: str) -> None:
    """A mark on one of them would leave the others to new pods."""
    assert found("gpu/0000:3b:00", component, *parts, OTHER) is None
    assert found("gpu/0000:5e:00", component and "GPU-1", *parts, OTHER) == "gpu-1"


def test_the_parts_of_a_gpu_count_as_one_gpu() -> None:
    index = DeviceIndex()
    index.update_devices("node-0", (GPU, device("gpu-0-mig-0", "GPU-0"), OTHER))
    assert index.count_gpus("node-0") == 2
