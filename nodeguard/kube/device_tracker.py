"""The GPUs that DRA drivers publish, by node, where a server can keep work off one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from msgspec import Struct

from nodeguard.kube.client import ApiClient
from nodeguard.kube.error_log import ErrorLog, Log
from nodeguard.kube.errors import ApiError, single_line
from nodeguard.kube.resource_slices import PATH, ResourceSlice, decode_slice, latest_generation
from nodeguard.kube.watch import Watch
from nodeguard.model.node import Device

API_GROUP = "/apis/resource.k8s.io/v1"

# Seconds until a server is asked again whether it has rules, after no and after no answer.
_LATER = 600.0
_SOON = 5.0


# A pool's driver and name.
_Pool = tuple[str, str]


class _Resource(Struct):
    name: str


class _Group(Struct):
    resources: list[_Resource] = []


_DECODER = msgspec.json.Decoder(_Group)


async def serves_device_rules(api: ApiClient) -> bool:
    """Whether a server has DeviceTaintRules that are no trial any more. Raises ApiError."""
    try:
        said = _DECODER.decode(await api.request("GET", API_GROUP))
    except msgspec.MsgspecError as error:
        raise ApiError(0, "Unreadable", f"{API_GROUP} cannot be read: {single_line(str(error))}") from None
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return any(one.name == "devicetaintrules" for one in said.resources)


class DeviceTracker:
    """Follows the devices of all nodes, or none at all where the server has no rules for them.

    give: is told a node's name and all devices that it has now, at each change of them.
    """

    def __init__(self, api: ApiClient, give: Callable[[str, tuple[Device, ...]], None], tell: Log) -> None:
        self._api = api
        self._give = give
        self._trouble = ErrorLog("DeviceTaintRules", tell)
        self._watching = Watch(api, PATH, "ResourceSlices", decode_slice, self, tell)
        self._slices: dict[str, ResourceSlice] = {}
        self._pools: dict[_Pool, dict[str, ResourceSlice]] = {}
        self._devices: dict[_Pool, dict[str, tuple[Device, ...]]] = {}
        self._pools_of: dict[str, set[_Pool]] = {}
        self._has_none = False

    @property
    def is_complete(self) -> bool:
        """Whether all devices were given, or it is clear that there are none to be given."""
        return self._has_none or self._watching.is_synced

    async def run(self) -> None:
        """Follow them until cancelled."""
        while True:
            try:
                if await serves_device_rules(self._api):
                    break
                self._has_none = True
                self._trouble.recovered()
                await asyncio.sleep(_LATER)
            except ApiError as error:
                self._trouble.failed(error)
                await asyncio.sleep(_SOON)
        self._trouble.recovered()
        self._has_none = False
        await self._watching.run()

    def devices_of(self, node: str) -> tuple[Device, ...]:
        """The devices of a node."""
        pools = sorted(self._pools_of.get(node, ()))
        return tuple(one for pool in pools for one in self._devices[pool][node])

    def changed(self, thing: ResourceSlice) -> None:
        """A slice is new or has changed."""
        pool = (thing.driver, thing.pool)
        before = self._removed(thing.uid)
        self._slices[thing.uid] = thing
        self._pools.setdefault(pool, {})[thing.uid] = thing
        if before is not None and before != pool:
            self._settle(before)
        self._settle(pool)

    def gone(self, uid: str) -> None:
        """A slice is no more."""
        if (pool := self._removed(uid)) is not None:
            self._settle(pool)

    def synced(self) -> None:
        """All slices have been told of."""

    def _removed(self, uid: str) -> _Pool | None:
        old = self._slices.pop(uid, None)
        if old is None:
            return None
        pool = (old.driver, old.pool)
        del self._pools[pool][uid]
        return pool

    def _settle(self, pool: _Pool) -> None:
        """Work out which devices a pool has now, and tell of each node that has others than before."""
        if not self._pools[pool]:
            del self._pools[pool]
        found: dict[str, tuple[Device, ...]] = {}
        for part in latest_generation(self._pools.get(pool, {}).values()):
            for one in part.devices:
                found[one.node] = (*found.get(one.node, ()), one)
        before = self._devices.pop(pool, {})
        if found:
            self._devices[pool] = found
        for node in before.keys() | found.keys():
            if before.get(node) != found.get(node):
                self._note(node, pool, has_some=node in found)
                self._give(node, self.devices_of(node))

    def _note(self, node: str, pool: _Pool, *, has_some: bool) -> None:
        pools = self._pools_of.setdefault(node, set())
        if has_some:
            pools.add(pool)
        else:
            pools.discard(pool)
            if not pools:
                del self._pools_of[node]
