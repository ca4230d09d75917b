"""ResourceSlices: which device of a DRA driver is which GPU of which node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct, field

from nodeguard.model.node import Device
from nodeguard.model.target import bus_address

PATH = "/apis/resource.k8s.io/v1/resourceslices"

# What drivers agree on; a driver's own attributes have its name before them, or nothing.
_ADDRESS = "resource.kubernetes.io/pciBusID"
_UUID = "uuid"


class ResourceSlice(Struct, frozen=True):
    """A part of a pool. parts: how many slices its generation has; devices: of them those that are GPUs."""

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
    parts: int = field(name="resourceSliceCount", default=1)


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
    """A ResourceSlice's JSON. Raises msgspec.MsgspecError."""
    said = _DECODER.decode(raw)
    spec = said.spec
    return ResourceSlice(
        uid=said.metadata.uid,
        version=said.metadata.version,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slice_count=spec.pool.parts,
        devices=tuple(_gpus(spec)),
    )


def latest_generation(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Of the slices of one pool those that count: its latest generation, of which all parts are there; where
    there is none such, its latest.
    """
    generations: dict[int, list[ResourceSlice]] = {}
    for one in slices:
        generations.setdefault(one.generation, []).append(one)
    whole = [number for number, parts in generations.items() if len(parts) >= parts[0].slice_count]
    return generations[max(whole or generations)] if generations else []


def _gpus(spec: _Spec) -> Iterator[Device]:
    for one in spec.devices:
        node = one.node or spec.node
        address = bus_address(_attribute(one, spec.driver, _ADDRESS)) or ""
        uuid = _attribute(one, spec.driver, _UUID)
        # Network cards have addresses too; what belongs to no one node is no part of any.
        if (
            node
            and (address or uuid)
            and (spec.driver.startswith("gpu.") or uuid.startswith(("GPU-", "MIG-")))
        ):
            yield Device(node, spec.driver, spec.pool.name, one.name, address, uuid)


def _attribute(device: _Device, driver: str, name: str) -> str:
    bare = name.rpartition("/")[2]
    for key in (name, bare, f"{driver}/{bare}"):
        if (value := device.attributes.get(key)) is not None and value.string:
            return value.string
    return ""
