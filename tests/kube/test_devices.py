"""GPUs of DRA drivers, by Node."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nodeguard.kube.client import ApiClient
from nodeguard.kube.devices import (
    PATH,
    DeviceTracker,
    ResourceSlice,
    decode_gpu_ids,
    decode_slice,
    latest_generation,
    serves_device_rules,
)
from nodeguard.model.device import Device
from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.logs import LogLines
from tests.waiting import in_background, until_async

DRIVER = "gpu.nvidia.com"


def device(number: int, **more: Object) -> Object:
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "index": {"int": number},
            "uuid": {"string": f"GPU-{number}"},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{number:02x}:00.0"},
            **more,
        },
    }


def resource_slice(
    name: str, devices: list[Object], node: str = "node-1", driver: str = DRIVER, **pool: object
) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1, **pool},
            "devices": devices,
        },
    }


def read(made: Object) -> ResourceSlice:
    named = {**made, "metadata": {"name": "s", "uid": "u", "resourceVersion": "1"}}
    return decode_slice(json.dumps(named).encode())


@pytest.mark.parametrize(
    ("attributes", "address", "uuid"),
    [
        ({"uuid": "GPU-1", "resource.kubernetes.io/pciBusID": "0000:3B:00.0"}, "0000:3b:00", "GPU-1"),
        ({"gpu.nvidia.com/uuid": "GPU-1", "pciBusID": "00000000:3b:00.0"}, "0000:3b:00", "GPU-1"),
        ({"gpu.nvidia.com/pciBusID": "3b:00.0"}, "0000:3b:00", ""),
        ({"uuid": "GPU-1", "resource.kubernetes.io/pciBusID": "somewhere"}, "", "GPU-1"),
    ],
)
def test_attributes_may_have_the_name_of_their_driver(
    attributes: dict[str, str], address: str, uuid: str
) -> None:
    made = {"name": "gpu-0", "attributes": {key: {"string": value} for key, value in attributes.items()}}
    assert read(resource_slice("s", [made])).devices == (
        Device("node-1", DRIVER, "node-1", "gpu-0", address, uuid),
    )


def test_a_part_of_a_gpu_has_the_id_of_its_gpu() -> None:
    created = described("gpu-0-mig-0", parentUUID="GPU-1", type="mig")
    existing = described("gpu-0-mig-1", uuid="MIG-7", parentUUID="GPU-1", type="mig")
    parts = read(resource_slice("s", [created, existing])).devices
    assert [(part.name, part.uuid) for part in parts] == [("gpu-0-mig-0", "GPU-1"), ("gpu-0-mig-1", "GPU-1")]


def test_a_device_without_gpu_attributes_is_ignored() -> None:
    card = {"name": "eth0", "attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"}}}
    assert read(resource_slice("s", [card], driver="dra.net")).devices == ()
    assert read(resource_slice("s", [{"name": "channel-0"}])).devices == ()
    assert read(resource_slice("s", [device(1)], driver="dra.site.example")).devices != ()


def test_a_device_may_name_its_own_node() -> None:
    made = resource_slice("s", [{**device(1), "nodeName": "node-7"}, device(2)])
    del made["spec"]["nodeName"]
    assert [device_on_node.node for device_on_node in read(made).devices] == ["node-7"]


def test_the_latest_complete_generation_counts() -> None:
    def part(uid: str, generation: int, parts: int) -> ResourceSlice:
        return ResourceSlice(uid, "1", DRIVER, "pool", generation, parts, ())

    old, new, rest = part("a", 1, 1), part("b", 2, 2), part("c", 2, 2)
    assert latest_generation([old, new]) == [old]
    assert latest_generation([old, new, rest]) == [new, rest]
    assert latest_generation([new]) == [new]
    assert latest_generation([]) == []


def gpu_ids(*slices: Object) -> dict[str, str]:
    """Return the ids of the GPUs of the devices of some slices of a Node, by name of the device."""
    items = [
        {**made, "metadata": {"name": f"s{number}", "uid": f"u{number}", "resourceVersion": "1"}}
        for number, made in enumerate(slices)
    ]
    decoded = decode_gpu_ids(json.dumps({"metadata": {"resourceVersion": "9"}, "items": items}).encode())
    return {name: gpu_id for (_, _, name), gpu_id in decoded.items()}


def described(name: str, **attributes: str) -> Object:
    return {"name": name, "attributes": {key: {"string": value} for key, value in attributes.items()}}


@pytest.mark.parametrize(
    ("made", "gpu_id"),
    [
        (described("gpu-0", uuid="GPU-1", type="gpu"), "GPU-1"),
        # A MIG device that exists, and one that the driver creates for the claim.
        (described("mig", uuid="MIG-7", parentUUID="GPU-1", type="mig"), "GPU-1::mig"),
        (described("mig", parentUUID="GPU-1", type="mig"), "GPU-1::mig"),
        ({"name": "mig", "attributes": {f"{DRIVER}/parentUUID": {"string": "GPU-1"}}}, "GPU-1::mig"),
        (described("mig", uuid="MIG-7"), None),
        (described("gpu-vfio-0", uuid="9f1c"), None),
        ({"name": "gpu-0"}, None),
    ],
)
def test_the_gpu_of_a_device_is_its_own_or_that_of_its_part(made: Object, gpu_id: str | None) -> None:
    assert gpu_ids(resource_slice("s", [made])).get(made["name"]) == gpu_id


def test_a_device_of_another_driver_is_no_gpu_unless_its_id_is_one() -> None:
    channel, gpu = {"name": "channel-0"}, described("a", uuid="GPU-1")
    assert gpu_ids(resource_slice("s", [channel, gpu], driver="compute-domain.nvidia.com")) == {
        "channel-0": "",
        "a": "GPU-1",
    }


def test_only_pools_of_the_node_and_their_latest_complete_generation_have_known_gpus() -> None:
    old, new = described("gpu-0", uuid="GPU-1"), described("gpu-0", uuid="GPU-2")
    whole = [
        resource_slice("a", [old], generation=1),
        resource_slice("b", [new], generation=2, resourceSliceCount=2),
        resource_slice("c", [described("gpu-1", uuid="GPU-3")], generation=2, resourceSliceCount=2),
    ]
    assert gpu_ids(*whole) == {"gpu-0": "GPU-2", "gpu-1": "GPU-3"}
    assert gpu_ids(*whole[:2]) == {"gpu-0": "GPU-1"}
    foreign = resource_slice("d", [old])
    foreign["spec"]["pool"]["name"] = "node-2"
    assert gpu_ids(foreign) == {}
    assert decode_gpu_ids(b'{"metadata": {"resourceVersion": "9"}, "items": null}') == {}


@asynccontextmanager
async def following(api: ApiClient) -> AsyncIterator[tuple[DeviceTracker, dict[str, Any]]]:
    reported: dict[str, Any] = {}
    devices = DeviceTracker(api, reported.__setitem__)
    async with in_background(devices.run()):
        yield devices, reported


async def test_a_node_publishes_no_devices_of_the_pool_of_another(
    api: ApiClient, controlplane: Cluster
) -> None:
    control = controlplane.api
    control.delete(PATH)
    control.post(PATH, resource_slice("one", [device(1)]))
    forged = resource_slice("forged", [device(2)], node="node-9", generation=7)
    forged["spec"]["pool"]["name"] = "node-1"
    control.post(PATH, forged)
    async with following(api) as (devices, reported):
        await until_async(lambda: devices.is_complete)
        assert list(reported) == ["node-1"]
        assert [item.name for item in devices.devices_of("node-1")] == ["gpu-1"]


async def test_added_and_removed_devices_are_reported(
    api: ApiClient, controlplane: Cluster, log: LogLines
) -> None:
    control = controlplane.api
    control.delete(PATH)
    control.post(PATH, resource_slice("one", [device(1), device(2)]))
    control.post(PATH, resource_slice("two", [device(1)], node="node-2"))
    async with following(api) as (devices, reported):
        await until_async(lambda: devices.is_complete)
        assert reported == {name: devices.devices_of(name) for name in ("node-1", "node-2")}
        assert [device_on_node.name for device_on_node in devices.devices_of("node-1")] == ["gpu-1", "gpu-2"]
        control.post(PATH, resource_slice("one-b", [device(3)], generation=2))
        await until_async(
            lambda: [device_on_node.name for device_on_node in devices.devices_of("node-1")] == ["gpu-3"]
        )
        control.delete(f"{PATH}/one")
        control.delete(f"{PATH}/two")
        await until_async(lambda: reported["node-2"] == ())
        control.delete(f"{PATH}/one-b")
        await until_async(lambda: reported["node-1"] == ())
        assert (devices._pools, devices._devices, devices._node_pools) == ({}, {}, {})
    assert log.text() == []


async def test_a_server_without_rules_has_no_devices(
    older_api: ApiClient, older_api_server: Cluster, log: LogLines
) -> None:
    older_api_server.api.post(PATH, resource_slice("one", [device(1)]))
    assert not await serves_device_rules(older_api)
    async with following(older_api) as (devices, reported):
        await until_async(lambda: devices.is_complete)
    assert (reported, log.text()) == ({}, [])
