"""GPUs as a DRA driver publishes them: ResourceSlices, a DeviceClass and claims, created by the test."""

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
def published_devices(cluster: Cluster, *names: str) -> Iterator[None]:
    """Publish the eight GPUs of the bundle for each Node, in another order than that of the driver."""
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
    header = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}}
    cluster.api.post(f"{RESOURCES}/resourceslices", {**header, "spec": spec})


def create_device_class(cluster: Cluster, extended: str = "") -> None:
    """Create a DeviceClass of all these GPUs. extended: extended resource that pods may request instead."""
    spec: Object = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    if extended:
        spec["extendedResourceName"] = extended
    header = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER}}
    cluster.api.post(f"{RESOURCES}/deviceclasses", {**header, "spec": spec})


def claim(name: str) -> Object:
    """Return a ResourceClaim for one GPU of the class."""
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    header = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
    return {**header, "spec": {"devices": {"requests": [request]}}}


def device_taints(cluster: Cluster) -> list[Any]:
    """Return the selector and the taint of each DeviceTaintRule."""
    specs = [rule["spec"] for rule in cluster.api.get(RULES)["items"]]
    return [(spec["deviceSelector"], spec["taint"]) for spec in specs]
