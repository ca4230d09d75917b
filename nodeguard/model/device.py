"""GPUs that can be marked one by one, and the names of the objects that carry their marks."""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct


class Device(Struct, frozen=True):
    """A GPU that a driver publishes by itself, as a DRA driver does in a ResourceSlice."""

    node: str
    """Name of its node."""
    driver: str
    pool: str
    name: str
    """With driver and pool, the selector of the device."""
    address: str = ""
    """PCI address as in targets (`0000:3b:00`); empty if the driver does not publish it."""
    uuid: str = ""
    """Id of the GPU, also for a part of it, such as a MIG device; empty if the driver does not publish it."""


def device_mark_name(node: str, device: Device) -> str:
    """Return the name of the object that carries the marks of a device, the same in every aggregator. node:
    key of its node.
    """
    words = "\0".join((node, device.driver, device.pool, device.name))
    return f"nodeguard-{blake2b(words.encode(), digest_size=10).hexdigest()}"
