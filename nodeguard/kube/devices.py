"""GPUs of DRA drivers, from ResourceSlices, by Node: for taints on single devices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Struct, field

from nodeguard.kube.client import ApiClient
from nodeguard.kube.discovery import served_resources
from nodeguard.kube.errors import ApiError
from nodeguard.kube.objects import TypedList, TypedObject
from nodeguard.kube.watch import Watch
from nodeguard.model.device import Device
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.pod import SHARED_GPU
from nodeguard.model.target import bus_address

logger = logging.getLogger(__name__)

PATH = "/apis/resource.k8s.io/v1/resourceslices"

# Attributes that drivers agree on; a driver may put its own name, or nothing, before an attribute.
_PCI_ATTRIBUTE = "resource.kubernetes.io/pciBusID"
_UUID_ATTRIBUTE = "uuid"

# Of a partition, such as a MIG device: the id of its GPU.
_PARENT_ATTRIBUTE = "parentUUID"

# Ids of NVIDIA GPUs.
_GPU_ID = "GPU-"

# Driver, pool and name of a device.
DeviceKey = tuple[str, str, str]


class ResourceSlice(Struct, frozen=True):
    """A part of a pool. slice_count: slices of its generation; devices: only those that are GPUs. node: name
    of the Node that publishes it; empty for a slice of several Nodes.
    """

    uid: str
    version: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    devices: tuple[Device, ...]
    node: str = ""


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


class _Slice(TypedObject):
    spec: _Spec


_DECODER = JsonDecoder(_Slice)
_LIST_DECODER = JsonDecoder(TypedList[_Slice])


def decode_slice(raw: msgspec.Raw | bytes) -> ResourceSlice:
    """Return the ResourceSlice of an object's JSON. Raises msgspec.MsgspecError."""
    return _resource_slice(_DECODER.decode(raw))


def _resource_slice(decoded: _Slice) -> ResourceSlice:
    spec = decoded.spec
    return ResourceSlice(
        uid=decoded.uid,
        version=decoded.version,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slice_count=spec.pool.slice_count,
        devices=tuple(_gpus(spec)),
        node=spec.node,
    )


def latest_generation(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices of a pool's latest complete generation; of its latest one if none is complete."""
    generations: dict[int, list[ResourceSlice]] = {}
    for resource_slice in slices:
        generations.setdefault(resource_slice.generation, []).append(resource_slice)
    complete = [number for number, members in generations.items() if len(members) >= members[0].slice_count]
    return generations[max(complete or generations)] if generations else []


def _gpus(spec: _Spec) -> Iterator[Device]:
    # A kubelet may publish any pool for its own Node: a rule for a device of another Node's pool would taint
    # that one. The drivers name the pool of a Node after it.
    if spec.node and spec.pool.name != spec.node:
        return
    for device in spec.devices:
        node = device.node or spec.node
        address = bus_address(_attribute(device, spec.driver, _PCI_ATTRIBUTE)) or ""
        parent = _attribute(device, spec.driver, _PARENT_ATTRIBUTE)
        uuid = parent or _attribute(device, spec.driver, _UUID_ATTRIBUTE)
        # A device of several Nodes is not part of any of them.
        if node and (address or uuid) and _is_gpu(spec.driver, uuid):
            yield Device(node, spec.driver, spec.pool.name, device.name, address, uuid)


def decode_gpu_ids(body: bytes) -> dict[DeviceKey, str]:
    """Return the ids of the GPUs of all devices in a list of the ResourceSlices of one Node, empty for a
    device that is no GPU. A part of a GPU, such as a MIG device, has the id of the GPU with its own name. A
    device is missing if its GPU is not known. Raises msgspec.MsgspecError.
    """
    ids: dict[DeviceKey, str] = {}
    pools: dict[tuple[str, str], list[_Slice]] = {}
    for item in _LIST_DECODER.decode(body).items or ():
        # See _gpus.
        if item.spec.pool.name == item.spec.node:
            pools.setdefault((item.spec.driver, item.spec.pool.name), []).append(item)
    for (driver, pool), slices in pools.items():
        generation = latest_generation(map(_resource_slice, slices))[0].generation
        for item in slices:
            for device in item.spec.devices if item.spec.pool.generation == generation else ():
                if (gpu_id := _gpu_id(device, driver)) is not None:
                    ids[driver, pool, device.name] = gpu_id
    return ids


def _gpu_id(device: _Device, driver: str) -> str | None:
    """Return the id of the GPU of a device; empty if it is no GPU, None if the id is not known."""
    uuid = _attribute(device, driver, _UUID_ATTRIBUTE)
    parent = _attribute(device, driver, _PARENT_ATTRIBUTE)
    if uuid.startswith(_GPU_ID):
        return uuid
    if parent.startswith(_GPU_ID):
        return f"{parent}{SHARED_GPU}{device.name}"
    return None if _is_gpu(driver, uuid) else ""


def _is_gpu(driver: str, uuid: str) -> bool:
    # Network adapters have addresses too.
    return driver.startswith("gpu.") or uuid.startswith((_GPU_ID, "MIG-"))


def _attribute(device: _Device, driver: str, name: str) -> str:
    short_name = name.rpartition("/")[2]
    for key in (name, short_name, f"{driver}/{short_name}"):
        if (value := device.attributes.get(key)) is not None and value.string:
            return value.string
    return ""


API_GROUP = "/apis/resource.k8s.io/v1"

# Seconds until the server is asked again whether it serves DeviceTaintRules: after "no", and after an error.
_RECHECK_SECONDS = 600.0
_RETRY_SECONDS = 5.0


# A pool's driver and name, and the Node that publishes it: its generations are its own.
_PoolKey = tuple[str, str, str]


async def serves_device_rules(api: ApiClient) -> bool:
    """Return whether a server has DeviceTaintRules in the stable API version. Raises ApiError."""
    return "devicetaintrules" in await served_resources(api, API_GROUP)


class DeviceTracker:
    """Follows the devices of all Nodes, or none if the server has no DeviceTaintRules.

    on_change: called with a Node's name and all its devices, at each change of them.
    """

    def __init__(self, api: ApiClient, on_change: Callable[[str, tuple[Device, ...]], None]) -> None:
        self._api = api
        self._on_change = on_change
        self._watch = Watch(api, PATH, "ResourceSlices", decode_slice, self)
        self._slices: dict[str, ResourceSlice] = {}  # by uid
        self._pools: dict[_PoolKey, dict[str, ResourceSlice]] = {}  # by uid of the slice
        self._devices: dict[_PoolKey, dict[str, tuple[Device, ...]]] = {}  # by node
        self._node_pools: dict[str, set[_PoolKey]] = {}
        self._is_unsupported = False

    @property
    def is_complete(self) -> bool:
        """Whether all devices were reported, or the server has no DeviceTaintRules."""
        return self._is_unsupported or self._watch.is_synced

    async def run(self) -> None:
        """Follow the devices until cancelled."""
        while True:
            try:
                if await serves_device_rules(self._api):
                    break
                self._is_unsupported = True
                await asyncio.sleep(_RECHECK_SECONDS)
            except ApiError as error:
                logger.warning(
                    "cannot find out whether the cluster has DeviceTaintRules", extra={"error": error.message}
                )
                await asyncio.sleep(_RETRY_SECONDS)
        self._is_unsupported = False
        await self._watch.run()

    def devices_of(self, node: str) -> tuple[Device, ...]:
        """Return the devices of a Node."""
        pools = sorted(self._node_pools.get(node, ()))
        return tuple(device for pool in pools for device in self._devices[pool][node])

    def changed(self, thing: ResourceSlice) -> None:
        """Handle a slice that is new or has changed."""
        pool = (thing.driver, thing.pool, thing.node)
        before = self._remove(thing.uid)
        self._slices[thing.uid] = thing
        self._pools.setdefault(pool, {})[thing.uid] = thing
        if before is not None and before != pool:
            self._update_pool(before)
        self._update_pool(pool)

    def gone(self, uid: str) -> None:
        """Handle a slice that was deleted."""
        if (pool := self._remove(uid)) is not None:
            self._update_pool(pool)

    def synced(self) -> None:
        """Handle the end of the list: nothing to do."""

    def _remove(self, uid: str) -> _PoolKey | None:
        """Remove a slice and return its pool; None if it is unknown."""
        removed = self._slices.pop(uid, None)
        if removed is None:
            return None
        pool = (removed.driver, removed.pool, removed.node)
        del self._pools[pool][uid]
        return pool

    def _update_pool(self, pool: _PoolKey) -> None:
        """Compute the devices of a pool, and report each Node with changed devices."""
        if not self._pools[pool]:
            del self._pools[pool]
        after: dict[str, tuple[Device, ...]] = {}
        for current in latest_generation(self._pools.get(pool, {}).values()):
            for device in current.devices:
                after[device.node] = (*after.get(device.node, ()), device)
        before = self._devices.pop(pool, {})
        if after:
            self._devices[pool] = after
        for node in before.keys() | after.keys():
            if before.get(node) != after.get(node):
                self._index_node(node, pool, has_devices=node in after)
                self._on_change(node, self.devices_of(node))

    def _index_node(self, node: str, pool: _PoolKey, *, has_devices: bool) -> None:
        pools = self._node_pools.setdefault(node, set())
        if has_devices:
            pools.add(pool)
        else:
            pools.discard(pool)
            if not pools:
                del self._node_pools[node]
