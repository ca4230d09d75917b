"""The GPUs of a node as a DRA driver publishes them, said by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.e2e.scene import GPUS

DRIVER = "gpu.nvidia.com"
RESOURCES = "/apis/resource.k8s.io/v1"
RULES = f"{RESOURCES}/devicetaintrules"


@contextmanager
def published(cluster: Cluster, *names: str) -> Iterator[None]:
    """The eight GPUs of the bundle in a pool of each Node, in another order than the driver counts them in."""
    try:
        for name in names:
            _publish(cluster, name)
        yield
    finally:
        for kind in ("resourceslices", "deviceclasses"):
            cluster.api.delete(f"{RESOURCES}/{kind}")


def _publish(cluster: Cluster, name: str) -> None:
    devices = [
        {
            "name": f"gpu-{7 - number}",
            "attributes": {
                "uuid": {"string": f"GPU-5c8f000{number}-0a1b-2c3d-4e5f-60718293040{number}"},
                "resource.kubernetes.io/pciBusID": {"string": f"{gpu}.0"},
            },
        }
        for number, gpu in enumerate(GPUS)
    ]
    spec = {
        "driver": DRIVER,
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}}
    cluster.api.post(f"{RESOURCES}/resourceslices", {**made, "spec": spec})


def offer(cluster: Cluster, extended: str = "") -> None:
    """A class of all these GPUs. extended: the resource that pods may ask for instead."""
    spec: Object = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    if extended:
        spec["extendedResourceName"] = extended
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER}}
    cluster.api.post(f"{RESOURCES}/deviceclasses", {**made, "spec": spec})


def claim(name: str) -> Object:
    """A claim of any one of them."""
    one = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
    return {**made, "spec": {"devices": {"requests": [one]}}}


def rules(cluster: Cluster) -> list[Any]:
    """What keeps work off devices: the selector and the taint of each."""
    found = cluster.api.get(RULES)["items"]
    return [(one["spec"]["deviceSelector"], one["spec"]["taint"]) for one in found]
