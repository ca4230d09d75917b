"""Decoding of ResourceSlices: the devices of a DRA driver that are GPUs, and their Nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct, field

from nodeguard.model.node import Device
from nodeguard.model.target import bus_address

PATH = "/apis/resource.k8s.io/v1/resourceslices"

# Attributes that drivers agree on; a driver may put its own name, or nothing, before an attribute.
_PCI_ATTRIBUTE = "resource.kubernetes.io/pciBusID"
_UUID_ATTRIBUTE = "uuid"


class ResourceSlice(Struct, frozen=True):
    """A part of a pool. slice_count: slices of its generation; devices: only those that are GPUs."""

    uid: str
    version: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    devices: tuple[Device, ...]


class _Meta(Struct):
    uid: str
    version: str = field(name="resourceVersion")


class _Value(Struct):
    string: str = ""


class _Device(Struct):
    name: str
    attributes: dict[str, _Value] = {}
    node: str = field(name="nodeName", default="")


class _Pool(Struct):
    name: str
    generation: int
    slice_count: int = field(name="resourceSliceCount", default=1)


class _Spec(Struct):
    driver: str
    pool: _Pool
    devices: list[_Device] = []
    node: str = field(name="nodeName", default="")


class _Slice(Struct):
    metadata: _Meta
    spec: _Spec


_DECODER = msgspec.json.Decoder(_Slice)


def decode_slice(raw: msgspec.Raw | bytes) -> ResourceSlice:
    """Return the ResourceSlice of an object's JSON. Raises msgspec.MsgspecError."""
    decoded = _DECODER.decode(raw)
    spec = decoded.spec
    return ResourceSlice(
        uid=decoded.metadata.uid,
        version=decoded.metadata.version,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slice_count=spec.pool.slice_count,
        devices=tuple(_gpus(spec)),
    )


def latest_generation(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices of a pool's latest complete generation; of its latest one if none is complete."""
    generations: dict[int, list[ResourceSlice]] = {}
    for resource_slice in slices:
        generations.setdefault(resource_slice.generation, []).append(resource_slice)
    complete = [number for number, members in generations.items() if len(members) >= members[0].slice_count]
    return generations[max(complete or generations)] if generations else []


def _gpus(spec: _Spec) -> Iterator[Device]:
    for device in spec.devices:
        node = device.node or spec.node
        address = bus_address(_attribute(device, spec.driver, _PCI_ATTRIBUTE)) or ""
        uuid = _attribute(device, spec.driver, _UUID_ATTRIBUTE)
        # Network adapters have addresses too. A device of several Nodes is not part of any of them.
        if (
            node
            and (address or uuid)
            and (spec.driver.startswith("gpu.") or uuid.startswith(("GPU-", "MIG-")))
        ):
            yield Device(node, spec.driver, spec.pool.name, device.name, address, uuid)


def _attribute(device: _Device, driver: str, name: str) -> str:
    short_name = name.rpartition("/")[2]
    for key in (name, short_name, f"{driver}/{short_name}"):
        if (value := device.attributes.get(key)) is not None and value.string:
            return value.string
    return ""
