"""Platforms: what a machine of an exactly known make is expected to hold."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.model.signal import Scalar


class PlatformMatch(Struct, frozen=True):
    """One way to know a platform: every word that is given must be equal, to the letter.

    A node that lost a part must still be known for what it is: counts are of the least that there must be.

    product_name, sys_vendor, chassis_asset_tag: DMI. instance_type: the cloud's name for the machine.
    gpu: NVML's name of every GPU. nvswitches: NVSwitch functions on PCI, at least.
    """

    product_name: str = ""
    sys_vendor: str = ""
    chassis_asset_tag: str = ""
    instance_type: str = ""
    gpu: str = ""
    nvswitches: int | None = None


class Platform(Struct, frozen=True):
    """A platform's file. expect: value by name; the names are those of EXPECTATIONS."""

    id: str
    title: str
    match: tuple[PlatformMatch, ...]
    expect: dict[str, Scalar | tuple[Scalar, ...]]
    source: str
    notes: tuple[str, ...] = ()


# What a platform file may expect, and what it means; a check names one as `{platform: NAME}`.
EXPECTATIONS = {
    "gpus": "GPUs in the node",
    "gpu_name": "NVML's name of each GPU",
    "nvlink_links": "active NVLinks of each GPU",
    "nvlink_speed_mbps": "raw signalling rate of one NVLink, MB/s",
    "nvswitches": "NVSwitch functions on PCI",
    "fabric_manager": "whether nvidia-fabricmanager runs on the node",
    "c2c_links": "active C2C links of each GPU to its CPU",
    "pcie_gen": "PCIe generation of each GPU's link under load",
    "pcie_width": "PCIe lanes of each GPU's link",
    "ecc": "whether ECC is on",
    "ports": "RDMA ports of the compute fabric",
    "port_rate_gbps": "rate of each of these ports, Gb/s",
    "port_link_layer": "`InfiniBand`, `Ethernet` (RoCE) or `EFA`",
    "port_devices": "names of their RDMA devices, where the platform fixes them",
}
