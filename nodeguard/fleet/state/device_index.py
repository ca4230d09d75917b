"""Devices of the fleet: GPUs that drivers publish one by one.

No input, output or clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nodeguard.model.device import Device
from nodeguard.model.target import gpu_target

# Finds the published device of a target, by the target and the id of its component; None if there is none,
# or not only one: a mark on a GPU would leave its parts to new pods.
FindDevice = Callable[[str, str], Device | None]


class DeviceIndex:
    """The devices by the name of their node."""

    def __init__(self) -> None:
        self._devices: dict[str, tuple[Device, ...]] = {}

    def update_devices(self, node: str, devices: Iterable[Device]) -> None:
        """Update all published devices of a node, by its name."""
        self._devices[node] = tuple(devices)

    def count_gpus(self, node: str) -> int:
        """Return the number of published GPUs of a node, by its name."""
        return len({device.uuid or device.address or device.name for device in self._devices.get(node, ())})

    def finder(self, node: str) -> FindDevice:
        """Return a finder of the published devices of a node, by its name."""
        devices = self._devices.get(node, ())

        def find(target: str, component: str) -> Device | None:
            for device in devices:
                if (device.uuid and device.uuid == component) or gpu_target(device.address) == target:
                    is_only = not any(_is_same_gpu(device, other) for other in devices if other != device)
                    return device_selector(device) if is_only else None
            return None

        return find

    def is_gone(self, device: Device) -> bool:
        """Return whether a node publishes devices and this one is not among them."""
        devices = self._devices.get(device.node, ())
        return bool(devices) and all(device_selector(published) != device for published in devices)


def _is_same_gpu(device: Device, other: Device) -> bool:
    return device.uuid == other.uuid != "" or device.address == other.address != ""


def device_selector(device: Device) -> Device:
    """Return the device with nothing but its selector."""
    return Device(device.node, device.driver, device.pool, device.name)
